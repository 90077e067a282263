//! The screen, a pure function of the board.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Sparkline, Table, TableState};
use throttlekit::clock::{Clock, WallClock};
use throttlekit_proto::v1::KeyCount;

use super::board::Board;
use super::units::{ago, calls_each, clock, denied_part, short, time};

const GOOD: Color = Color::Green;
const BAD: Color = Color::Red;
const DIM: Color = Color::DarkGray;
const HOT: Color = Color::Yellow;
const MARK: Color = Color::Cyan;

/// Draws the screen.
pub(super) fn draw(frame: &mut Frame<'_>, board: &Board) {
    let [head, upper, middle, lower, live, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(8),
        Constraint::Min(6),
        Constraint::Length(8),
        Constraint::Length(9),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let halves = |area| Layout::horizontal([Constraint::Fill(2), Constraint::Length(44)]).areas::<2>(area);
    frame.render_widget(heading(board), head);
    let [curve, health] = halves(upper);
    throughput(frame, board, curve);
    frame.render_widget(state_of_server(board), health);
    let [list, axes] = halves(middle);
    policies(frame, board, list);
    frame.render_widget(by_axis(board, axes), axes);
    let [busy, refused, slots] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1), Constraint::Length(44)]).areas(lower);
    frame.render_widget(keys(board, "Most requested", |policy| &policy.top_requested), busy);
    frame.render_widget(keys(board, "Most denied", |policy| &policy.top_denied), refused);
    frame.render_widget(slots_and_shares(board), slots);
    frame.render_widget(denials(board), live);
    frame.render_widget(" ↑↓ PgUp PgDn select · p pause · ? help · q quit".fg(DIM), foot);
    if board.help {
        help(frame);
    }
}

fn heading(board: &Board) -> Line<'static> {
    let node = board.now.meta.as_ref().map(|meta| meta.node_id.clone()).filter(|node| !node.is_empty());
    let mut parts = vec![" ThrottleKit ".bold().fg(MARK), Span::raw(board.target.clone())];
    parts.extend(node.map(|node| format!("  node {node}").fg(DIM)));
    match &board.away {
        Some((since, why)) => {
            let since_ms = since.as_millis_ceil() as i64;
            let now_ms = WallClock.now().as_millis_ceil() as i64;
            let text = format!("  UNAVAILABLE since {} ({}): {why}", clock(since_ms), ago(now_ms - since_ms));
            parts.push(text.bold().fg(BAD));
        }
        None if board.seen => parts.push("  live".fg(GOOD)),
        None => parts.push("  connecting".fg(HOT)),
    }
    if board.paused {
        parts.push("  PAUSED".bold().fg(HOT));
    }
    Line::from(parts)
}

fn throughput(frame: &mut Frame<'_>, board: &Board, area: Rect) {
    let (pace, name) = (board.pace(), board.chosen().map_or("all policies", |policy| &policy.name));
    let title = Line::from(vec![
        format!(" {name}  ").bold(),
        format!("{}/s allowed", short(pace.allowed)).fg(GOOD),
        "  ".into(),
        format!("{}/s denied ", short(pace.denied)).fg(BAD),
    ]);
    let block = Block::bordered().title(title).border_style(DIM);
    let inside = block.inner(area);
    let curve = board.curve(inside.width.into());
    frame.render_widget(Sparkline::default().block(block).data(curve).style(MARK), area);
}

