//! Results of a run, checked against the guarantees.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use serde::Serialize;
use throttlekit::Axis;

use super::Plan;
use super::client::{Counts, prompt};
use crate::mock::MockStats;
use llm_gateway::headers::Allowances;
use llm_gateway::ledger::{GatewayStats, TenantStats};
use llm_gateway::metering::Meter;
use llm_gateway::tenants::Tenant;

/// Results of one metering mode.
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
    /// Each whole window.
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
    /// The largest part of the fairness bound that any two tenants were apart of whom both wanted more; not judged where
    /// nobody shares by weight.
    pub unfairness: f64,
    /// Number of pairs of tenants, over all windows, that were compared.
    pub pairs: u64,
    /// Set if the window after those lasted until everything was settled, so that the store could be read.
    pub in_time: bool,
    /// Guarantees that do not hold.
    pub broken: Vec<String>,
}

/// Results of one window.
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
    /// Of the tokens that it was charged with, those that may have been charged to the window before.
    pub straddling: BTreeMap<String, u64>,
    /// Tokens charged to each tenant.
    pub tenants: BTreeMap<String, u64>,
    /// Number of denials and cuts of each tenant. A tenant without any may have wanted no more.
    pub refused: BTreeMap<String, u64>,
}

/// All that was seen of one run.
pub(super) struct Seen<'a> {
    pub(super) meter: Meter,
    /// When the first window began.
    pub(super) first: u64,
    pub(super) books: &'a [GatewayStats],
    /// Units left in the next window, by the store, once everything was settled; if that window lasted until then.
    pub(super) allowances: Option<&'a BTreeMap<String, Allowances>>,
    /// Requests in flight of each tenant, by the store, once everything was settled.
    pub(super) slots: &'a BTreeMap<String, Option<u32>>,
    pub(super) model: &'a MockStats,
    pub(super) counts: &'a Counts,
}

/// Adds up what was seen, and judges it.
pub(super) fn judged(plan: &Plan, seen: &Seen<'_>) -> Figures {
    let nth_window = |nth: u64| window(seen, seen.first + nth * plan.window_ms);
    let windows: Vec<WindowFigures> = (1..=plan.windows).map(nth_window).collect();
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
        unfairness: windows.iter().flat_map(|window| apart(plan, window)).fold(0.0, f64::max),
        pairs: windows.iter().map(|window| apart(plan, window).len() as u64).sum(),
        windows,
        in_time: seen.allowances.is_some(),
        broken: Vec::new(),
    };
    figures.broken = broken(plan, seen, &figures, &nth_window(plan.windows + 1));
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
        *all.straddling.entry(tenant.clone()).or_default() += stats.straddling;
        *all.tenants.entry(tenant.clone()).or_default() += charged;
        *all.refused.entry(tenant.clone()).or_default() += stats.denied + stats.cut;
    }
    all
}

/// Returns how far tenants that wanted more were apart, as a part of the bound: |aᵢ/wᵢ − aⱼ/wⱼ| ≤ e·(1/wᵢ + 1/wⱼ). A
/// tenant may be off what it is due by e = q + n·(2q + 1): by the largest ask q, and by what that makes at each of n places.
fn apart(plan: &Plan, window: &WindowFigures) -> Vec<f64> {
    let tenants = plan.tenants();
    let wants_more = |tenant: &&Tenant| !plan.is_bound(tenant) && window.refused.get(&tenant.name) > Some(&0);
    let wanting: Vec<&Tenant> = tenants.iter().filter(wants_more).collect();
    let charged = |tenant: &Tenant| window.tenants.get(&tenant.name).copied().unwrap_or(0) as f64;
    let (ask, places) = (plan.ask_max() as f64, plan.gateways as f64);
    let off = ask + places * (2.0 * ask + 1.0);
    let apart = |one: &Tenant, other: &Tenant| {
        let [w, v] = [one.weight as f64, other.weight as f64];
        (charged(one) / w - charged(other) / v).abs() / (off * (1.0 / w + 1.0 / v))
    };
    let pairs = wanting
        .iter()
        .enumerate()
        .flat_map(|(nth, one)| wanting[..nth].iter().map(|other| apart(one, other)));
    pairs.collect()
}

