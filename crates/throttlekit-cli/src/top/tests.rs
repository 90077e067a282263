//! Tests of the screen and its inputs, without a terminal.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use throttlekit_proto::v1::{
    AxisCount, ConfigHealth, DenialEvent, EngineHealth, FairShare, GuardSummary, KeyCount, LatencySummary,
    MonitorMeta, PolicySummary, Snapshot,
};

use super::board::{Board, HISTORY, Input, Press};
use super::pty::Pty;
use super::screen::in_terminal;
use super::{render, svg, text, units};

/// Creates a snapshot at this time with these totals of `api`; those of `chat` do not change.
fn snapshot(at_ms: i64, allowed: i64, denied: i64) -> Snapshot {
    let api = PolicySummary {
        name: "api".into(),
        kind: "rate".into(),
        allowed,
        denied,
        engine_calls: (allowed + denied) / 2,
        shadow_denied: 7,
        latency: Some(LatencySummary { p50_ms: 0.25, p99_ms: 1.5, n: 9, ..Default::default() }),
        top_denied: vec![KeyCount { key: "mallory".into(), count: 2_500 }],
        top_requested: vec![KeyCount { key: "alice".into(), count: 4_000 }],
        denied_by_axis: vec![AxisCount { axis: "rate".into(), count: denied }],
        ..Default::default()
    };
    let chat = PolicySummary {
        name: "chat".into(),
        kind: "admission".into(),
        allowed: 10,
        fair_shares: vec![FairShare { tenant: "acme".into(), used: 40, guaranteed: 50, weight: 3 }],
        ..Default::default()
    };
    let guard = GuardSummary {
        name: "chat".into(),
        limit: 8,
        inflight: 5,
        share: 8.0,
        l_global: 32,
        nodes: 4,
        fenced: true,
    };
    let denial = DenialEvent {
        at: 45_296_000,
        policy: "api".into(),
        key: "mallory".into(),
        axis: "rate".into(),
        limit: 100,
        remaining: 0,
        retry_after_ms: 250,
        limit_name: "daily".into(),
    };
    Snapshot {
        meta: Some(MonitorMeta { generated_at: at_ms, node_id: "n1".into(), ..Default::default() }),
        policies: vec![api, chat],
        guards: vec![guard],
        recent_denials: vec![denial],
        raw_json: String::new(),
        engine: Some(EngineHealth {
            kind: "redis".into(),
            serving: true,
            calls: 1_200,
            last_error: "2026-11-16T07:05:09Z the store did not respond within 100ms".into(),
            ..Default::default()
        }),
        config: Some(ConfigHealth { version_hash: "c0ffee".into(), rejected: 1, ..Default::default() }),
    }
}

fn seen(at_ms: i64, allowed: i64, denied: i64) -> Input {
    Input::Seen(Box::new(snapshot(at_ms, allowed, denied)))
}

fn board() -> Board {
    let mut board = Board::new("host:1");
    board.take(seen(1_000, 1_000, 0));
    board.take(seen(1_500, 1_600, 200));
    board
}

fn screen(board: &Board) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(128, 40)).unwrap();
    terminal.draw(|frame| render::draw(frame, board)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    (0..40).map(|row| (0..128).map(|column| buffer[(column, row)].symbol()).collect()).collect()
}

fn line<'a>(screen: &'a [String], with: &str) -> &'a str {
    screen.iter().find(|line| line.contains(with)).unwrap_or_else(|| panic!("no {with} in {screen:#?}"))
}

#[test]
fn rates_are_what_came_between_two_snapshots_by_the_servers_clock() {
    let mut board = board();
    assert_eq!((board.total().allowed, board.total().denied), (1_200.0, 400.0));
    // The server restarted: everything it has counted since is new.
    board.take(seen(2_500, 30, 10));
    assert_eq!((board.total().allowed, board.total().denied), (30.0, 10.0));
    assert_eq!(board.curve(99), [1_600, 40]);
}