fn state_of_server(board: &Board) -> Paragraph<'static> {
    let engine = board.now.engine.clone().unwrap_or_default();
    let config = board.now.config.clone().unwrap_or_default();
    let now = board.now.meta.as_ref().map_or(0, |meta| meta.generated_at);
    let serving = match (board.seen, engine.serving) {
        (false, _) => "unknown".fg(DIM),
        (true, true) => "responding".fg(GOOD),
        (true, false) => format!("unavailable for {}", ago(engine.last_answer_ms_ago)).bold().fg(BAD),
    };
    let refused = if config.rejected > 0 { HOT } else { DIM };
    let lines = vec![
        Line::from(vec![format!("store  {:<9}", engine.kind).into(), serving]),
        Line::from(format!(
            "       {} calls  {} in flight  {} outages",
            short(engine.calls as f64),
            engine.in_flight,
            engine.outages
        ))
        .fg(DIM),
        Line::from(failure(&engine.last_error)).fg(if engine.serving { HOT } else { BAD }),
        Line::from(format!("config {}  {} ago", config.version_hash, ago(now - config.loaded_at))),
        Line::from(format!("       {} reloads  {} rejected", config.reloads, config.rejected)).fg(refused),
        Line::from(config.last_error).fg(BAD),
    ];
    Paragraph::new(lines).block(Block::bordered().title(" Health ").border_style(DIM))
}

/// Formats the store's last failure in one short line: the time of day and the cause.
fn failure(told: &str) -> String {
    let Some((at, why)) = told.split_once(' ') else { return told.to_owned() };
    let time = at.split_once('T').map_or(at, |(_, time)| time.trim_end_matches('Z'));
    format!("  {time} {}", why.trim_start_matches("the store "))
}

fn policies(frame: &mut Frame<'_>, board: &Board, area: Rect) {
    let head = ["policy", "kind", "allow/s", "deny/s", "denied", "p50", "p99", "calls", "shadow"];
    let total = board.total();
    let all = Row::new(["all".into(), String::new(), short(total.allowed), short(total.denied)]);
    let rows = board.now.policies.iter().map(|policy| {
        let (pace, latency) = (board.pace_of(policy), policy.latency.unwrap_or_default());
        let denied = denied_part(policy);
        let heat = if denied >= 0.5 {
            BAD
        } else if denied > 0.0 {
            HOT
        } else {
            GOOD
        };
        Row::new([
            Cell::from(policy.name.clone()),
            Cell::from(policy.kind.clone()).fg(DIM),
            Cell::from(short(pace.allowed)),
            Cell::from(short(pace.denied)),
            Cell::from(format!("{:.1}%", denied * 100.0)).fg(heat),
            Cell::from(time(latency.p50_ms)),
            Cell::from(time(latency.p99_ms)),
            Cell::from(format!("{:.2}", calls_each(policy))),
            Cell::from(short(policy.shadow_denied as f64)),
        ])
    });
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(9),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(5),
        Constraint::Length(6),
    ];
    let table = Table::new(std::iter::once(all).chain(rows), widths)
        .header(Row::new(head).style(Style::new().fg(DIM)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .block(Block::bordered().title(" Policies ").border_style(DIM));
    let mut state = TableState::new().with_selected(Some(board.line));
    frame.render_stateful_widget(table, area, &mut state);
}

fn by_axis(board: &Board, area: Rect) -> Paragraph<'static> {
    let axes = ["concurrency", "rate", "cost", "fairness", "price", "none"];
    let count = |axis: &str| -> i64 {
        let each = board.of_chosen().into_iter().flat_map(|policy| &policy.denied_by_axis);
        each.filter(|count| count.axis == axis).map(|count| count.count).sum()
    };
    let counts = axes.map(|axis| (axis, count(axis)));
    let most = counts.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
    let room = usize::from(area.width).saturating_sub(24) as i64;
    let lines =
        counts.into_iter().filter(|(axis, count)| *axis != "none" || *count > 0).map(|(axis, count)| {
            let bar = "█".repeat(((count * room + most - 1) / most).max(0) as usize);
            Line::from(vec![
                format!("{axis:<12}").into(),
                bar.fg(BAD),
                format!(" {}", short(count as f64)).into(),
            ])
        });
    Paragraph::new(lines.collect::<Vec<_>>())
        .block(Block::bordered().title(" Denied by axis ").border_style(DIM))
}

