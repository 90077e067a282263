//! `forecast-exact`: `peek` and `forecast` predict what `check` then does, to the nanosecond.

use throttlekit_core::Timestamp;
use throttlekit_core::rate::Rule;

use super::{Bug, Check, Invariant, Seeded, ensure, limit, over_scenarios};
use crate::{Scenario, scenario};

pub(super) fn invariant() -> Invariant {
    let buggy = |bug: Bug| {
        (bug.name(), over_scenarios(Scenario::roll, move |w| check(&Seeded::new(&w.spec, bug), w)))
    };
    Invariant {
        name: "forecast-exact",
        holds: over_scenarios(Scenario::roll, |scenario| check(&limit(&scenario.spec), scenario)),
        seeded: vec![
            buggy(Bug::PeekSpends),
            buggy(Bug::ReplenishEarly),
            buggy(Bug::ReplenishLate),
            buggy(Bug::FullEarly),
            buggy(Bug::FullLate),
        ],
    }
}

fn check<R: Rule>(rule: &R, scenario: &Scenario) -> Check {
    let mut state = R::State::default();
    let mut dice = scenario.dice();
    for (now, cost) in scenario.asks() {
        rule.check(&mut state, cost, now);
        check_peek(rule, &state, now)?;
        check_forecast(rule, &state, scenario::roll_cost(&mut dice, &scenario.spec), now)?;
    }
    Ok(())
}

fn check_peek<R: Rule>(rule: &R, state: &R::State, now: Timestamp) -> Check {
    let seen = rule.peek(state, now);
    let (left, next) = (rule.decide(state, 0, now), rule.decide(state, 1, now));
    let told = || format!("peek at {now} says {seen:?}; a check of one says {next:?}");
    ensure(seen.allowed == next.allowed && seen.remaining == left.remaining, told)?;
    ensure(seen.allowed || seen.retry_after == next.retry_after, told)
}

fn check_forecast<R: Rule>(rule: &R, state: &R::State, cost: u64, now: Timestamp) -> Check {
    let seen = rule.forecast(state, cost, now);
    let allowed = |asks: u64| allows(rule, state, asks, cost.max(1), now);
    let told = |what: &str| format!("forecast for {cost} at {now}: {what}: {seen:?}");
    ensure(seen.spendable_now == 0 || allowed(seen.spendable_now), || told("too many"))?;
    ensure(!allowed(seen.spendable_now + 1), || told("too few"))?;

    let left = |at| rule.decide(state, 0, at).remaining;
    let (now_left, limit) = (left(now), rule.decide(state, 0, now).limit);
    check_instant(now, seen.next_replenish_at, now_left == limit, |at| left(at) > now_left)
        .map_err(|what| told(&format!("replenish {what}")))?;
    check_instant(now, seen.full_at, now_left == limit, |at| left(at) == limit)
        .map_err(|what| told(&format!("full {what}")))
}

/// Returns whether this many requests, at least one, are allowed one after the other.
fn allows<R: Rule>(rule: &R, state: &R::State, asks: u64, cost: u64, now: Timestamp) -> bool {
    let (mut state, earlier) = (state.clone(), (asks - 1).saturating_mul(cost));
    if !rule.decide(&state, earlier, now).allowed {
        return false;
    }
    rule.charge(&mut state, earlier, now);
    rule.decide(&state, cost, now).allowed
}

/// Checks that `at` is now if nothing is missing, else the first instant at which `there` holds.
fn check_instant(
    now: Timestamp,
    at: Timestamp,
    missing_nothing: bool,
    there: impl Fn(Timestamp) -> bool,
) -> Check {
    if missing_nothing {
        return ensure(at == now, || "is not now, though nothing is missing".into());
    }
    if at == Timestamp::MAX {
        return Ok(()); // waits saturate at the end of time
    }
    ensure(at > now && there(at), || "comes too early".into())?;
    let sooner = Timestamp::from_nanos(at.as_nanos() - 1);
    ensure(!there(sooner), || "comes too late".into())
}