#[test]
fn a_curve_keeps_its_last_points_and_no_more() {
    let mut board = Board::new("host:1");
    (0..=HISTORY as i64 + 5).for_each(|at| board.take(seen(at * 1_000, at * at, 0)));
    let last = 2 * (HISTORY as u64 + 5) - 1;
    assert_eq!(board.curve(usize::MAX).len(), HISTORY);
    assert_eq!(board.curve(2), [last - 2, last]);
}

#[test]
fn whoever_is_chosen_stays_so_when_lines_move() {
    let mut board = board();
    board.take(Input::Press(Press::Move(2)));
    assert_eq!(board.chosen().unwrap().name, "chat");
    let mut next = snapshot(2_000, 0, 0);
    next.policies.insert(0, PolicySummary { name: "aaa".into(), ..Default::default() });
    board.take(Input::Seen(Box::new(next)));
    assert_eq!((board.chosen().unwrap().name.as_str(), board.line), ("chat", 3));
    board.take(Input::Press(Press::Move(isize::MAX)));
    assert_eq!(board.line, 3);
    board.take(Input::Press(Press::Move(-10)));
    assert!(board.chosen().is_none());
}

#[test]
fn a_pause_holds_the_picture_and_not_the_knowledge_that_the_server_is_away() {
    let mut board = board();
    board.take(Input::Press(Press::Pause));
    board.take(seen(9_000, 9_999, 9_999));
    assert_eq!(board.now.policies[0].allowed, 1_600);
    board.take(Input::Away("gone".into()));
    let since = board.away.clone().unwrap().0;
    board.take(Input::Away("still gone".into()));
    assert_eq!(board.away, Some((since, "still gone".into())));
    assert!(line(&screen(&board), "UNAVAILABLE since").contains("still gone"));
    board.take(seen(9_500, 1, 1));
    assert_eq!(board.away, None);
    assert!(line(&screen(&board), "live").contains("PAUSED"));
}

#[test]
fn escape_closes_the_help_first_and_then_ends() {
    let mut board = board();
    board.take(Input::Press(Press::Help));
    assert!(line(&screen(&board), "select a policy; the first").contains("↑ ↓"));
    board.take(Input::Press(Press::Back));
    assert!(!board.help && !board.over());
    board.take(Input::Press(Press::Back));
    assert!(board.over());
}

#[test]
fn the_picture_shows_rates_latency_axes_keys_slots_health_and_denials() {
    let screen = screen(&board());
    assert!(line(&screen, "ThrottleKit").contains("host:1  node n1  live"));
    assert!(line(&screen, "all policies").contains("1.20k/s allowed  400/s denied"));
    let api = line(&screen, " rate  ");
    for part in ["api", "1.20k", "400", "11.1%", "250µs", "1.50ms", "0.50", "7"] {
        assert!(api.contains(part), "{part} in {api}");
    }
    assert!(line(&screen, "store  redis").contains("responding"));
    assert!(line(&screen, "config c0ffee").contains("ago"));
    assert!(line(&screen, "1 rejected").contains("0 reloads"));
    assert!(line(&screen, "rate        █").contains(" 200"));
    assert!(line(&screen, "alice").contains("4.00k"));
    assert!(line(&screen, "chat             5 / 8").contains("of 32 at 4 FENCED"));
    assert!(line(&screen, "acme").contains("40 / 50 ×3"));
    assert!(line(&screen, "07:05:09").contains("did not respond within 100ms"));
    let denial = line(&screen, "12:34:56");
    assert!(denial.contains("api") && denial.contains("0 of 100 left") && denial.contains("wait 250ms"));
    assert!(denial.contains("mallory"));
}

#[test]
fn the_axis_that_denied_most_has_the_longest_bar() {
    let mut board = board();
    let mut next = snapshot(2_000, 0, 100);
    next.policies[1].denied_by_axis = vec![AxisCount { axis: "concurrency".into(), count: 50 }];
    board.take(Input::Seen(Box::new(next)));
    let screen = screen(&board);
    let bar = |axis: &str| line(&screen, axis).matches('█').count();
    assert_eq!((bar("rate        "), bar("concurrency"), bar("cost")), (20, 10, 0));
}