fn keys(
    board: &Board,
    title: &str,
    of: impl Fn(&throttlekit_proto::v1::PolicySummary) -> &Vec<KeyCount>,
) -> Table<'static> {
    let mut all: Vec<_> = board
        .of_chosen()
        .into_iter()
        .flat_map(|policy| of(policy).iter().map(|key| (policy.name.clone(), key.clone())))
        .collect();
    all.sort_by_key(|(_, key)| std::cmp::Reverse(key.count));
    let rows = all.into_iter().map(|(policy, key)| {
        Row::new([Cell::from(key.key), Cell::from(policy).fg(DIM), Cell::from(short(key.count as f64))])
    });
    Table::new(rows, [Constraint::Fill(2), Constraint::Fill(1), Constraint::Length(6)])
        .block(Block::bordered().title(format!(" {title} ")).border_style(DIM))
}

fn slots_and_shares(board: &Board) -> Paragraph<'static> {
    let chosen = board.chosen().map(|policy| policy.name.clone());
    let guards =
        board.now.guards.iter().filter(|guard| chosen.as_ref().is_none_or(|name| *name == guard.name));
    let slots = guards.map(|guard| {
        let ceiling = if guard.limit > 0 { guard.limit.to_string() } else { "by key".into() };
        let fleet = if guard.nodes > 1 || guard.l_global != guard.limit {
            format!(" of {} at {}", guard.l_global, guard.nodes)
        } else {
            String::new()
        };
        let text = format!("{:<12} {:>5} / {ceiling}{fleet}", guard.name, guard.inflight);
        if guard.fenced { Line::from(format!("{text} FENCED").bold().fg(BAD)) } else { Line::from(text) }
    });
    let shares = board.of_chosen().into_iter().flat_map(|policy| &policy.fair_shares).map(|share| {
        Line::from(format!("{:<12} {:>5} / {} ×{}", share.tenant, share.used, share.guaranteed, share.weight))
    });
    Paragraph::new(slots.chain(shares).collect::<Vec<_>>())
        .block(Block::bordered().title(" Slots and shares ").border_style(DIM))
}

fn denials(board: &Board) -> Table<'static> {
    let chosen = board.chosen().map(|policy| policy.name.clone());
    let all = board.now.recent_denials.iter();
    let rows = all.filter(|denial| chosen.as_ref().is_none_or(|name| *name == denial.policy)).map(|denial| {
        let wait = if denial.retry_after_ms > 0 { time(denial.retry_after_ms as f64) } else { "–".into() };
        Row::new([
            Cell::from(clock(denial.at)).fg(DIM),
            Cell::from(denial.policy.clone()),
            Cell::from(denial.axis.clone()).fg(BAD),
            Cell::from(format!("{} of {} left", short(denial.remaining as f64), short(denial.limit as f64))),
            Cell::from(format!("wait {wait}")),
            Cell::from(denial.key.clone()),
        ])
    });
    let widths = [
        Constraint::Length(8),
        Constraint::Length(16),
        Constraint::Length(11),
        Constraint::Length(18),
        Constraint::Length(12),
        Constraint::Fill(1),
    ];
    Table::new(rows, widths).block(Block::bordered().title(" Denials ").border_style(DIM))
}

fn help(frame: &mut Frame<'_>) {
    let lines = [
        "↑ ↓ k j      select a policy; the first line shows all",
        "PgUp PgDn    move by ten lines",
        "Home End     first and last line",
        "p space      pause",
        "? Esc        close the help",
        "q ctrl-c     quit",
        "",
        "denied, calls  since the server started",
        "p50, p99       over the last minute",
        "calls          store calls per decision",
        "shadow         would be denied by a policy in shadow mode",
    ];
    let area = frame.area().centered(Constraint::Length(64), Constraint::Length(lines.len() as u16 + 2));
    frame.render_widget(Clear, area);
    let block = Block::bordered().title(" Help ").border_style(MARK);
    frame.render_widget(Paragraph::new(lines.map(Line::from).to_vec()).block(block), area);
}
