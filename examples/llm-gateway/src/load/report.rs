//! What was seen, judged by what is promised.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use serde::Serialize;

use super::Plan;
use super::client::Counts;
use crate::gate::Meter;
use crate::headers::Rooms;
use crate::ledger::GatewayStats;
use crate::mock::MockStats;
use crate::tenants::Tenant;

/// What one meter did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// Its name.
    pub meter: &'static str,
    /// Tokens a window.
    pub capacity: u64,
    /// Tokens a chunk.
    pub chunk: u64,
    /// Streams at a time.
    pub streams: u64,
    /// Each window that was looked at.
    pub windows: Vec<WindowFigures>,
    /// The part of the capacity that was passed on, on average.
    pub utilisation: f64,
    /// The most that was passed on in a window beyond the capacity.
    pub overshoot: u64,
    /// Requests that began.
    pub admitted: u64,
    /// Requests that were denied.
    pub denied: u64,
    /// Streams that were cut.
    pub cut: u64,
    /// Streams that callers left.
    pub left: u64,
    /// Tokens that callers received.
    pub received: u64,
    /// The largest part of the fairness bound that any two tenants were apart; not judged where nobody shares by weight.
    pub unfairness: f64,
    /// What was promised and does not hold.
    pub broken: Vec<String>,
}

/// What happened in one window.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WindowFigures {
    /// Tokens that it was charged with.
    pub charged: u64,
    /// Tokens that were passed on while it lasted.
    pub delivered: u64,
    /// Tokens that the model generated while it lasted.
    pub generated: u64,
    /// Requests that began.
    pub admitted: u64,
    /// Requests that were denied.
    pub denied: u64,
    /// Streams that were cut.
    pub cut: u64,
    /// What each tenant was charged.
    pub tenants: BTreeMap<String, u64>,
}

/// All that was seen of one run.
pub(super) struct Seen<'a> {
    pub(super) meter: Meter,
    /// When the first window began.
    pub(super) first: u64,
    pub(super) books: &'a [GatewayStats],
    /// What the store says is left, once all was settled, if that was still in the last window.
    pub(super) rooms: Option<&'a BTreeMap<String, Rooms>>,
    pub(super) model: &'a MockStats,
    pub(super) counts: &'a Counts,
}

/// Adds up what was seen, and judges it.
pub(super) fn judged(plan: &Plan, seen: &Seen<'_>) -> Figures {
    let ends: Vec<u64> = (1..=plan.windows).map(|nth| seen.first + nth * plan.window_ms).collect();
    let windows: Vec<WindowFigures> = ends.iter().map(|&ends| window(seen, ends)).collect();
    let sum = |of: fn(&WindowFigures) -> u64| windows.iter().map(of).sum::<u64>();
    let read = |count: &std::sync::atomic::AtomicU64| count.load(Relaxed);
    let mut figures = Figures {
        meter: seen.meter.label(),
        capacity: plan.capacity,
        chunk: plan.chunk,
        streams: plan.streams as u64,
        utilisation: sum(|w| w.delivered) as f64 / (plan.capacity * plan.windows) as f64,
        overshoot: windows.iter().map(|w| w.delivered.saturating_sub(plan.capacity)).max().unwrap_or(0),
        admitted: sum(|w| w.admitted),
        denied: sum(|w| w.denied),
        cut: sum(|w| w.cut),
        left: read(&seen.counts.left),
        received: read(&seen.counts.received),
        unfairness: windows.iter().map(|window| unfairness(plan, window)).fold(0.0, f64::max),
        windows,
        broken: Vec::new(),
    };
    figures.broken = broken(plan, seen, &figures);
    figures
}

fn window(seen: &Seen<'_>, ends: u64) -> WindowFigures {
    let mut all = WindowFigures {
        generated: seen.model.windows.get(&ends).copied().unwrap_or(0),
        ..Default::default()
    };
    for (tenant, stats) in seen.books.iter().filter_map(|books| books.windows.get(&ends)).flatten() {
        let charged = u64::try_from(stats.charged).unwrap_or(0);
        all.charged += charged;
        all.delivered += stats.delivered;
        all.admitted += stats.admitted;
        all.denied += stats.denied;
        all.cut += stats.cut;
        *all.tenants.entry(tenant.clone()).or_default() += charged;
    }
    all
}