fn broken(plan: &Plan, seen: &Seen<'_>, figures: &Figures, last: &WindowFigures) -> Vec<String> {
    let mut broken = Vec::new();
    let mut must = |holds: bool, what: String| {
        if !holds {
            broken.push(format!("{}: {what}", figures.meter));
        }
    };
    must(seen.counts.failed.load(Relaxed) == 0, "a caller got neither a response nor a denial".into());
    let held = seen.slots.iter().filter(|(_, held)| **held != Some(0)).count();
    must(held == 0, format!("{held} tenants have slots that nobody holds: {:?}", seen.slots));
    heard(plan, seen, &mut must);
    if seen.meter != Meter::Stream {
        return broken;
    }
    for axis in [Axis::Concurrency, Axis::Rate, Axis::Cost, Axis::Fairness].map(Axis::label) {
        let denied = in_all(seen, |stats| stats.denied.get(axis).copied().unwrap_or(0));
        must(denied > 0, format!("{axis} has denied no request"));
    }
    let (used, at_least) = (figures.utilisation, plan.used_min());
    must(used >= at_least, format!("{used:.4} of the capacity used, at least {at_least}"));
    let edge = plan.chunk - 1;
    let in_hand = plan.streams as u64 * plan.chunk;
    let windows: Vec<&WindowFigures> = figures.windows.iter().chain([last]).collect();
    for (nth, window) in windows.iter().enumerate() {
        // Of the next window, what may belong to this one counts here as well.
        let next = windows.get(nth + 1).map(|next| &next.straddling);
        let late = |tenant: &str| next.and_then(|next| next.get(tenant)).copied().unwrap_or(0);
        let late_in_all: u64 = next.into_iter().flat_map(BTreeMap::values).sum();
        let (charged, generated) = (window.charged + late_in_all, window.generated);
        must(
            charged <= plan.capacity + edge,
            format!("window {nth}: {charged} charged of {}", plan.capacity),
        );
        let most = plan.capacity + in_hand;
        must(generated <= most, format!("window {nth}: {generated} generated, at most {most}"));
        for Tenant { name, tpm, .. } in plan.tenants() {
            let charged = window.tenants.get(&name).copied().unwrap_or(0) + late(&name);
            must(charged <= tpm + edge, format!("window {nth}: {name} charged {charged} of {tpm}"));
        }
    }
    must(figures.unfairness <= 1.0, format!("tenants are {:.2} of the bound apart", figures.unfairness));
    must(figures.pairs > 0, "no two tenants wanted more in the same window".into());
    must(seen.allowances.is_some(), "the last window was over before all was settled".into());
    for (tenant, allowances) in seen.allowances.into_iter().flatten() {
        let ours = last.tenants.get(tenant).copied().unwrap_or(0);
        let before = last.straddling.get(tenant).copied().unwrap_or(0);
        let store =
            allowances.tokens.map_or(0, |allowance| allowance.limit.saturating_sub(allowance.remaining));
        let limit = allowances.tokens.map_or(0, |allowance| allowance.limit);
        let agrees = ours.saturating_sub(before).min(limit) <= store && store <= ours.min(limit);
        must(agrees, format!("{tenant}: {ours} passed on, {before} at the edge, and the store has {store}"));
    }
    broken
}

