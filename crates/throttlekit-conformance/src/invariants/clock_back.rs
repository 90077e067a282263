//! `clock-back`: setting a clock back admits no more, and no state ever moves back.
//!
//! A key's time is the latest instant at which it was charged. Per request: one that is allowed at an earlier instant
//! would be allowed at that time too, leaves the same state, and leaves no more. In total: for requests of one cost, a
//! trace with backward steps never gets ahead of the same trace with each instant raised to the latest so far. (With
//! mixed costs totals cannot be compared: denying a small request early may leave capacity for a large one later.)

use std::fmt::Debug;

use throttlekit_core::Timestamp;
use throttlekit_core::rate::Rule;

use super::faults::PhantomRefill;
use super::{Bug, Check, Invariant, Seeded, ensure, limit, over_scenarios};
use crate::Scenario;

pub(super) fn each_ask() -> Invariant {
    let buggy = |bug: Bug| {
        (bug.name(), over_scenarios(Scenario::roll, move |w| check_each(&Seeded::new(&w.spec, bug), w)))
    };
    Invariant {
        name: "clock-back/each-ask",
        holds: over_scenarios(Scenario::roll, |scenario| check_each(&limit(&scenario.spec), scenario)),
        seeded: vec![
            buggy(Bug::ClockTrusted),
            ("phantom_refill", over_scenarios(Scenario::roll, |w| phantom(w, check_each))),
        ],
    }
}

pub(super) fn total() -> Invariant {
    let buggy = |bug: Bug| {
        (bug.name(), over_scenarios(Scenario::roll, move |w| check_total(&Seeded::new(&w.spec, bug), w)))
    };
    Invariant {
        name: "clock-back/total",
        holds: over_scenarios(Scenario::roll, |scenario| check_total(&limit(&scenario.spec), scenario)),
        seeded: vec![
            buggy(Bug::ClockTrusted),
            ("phantom_refill", over_scenarios(Scenario::roll, |w| phantom(w, check_total))),
        ],
    }
}

fn phantom(scenario: &Scenario, check: fn(&PhantomRefill, &Scenario) -> Check) -> Check {
    PhantomRefill::new(&scenario.spec).map_or(Ok(()), |rule| check(&rule, scenario))
}

fn check_each<R: Rule<State: PartialEq + Debug>>(rule: &R, scenario: &Scenario) -> Check {
    let (mut state, mut charged) = (R::State::default(), Timestamp::EPOCH);
    for (now, cost) in scenario.asks() {
        let before = state.clone();
        let held = charged.max(now);
        let at_held = rule.decide(&before, cost, held);
        let decision = rule.check(&mut state, cost, now);
        let told = |what: &str| format!("{cost} at {now}, with the clock known to have shown {held}: {what}");
        ensure(at_held.allowed || !decision.allowed, || told("passes only because it is earlier"))?;
        let left = |at| rule.decide(&before, 0, at).remaining;
        ensure(left(now) <= left(held), || told("leaves more because it is earlier"))?;
        ensure(rule.idle_at(&state) >= rule.idle_at(&before), || told("moves the state back"))?;
        if decision.allowed && cost > 0 {
            let mut raised = before;
            rule.charge(&mut raised, cost, held);
            ensure(rule.idle_at(&state) >= rule.idle_at(&raised), || told("is charged in the past"))?;
            charged = held;
        }
    }
    Ok(())
}

fn check_total<R: Rule>(rule: &R, scenario: &Scenario) -> Check {
    let (mut back, mut raised) = (R::State::default(), R::State::default());
    let (mut admitted_back, mut admitted_raised) = (0_u64, 0_u64);
    let mut furthest = Timestamp::EPOCH;
    let possible = |cost: &u64| (1..=limit(&scenario.spec).cost_max()).contains(cost);
    let Some(cost) = scenario.asks().map(|(_, cost)| cost).find(possible) else { return Ok(()) };
    for (now, _) in scenario.asks() {
        furthest = furthest.max(now);
        admitted_back += u64::from(rule.check(&mut back, cost, now).allowed);
        admitted_raised += u64::from(rule.check(&mut raised, cost, furthest).allowed);
        ensure(admitted_back <= admitted_raised, || {
            format!(
                "{admitted_back} requests of {cost} passed by {now}, {admitted_raised} if the clock had \
                 stood still"
            )
        })?;
    }
    Ok(())
}