/// How far two tenants that always wanted more were apart, as a part of what is promised: |aᵢ/wᵢ − aⱼ/wⱼ| ≤ e·(1/wᵢ + 1/wⱼ),
/// where a tenant may be off what it is due by e = q + n·(2q + 1): by an ask of its own, and by what n places fetch.
fn unfairness(plan: &Plan, window: &WindowFigures) -> f64 {
    let tenants = plan.tenants();
    let wanting: Vec<&Tenant> = tenants.iter().filter(|tenant| !plan.is_modest(tenant)).collect();
    let share = |tenant: &Tenant| {
        window.tenants.get(&tenant.name).copied().unwrap_or(0) as f64 / tenant.weight as f64
    };
    let (quantum, places) = (plan.quantum.max(plan.chunk) as f64, plan.gateways as f64);
    let off = quantum + places * (2.0 * quantum + 1.0);
    let pairs = wanting.iter().flat_map(|one| wanting.iter().map(move |other| (one, other)));
    let apart = pairs.map(|(one, other)| {
        (share(one) - share(other)).abs() / (off * (1.0 / one.weight as f64 + 1.0 / other.weight as f64))
    });
    apart.fold(0.0, f64::max)
}

fn broken(plan: &Plan, seen: &Seen<'_>, figures: &Figures) -> Vec<String> {
    let mut broken = Vec::new();
    let mut must = |holds: bool, what: String| {
        if !holds {
            broken.push(format!("{}: {what}", figures.meter));
        }
    };
    must(seen.counts.failed.load(Relaxed) == 0, "a caller got neither an answer nor a denial".into());
    if seen.meter != Meter::Stream {
        return broken;
    }
    let edge = plan.chunk - 1;
    let in_hand = plan.streams as u64 * plan.chunk;
    for (nth, window) in figures.windows.iter().enumerate() {
        let WindowFigures { charged, generated, .. } = *window;
        must(
            charged <= plan.capacity + edge,
            format!("window {nth}: {charged} charged of {}", plan.capacity),
        );
        let most = plan.capacity + in_hand;
        must(generated <= most, format!("window {nth}: {generated} generated, at most {most}"));
        for tenant in plan.tenants() {
            let (charged, tpm) = (window.tenants.get(&tenant.name).copied().unwrap_or(0), tenant.tpm);
            must(charged <= tpm + edge, format!("window {nth}: {} charged {charged} of {tpm}", tenant.name));
        }
    }
    must(figures.unfairness <= 1.0, format!("tenants are {:.2} of the bound apart", figures.unfairness));
    must(seen.rooms.is_some(), "the last window was over before all was settled".into());
    let last = figures.windows.last().map(|window| &window.tenants);
    for (tenant, rooms) in seen.rooms.into_iter().flatten() {
        let ours = last.and_then(|last| last.get(tenant)).copied().unwrap_or(0);
        let store = rooms.tokens.map_or(0, |room| room.limit - room.remaining);
        let limit = rooms.tokens.map_or(0, |room| room.limit);
        must(store == ours.min(limit), format!("{tenant}: {ours} passed on, and the store has {store}"));
    }
    broken
}

/// What the baselines must show, or the comparison shows nothing.
pub(super) fn shown(all: &[Figures]) -> Vec<String> {
    let of = |meter: Meter| all.iter().find(|figures| figures.meter == meter.label());
    let (Some(stream), Some(reserve), Some(count)) =
        (of(Meter::Stream), of(Meter::Reserve), of(Meter::Count))
    else {
        return Vec::new();
    };
    let mut missing = Vec::new();
    if reserve.utilisation >= stream.utilisation {
        missing.push("reserve: uses as much as stream does".to_owned());
    }
    if count.overshoot <= stream.overshoot + stream.chunk {
        missing.push("count: is not over its budget".to_owned());
    }
    missing
}

/// One line for each meter.
pub(super) fn table(plan: &Plan, all: &[Figures]) -> String {
    let mut table = format!(
        "{} tokens a window of {} ms, {} windows; {} streams of {} tenants at {} gateways, at most {} tokens each, by {}\n\n\
         {:<9}{:>8}{:>11}{:>12}{:>12}{:>10}{:>9}{:>8}{:>12}\n",
        plan.capacity,
        plan.window_ms,
        plan.windows,
        plan.streams,
        plan.tenants().len(),
        plan.gateways,
        plan.max_tokens,
        plan.chunk,
        "meter",
        "used",
        "over, most",
        "charged max",
        "made, max",
        "admitted",
        "denied",
        "cut",
        "unfairness"
    );
    for figures in all {
        let most = |of: fn(&WindowFigures) -> u64| figures.windows.iter().map(of).max().unwrap_or(0);
        let _ = writeln!(
            table,
            "{:<9}{:>8.4}{:>11}{:>12}{:>12}{:>10}{:>9}{:>8}{:>12.3}",
            figures.meter,
            figures.utilisation,
            figures.overshoot,
            most(|w| w.charged),
            most(|w| w.generated),
            figures.admitted,
            figures.denied,
            figures.cut,
            figures.unfairness,
        );
    }
    table
}
