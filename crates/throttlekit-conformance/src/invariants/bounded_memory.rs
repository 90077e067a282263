//! `bounded-memory`, the part of the rules: which states a store may drop, and what it must keep of them.

use std::fmt::Debug;

use throttlekit_core::Timestamp;
use throttlekit_core::rate::{Limit, Rule};

use super::{Bug, Check, Invariant, Seeded, ensure, limit, over_scenarios};
use crate::{Operation, Scenario, Spec, scenario};

/// From the later of their instants on, the join of two states denies whatever either of them denies, and is idle
/// exactly when both are. If a state is a number of units at an instant, the join is also minimal: it denies nothing
/// else.
pub(super) fn join() -> Invariant {
    let buggy = |bug: Bug| {
        (bug.name(), over_scenarios(Scenario::roll, move |w| check_join(&Seeded::new(&w.spec, bug), w)))
    };
    Invariant {
        name: "bounded-memory/join",
        holds: over_scenarios(Scenario::roll, |scenario| check_join(&limit(&scenario.spec), scenario)),
        seeded: vec![
            buggy(Bug::JoinKeepsSmaller),
            ("join_adds", over_scenarios(Scenario::roll, |w| check_join(&JoinAdds(limit(&w.spec)), w))),
        ],
    }
}

/// A state is idle from `idle_at` on, deciding as a fresh one, and not one nanosecond sooner.
pub(super) fn forget() -> Invariant {
    let buggy = |bug: Bug| {
        (bug.name(), over_scenarios(Scenario::roll, move |w| check_forget(&Seeded::new(&w.spec, bug), w)))
    };
    Invariant {
        name: "bounded-memory/forget",
        holds: over_scenarios(Scenario::roll, |scenario| check_forget(&limit(&scenario.spec), scenario)),
        seeded: vec![buggy(Bug::ForgetEarly), buggy(Bug::ForgetLate)],
    }
}

fn check_join<R: Rule<State: Debug>>(rule: &R, scenario: &Scenario) -> Check {
    let (mut one, mut two, mut later) = (R::State::default(), R::State::default(), scenario.start);
    for (now, operation) in scenario.moments() {
        if let Operation::Ask { key, cost } = operation {
            let state = if key == 0 { &mut one } else { &mut two };
            rule.check(state, cost, now);
            later = later.max(now);
        }
    }
    let mut both = one.clone();
    rule.join(&mut both, &two);
    let mut other_way = two.clone();
    rule.join(&mut other_way, &one);
    let idle = rule.idle_at(&one).max(rule.idle_at(&two));
    ensure(rule.idle_at(&both) == idle, || format!("{both:?} is not idle at {idle}"))?;
    let mut dice = scenario.dice();
    for _ in 0..8 {
        let cost = scenario::roll_cost(&mut dice, &scenario.spec);
        let asked = |state: &R::State| rule.decide(state, cost, later).allowed;
        let (each, joined) = (asked(&one) && asked(&two), asked(&both));
        let told = |what: &str| format!("{cost} at {later}: {what}\n  {one:?}\n  {two:?}\n  {both:?}");
        ensure(each || !joined, || told("the join admits what one denies"))?;
        ensure(joined || !each || !is_least(&scenario.spec, later), || {
            told("the join denies what both admit")
        })?;
        ensure(asked(&other_way) == joined, || told("the join depends on the order"))?;
        later = later + scenario::roll_wait(&mut dice, &scenario.spec);
    }
    Ok(())
}

/// Returns whether the join must be minimal. A sliding window's join consists of whole buckets: minimal where a bucket
/// begins, when none is split.
fn is_least(spec: &Spec, now: Timestamp) -> bool {
    let Spec::SlidingWindow { length, buckets, .. } = *spec else { return true };
    (u128::from(now.as_nanos()) * u128::from(buckets)).is_multiple_of(length.as_nanos())
}

fn check_forget<R: Rule<State: Debug>>(rule: &R, scenario: &Scenario) -> Check {
    let (mut state, fresh) = (R::State::default(), R::State::default());
    let mut dice = scenario.dice();
    let mut charged = false;
    for (now, cost) in scenario.asks() {
        charged |= rule.check(&mut state, cost, now).allowed && cost > 0;
        let idle = rule.idle_at(&state);
        if !charged || idle == Timestamp::MAX {
            continue;
        }
        let cost = scenario::roll_cost(&mut dice, &scenario.spec);
        let same = |cost, at| rule.decide(&state, cost, at) == rule.decide(&fresh, cost, at);
        let told = |what: &str| format!("after {now}, idle at {idle}: {what}\n  {state:?}");
        let later = idle + scenario::roll_wait(&mut dice, &scenario.spec);
        ensure(same(cost, idle) && same(cost, later), || told("something is still remembered"))?;
        let sooner = Timestamp::from_nanos(idle.as_nanos() - 1);
        ensure(!same(0, sooner), || told("nothing was remembered a nanosecond sooner"))?;
    }
    Ok(())
}

/// Joins by adding the cost of both: it denies enough, and too much.
struct JoinAdds(Limit);

impl Rule for JoinAdds {
    type State = <Limit as Rule>::State;

    fn decide(&self, state: &Self::State, cost: u64, now: Timestamp) -> throttlekit_core::Decision {
        self.0.decide(state, cost, now)
    }

    fn charge(&self, state: &mut Self::State, cost: u64, now: Timestamp) {
        self.0.charge(state, cost, now);
    }

    fn idle_at(&self, state: &Self::State) -> Timestamp {
        self.0.idle_at(state)
    }

    fn join(&self, state: &mut Self::State, other: &Self::State) {
        let at = self.0.idle_at(state).min(self.0.idle_at(other));
        self.0.join(state, other);
        self.0.charge(state, 1, at);
    }
}
