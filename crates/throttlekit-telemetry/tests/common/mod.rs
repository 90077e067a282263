//! Events of decided requests.

use std::time::Duration;

use throttlekit::clock::ManualClock;
use throttlekit::observe::Event;
use throttlekit::rate::Timestamp;
use throttlekit::{Axis, Call, Decision, Guarantee, Limiter, Rate, Retry};
use throttlekit_telemetry::PolicyCounts;

/// Returns a decision without a limit behind it.
pub(crate) fn event(policy: &'static str, allowed: bool, axis: Option<Axis>) -> Event<'static> {
    Event {
        policy,
        key: b"alice",
        cost: 3,
        decision: Decision {
            allowed,
            limit: 10,
            remaining: 7,
            reset_at: Timestamp::from_millis(1_000),
            retry_after: if allowed { Retry::Now } else { Retry::after(Duration::from_micros(1_500_001)) },
        },
        denied_by: axis,
        limit_name: None,
        guarantee: Guarantee::Exact,
    }
}

/// Sends `asks` requests to a limit, deterministically, and passes each decision to the observer.
pub(crate) fn ask(asks: u64, mut observe: impl FnMut(&Event<'_>)) -> Vec<Decision> {
    let clock = std::sync::Arc::new(ManualClock::default());
    let limiter = Limiter::builder(Rate::per_second(10)).clock(clock.clone()).build().expect("a limit");
    let keys = ["alice", "bob", "carol", "dave"];
    let ask = |n: u64| {
        clock.advance(Duration::from_millis(7));
        let key = keys[(n % 7 % 4) as usize];
        let cost = 1 + n % 3;
        let decision = limiter.check(Call::by(key).cost(cost));
        observe(&Event {
            policy: "chat",
            key: key.as_bytes(),
            cost,
            decision,
            denied_by: (!decision.allowed).then_some(Axis::Rate),
            limit_name: None,
            guarantee: Guarantee::Exact,
        });
        decision
    };
    (0..asks).map(ask).collect()
}

/// Checks the invariants of a policy's counters, which hold whenever they are read.
pub(crate) fn sums(counts: &PolicyCounts) {
    let by_axis: u64 = Axis::ALL.into_iter().map(|axis| counts.denied_by(axis)).sum();
    assert_eq!(by_axis + counts.denied_by_no_axis(), counts.denied());
    assert_eq!(counts.allowed() + counts.denied(), counts.decisions());
}
