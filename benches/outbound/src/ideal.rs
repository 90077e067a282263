//! An ideal queue: one server that takes calls of all processes in the order of their arrival, at the provider's rate.

use std::time::Duration;

use crate::arrivals::Arrival;
use crate::scenario::Scenario;

/// Returns how long each call waits.
pub fn waits(scenario: &Scenario, arrivals: &[Arrival]) -> Vec<Duration> {
    let account = &scenario.account;
    let (mut requests_free, mut tokens_free) = (Duration::ZERO, Duration::ZERO);
    let mut wait = |arrival: &Arrival| {
        let start = arrival.at.max(requests_free).max(tokens_free);
        let part = account.part_at(start) as f64 / 1_000.0;
        let takes =
            |units: u64, limit: u64| Duration::from_secs_f64(units as f64 * 60.0 / (limit as f64 * part));
        requests_free = requests_free.max(arrival.at) + takes(1, account.requests);
        tokens_free = tokens_free.max(arrival.at) + takes(arrival.tokens, account.tokens);
        start - arrival.at
    };
    arrivals.iter().map(&mut wait).collect()
}
