//! The measurements of a run after its warm-up.

use std::time::Duration;

use crate::arrivals::{self, Arrival};
use crate::ideal;
use crate::run::Calls;
use crate::scenario::{DRAIN, MEASURED, PERIOD, Scenario, WARM_UP};

pub struct Measure {
    /// Calls that the provider received.
    pub calls: usize,
    /// Part of them that it refused.
    pub refused: f64,
    /// Units that it admitted, relative to its limit.
    pub utilization: f64,
    /// Wait of a call until it was sent for the last time, in seconds.
    pub p50: f64,
    pub p99: f64,
    /// The last one, relative to that of an ideal queue.
    pub to_ideal: f64,
    /// Calls that did not end.
    pub not_done: usize,
}

impl Measure {
    pub fn of(scenario: &Scenario, processes: usize, calls: &Calls) -> Self {
        let (from, until) = (PERIOD * WARM_UP, PERIOD * (WARM_UP + MEASURED));
        let is_measured = |at: Duration| from <= at && at < until;
        let served: Vec<_> = calls.served.iter().filter(|served| is_measured(served.at)).collect();
        let refused = served.iter().filter(|served| !served.admitted).count();
        let admitted = served.iter().filter(|served| served.admitted);
        let units: u64 = admitted.map(|served| scenario.units(served.tokens)).sum();

        let arrivals = arrivals::all(processes);
        let chosen = |arrival: &Arrival| is_measured(arrival.at);
        let ideal = ideal::waits(scenario, &arrivals);
        let ideal = arrivals.iter().zip(ideal).filter(|(arrival, _)| chosen(arrival)).map(|(_, wait)| wait);
        let done: Vec<_> = calls.done.iter().filter(|done| is_measured(done.arrived)).collect();
        let not_done = arrivals.iter().filter(|arrival| chosen(arrival)).count() - done.len();
        // Those that did not end have waited until the end of the run.
        let given_up = std::iter::repeat_n(DRAIN, not_done);
        let ours: Vec<Duration> =
            done.iter().map(|done| done.sent.saturating_sub(done.arrived)).chain(given_up).collect();
        let p99 = percentile(&ours, 99);
        Self {
            calls: served.len(),
            refused: refused as f64 / served.len().max(1) as f64,
            utilization: units as f64 / capacity(scenario, from, until),
            p50: percentile(&ours, 50),
            p99,
            to_ideal: p99 / percentile(&ideal.collect::<Vec<_>>(), 99),
            not_done,
        }
    }
}

/// Returns the units that the provider allows in this time.
fn capacity(scenario: &Scenario, from: Duration, until: Duration) -> f64 {
    const STEP: Duration = Duration::from_millis(100);
    let steps = (until - from).as_millis() / STEP.as_millis();
    let part = |n: u128| scenario.account.part_at(from + STEP * n as u32) as f64 / 1_000.0;
    let parts: f64 = (0..steps).map(part).sum();
    scenario.limit() as f64 * parts * STEP.as_secs_f64() / 60.0
}

fn percentile(waits: &[Duration], percent: usize) -> f64 {
    let mut sorted = waits.to_vec();
    sorted.sort();
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).map_or(f64::NAN, Duration::as_secs_f64)
}