#[test]
fn any_size_of_screen_is_drawn() {
    for (width, height) in [(1, 1), (20, 5), (60, 16), (300, 90)] {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let mut board = board();
        board.take(Input::Press(Press::Help));
        terminal.draw(|frame| render::draw(frame, &board)).unwrap();
        assert!(terminal.backend().buffer().area.width == width);
    }
}

#[test]
fn numbers_and_times_are_short() {
    let shorts = [
        (0.0, "0"),
        (0.44, "0.4"),
        (999.0, "999"),
        (1_000.0, "1.00k"),
        (12_345.0, "12.3k"),
        (4_560_000.0, "4.56M"),
    ];
    shorts.into_iter().for_each(|(count, told)| assert_eq!(units::short(count), told));
    let times = [
        (0.0, "–"),
        (0.0071, "7.1µs"),
        (0.25, "250µs"),
        (1.24, "1.24ms"),
        (250.0, "250ms"),
        (3_000.0, "3.0s"),
    ];
    times.into_iter().for_each(|(ms, told)| assert_eq!(units::time(ms), told));
    assert_eq!(
        (units::ago(59_999), units::ago(60_000), units::ago(7_300_000)),
        ("59s".into(), "1m".into(), "2h".into())
    );
    assert_eq!(units::clock(45_296_000), "12:34:56");
}

#[test]
fn plain_text_has_a_line_for_each_thing() {
    let plain = text::plain(&snapshot(5, 6, 7));
    for wanted in [
        "server node=\"n1\" at=5",
        "store kind=redis serving=true calls=1200 outages=0 in_flight=0 last_error=\"2026-11-16T07:05:09Z the store did not respond within 100ms\"",
        "share policy=\"chat\" used=40 guaranteed=50 weight=3 tenant=\"acme\"",
        "policy name=\"api\" kind=rate allowed=6 denied=7 shadow_denied=7 limit=0 engine_calls=6 p50_ms=0.2500 p99_ms=1.5000",
        "axis policy=\"api\" axis=rate denied=7",
        "key policy=\"api\" denied=2500 key=\"mallory\"",
        "slots policy=\"chat\" in_flight=5 limit=8 share=8 ceiling=32 nodes=4 fenced=true",
        "denial at=45296000 policy=\"api\" axis=rate limit_name=\"daily\" retry_after_ms=250 key=\"mallory\"",
    ] {
        assert!(plain.lines().any(|line| line == wanted), "{wanted} in\n{plain}");
    }
}

#[test]
fn a_picture_holds_the_text_and_escapes_it() {
    let mut odd = Board::new("a<b>&c");
    odd.take(seen(1, 1, 1));
    let mut terminal = Terminal::new(TestBackend::new(128, 40)).unwrap();
    terminal.draw(|frame| render::draw(frame, &odd)).unwrap();
    let picture = svg::svg(terminal.backend().buffer());
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    assert!(picture.contains("a&lt;b&gt;&amp;c") && picture.contains("Denied by axis"));
    assert!(!picture.contains("a<b>"));
}

#[test]
#[ignore = "panics in the terminal of the test below"]
fn panics_while_it_has_the_terminal() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let panics = in_terminal(async |terminal| {
        terminal.draw(|frame| frame.render_widget("drawn", frame.area()))?;
        panic!("on purpose")
    });
    runtime.block_on(panics).unwrap();
}

#[test]
fn a_panic_gives_the_terminal_back() {
    let this = std::env::current_exe().unwrap();
    let this = this.to_str().unwrap();
    let test = "top::tests::panics_while_it_has_the_terminal";
    let mut pty = Pty::run(this, &["--exact", test, "--ignored", "--nocapture"]);
    pty.wait_for("drawn");
    pty.wait_for("on purpose");
    assert!(!pty.ended_well());
    pty.assert_given_back();
}