/// Checks that callers received what the gateways passed on and denied.
fn heard(plan: &Plan, seen: &Seen<'_>, must: &mut impl FnMut(bool, String)) {
    let read = |count: &std::sync::atomic::AtomicU64| count.load(Relaxed);
    let counts = seen.counts;
    let heard = read(&counts.received_ended) + read(&counts.ended) * prompt();
    let passed_on = in_all(seen, |stats| stats.delivered) - in_all(seen, |stats| stats.delivered_gone);
    // Who left may have done so when all was said, so that nobody noticed.
    let left = read(&counts.left) + read(&counts.unheard);
    let unnoticed = left.saturating_sub(in_all(seen, |stats| stats.gone));
    let most = heard + unnoticed * (plan.max_tokens + prompt());
    let agrees = heard <= passed_on && passed_on <= most;
    must(agrees, format!("callers received {heard}, {passed_on} were passed on, {unnoticed} left unnoticed"));
    let (told, denied) = (read(&counts.denied), in_all(seen, |stats| stats.denied.values().sum()));
    let unheard = read(&counts.unheard);
    let agrees = told <= denied && denied <= told + unheard;
    must(
        agrees,
        format!("callers were denied {told} times, gateways counted {denied}, {unheard} not received"),
    );
}

/// A sum over all tenants at all gateways.
fn in_all(seen: &Seen<'_>, of: impl Fn(&TenantStats) -> u64) -> u64 {
    seen.books.iter().flat_map(|books| books.tenants.values()).map(of).sum()
}

/// Checks the baselines, without which the comparison shows nothing.
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
        "{} tokens per window of {} ms, {} windows; {} streams of {} tenants at {} gateways, at most {} \
         tokens each, by {}\n\n\
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::*;
    use llm_gateway::headers::Allowance;
    use llm_gateway::ledger::WindowStats;

    const ENDS: u64 = 20_000;
    const LONG: &str = "--windows 1 --window-ms 10000 --capacity 48000 --chunk 8 --streams 64";

    fn plan_of(flags: &str) -> Plan {
        Plan::parse_from(["load"].into_iter().chain(flags.split(' ')))
    }

    fn plan() -> Plan {
        plan_of(LONG)
    }

    /// One window in which every tenant got what it is due, at one gateway.
    fn due(plan: &Plan) -> BTreeMap<String, u64> {
        let weights: u64 = plan.tenants().iter().map(|tenant| tenant.weight).sum();
        let due = |tenant: &Tenant| (plan.capacity * tenant.weight / weights).min(tenant.tpm);
        plan.tenants().iter().map(|tenant| (tenant.name.clone(), due(tenant))).collect()
    }

    /// A last window in which everyone got 200, and the store has counted `store` for `t3`.
    fn judge(charged: &BTreeMap<String, u64>, generated: u64, store: u64) -> Vec<String> {
        judge_all(&plan(), charged, generated, store, &Told { denied: 4, ..Default::default() })
    }

    /// Totals of callers, gateways and slots.
    #[derive(Default)]
    struct Told {
        heard: u64,
        passed_on: u64,
        denied: u64,
        held: u32,
    }

    fn judge_all(
        plan: &Plan,
        charged: &BTreeMap<String, u64>,
        generated: u64,
        store: u64,
        told: &Told,
    ) -> Vec<String> {
        let stats = |tokens: u64| WindowStats {
            charged: tokens as i64,
            delivered: tokens,
            denied: 1,
            ..Default::default()
        };
        let window = charged.iter().map(|(tenant, &tokens)| (tenant.clone(), stats(tokens))).collect();
        let last = plan.tenants().into_iter().map(|tenant| (tenant.name, stats(200))).collect();
        let windows = BTreeMap::from([(ENDS, window), (ENDS + plan.window_ms, last)]);
        let denied = [Axis::Concurrency, Axis::Rate, Axis::Cost, Axis::Fairness];
        let denied = denied.map(|axis| (axis.label().to_owned(), 1)).into();
        let stats = TenantStats { denied, delivered: told.passed_on, ..Default::default() };
        let books = [GatewayStats { windows, tenants: [("t0".to_owned(), stats)].into() }];
        let allowance = |tenant: &Tenant| Allowance {
            limit: tenant.tpm,
            remaining: tenant.tpm - if tenant.name == "t3" { store } else { 200 },
            reset: Duration::ZERO,
        };
        let allowances = plan
            .tenants()
            .into_iter()
            .map(|t| (t.name.clone(), Allowances { tokens: Some(allowance(&t)), requests: None }));
        let (allowances, counts) = (allowances.collect(), Counts::default());
        counts.received_ended.store(told.heard, Relaxed);
        counts.denied.store(told.denied, Relaxed);
        let slots = BTreeMap::from([("t0".to_owned(), Some(told.held))]);
        let model = MockStats { windows: BTreeMap::from([(ENDS, generated)]), ..Default::default() };
        let first = ENDS - plan.window_ms;
        let seen = Seen {
            meter: Meter::Stream,
            first,
            books: &books,
            allowances: Some(&allowances),
            slots: &slots,
            model: &model,
            counts: &counts,
        };
        judged(plan, &seen).broken
    }

    fn with(mut tokens: BTreeMap<String, u64>, tenant: &str, more: u64) -> BTreeMap<String, u64> {
        *tokens.entry(tenant.to_owned()).or_default() += more;
        tokens
    }

    #[test]
    fn what_is_promised_passes_and_a_token_beyond_does_not() {
        let due = due(&plan());
        let total: u64 = due.values().sum();
        assert_eq!(judge(&due, 48_000, 200), [""; 0]);
        let full = with(due.clone(), "t0", 48_000 + 7 - total);
        assert_eq!(judge(&full, 48_000, 200), [""; 0], "the chunk that crosses the edge");
        let over = with(full, "t0", 1);
        assert_eq!(judge(&over, 48_000, 200).len(), 1);
        assert_eq!(judge(&due, 48_000 + 64 * 8, 200), [""; 0]);
        assert_eq!(judge(&due, 48_000 + 64 * 8 + 1, 200).len(), 1, "more was generated than was in hand");
        let modest = with(due.clone(), "t7", 8);
        assert_eq!(judge(&modest, 48_000, 200).len(), 1, "beyond a tenant's own budget");
    }

    #[test]
    fn a_store_that_has_counted_otherwise_is_found() {
        let due = due(&plan());
        assert_eq!(judge(&due, 0, 201).len(), 1);
    }

    #[test]
    fn shares_that_do_not_go_by_weight_are_found_in_a_long_run_and_in_a_short_one() {
        for flags in [LONG, Plan::SHORT] {
            let plan = plan_of(flags);
            let each = plan.capacity / plan.tenants().len() as u64;
            let even =
                plan.tenants().iter().map(|tenant| (tenant.name.clone(), tenant.tpm.min(each))).collect();
            let found = judge_all(&plan, &even, 0, 200, &Told { denied: 4, ..Default::default() });
            assert!(found.len() == 1 && found[0].contains("of the bound apart"), "{found:?}");
        }
    }

    #[test]
    fn callers_that_heard_otherwise_and_slots_that_stay_held_are_found() {
        let plan = plan();
        let judge = |heard, passed_on, denied, held| {
            judge_all(&plan, &due(&plan), 0, 200, &Told { heard, passed_on, denied, held }).len()
        };
        assert_eq!(judge(500, 500, 4, 0), 0);
        assert_eq!([judge(500, 501, 4, 0), judge(501, 500, 4, 0)], [1, 1]);
        assert_eq!([judge(500, 500, 3, 0), judge(500, 500, 5, 0), judge(500, 500, 4, 1)], [1, 1, 1]);
    }

    #[test]
    fn a_model_that_stands_idle_is_found() {
        let half = due(&plan()).into_iter().map(|(tenant, tokens)| (tenant, tokens / 2)).collect();
        assert_eq!(judge(&half, 0, 200).len(), 1);
    }
}
