//! `deny-is-free`: a denied request leaves every state unchanged, alone and among several limits.

use std::fmt::Debug;

use throttlekit_core::rate::{Limit, LimitCharge, Need, Rule, State, Verdict};
use throttlekit_core::{Decision, Retry, Timestamp};

use super::{Bug, Check, Invariant, Seeded, ensure, limit, over_scenarios};
use crate::{Scenario, scenario};

pub(super) fn one() -> Invariant {
    let buggy = |bug: Bug| {
        (bug.name(), over_scenarios(Scenario::roll, move |w| check_one(&Seeded::new(&w.spec, bug), w)))
    };
    Invariant {
        name: "deny-is-free/one",
        holds: over_scenarios(Scenario::roll, |scenario| check_one(&limit(&scenario.spec), scenario)),
        seeded: vec![buggy(Bug::ChargeOnDenial)],
    }
}

/// All or none over several limits: decided by one verdict whose wait is exact.
pub(super) fn many() -> Invariant {
    Invariant {
        name: "deny-is-free/many",
        holds: over_scenarios(Scenario::roll, |scenario| check_many(Need::check, scenario)),
        seeded: vec![
            ("charges_in_turn", over_scenarios(Scenario::roll, |scenario| check_many(in_turn, scenario))),
            (
                "charges_all_for_any",
                over_scenarios(Scenario::roll, |scenario| check_many(all_for_any, scenario)),
            ),
            (
                "names_the_first",
                over_scenarios(Scenario::roll, |scenario| check_many(names_the_first, scenario)),
            ),
            ("shortest_wait", over_scenarios(Scenario::roll, |scenario| check_many(shortest_wait, scenario))),
        ],
    }
}

fn check_one<R: Rule<State: PartialEq + Debug>>(rule: &R, scenario: &Scenario) -> Check {
    let mut state = R::State::default();
    for (now, cost) in scenario.asks() {
        let before = state.clone();
        let decision = rule.check(&mut state, cost, now);
        ensure(decision.allowed || state == before, || {
            format!("the denial of {cost} at {now} turned {before:?} into {state:?}")
        })?;
    }
    Ok(())
}

type CheckMany = fn(Need, &mut [LimitCharge<'_>], Timestamp) -> Verdict;

/// Checks one, charges it, checks the next: a denial by the second leaves a charge behind.
fn in_turn(need: Need, charges: &mut [LimitCharge<'_>], now: Timestamp) -> Verdict {
    let decisions: Vec<Decision> = charges.iter_mut().map(|c| c.limit.check(c.state, c.cost, now)).collect();
    need.judge(&decisions)
}

/// Charges limits that denied as well, once one allowed.
fn all_for_any(need: Need, charges: &mut [LimitCharge<'_>], now: Timestamp) -> Verdict {
    let decisions: Vec<Decision> = charges.iter().map(|c| c.limit.decide(c.state, c.cost, now)).collect();
    let verdict = need.judge(&decisions);
    if verdict.decision.allowed {
        charges.iter_mut().for_each(|c| c.limit.charge(c.state, c.cost, now));
    }
    verdict
}

/// Names the first limit, whichever decided.
fn names_the_first(need: Need, charges: &mut [LimitCharge<'_>], now: Timestamp) -> Verdict {
    Verdict { binding: 0, ..need.check(charges, now) }
}

/// Returns the wait of the first limit that allows, although all must.
fn shortest_wait(need: Need, charges: &mut [LimitCharge<'_>], now: Timestamp) -> Verdict {
    let denied = |d: &Decision| if d.allowed { None } else { Some(d.retry_after) };
    let shortest = charges.iter().filter_map(|c| denied(&c.limit.decide(c.state, c.cost, now))).min();
    let mut verdict = need.check(charges, now);
    if let (false, Some(wait)) = (verdict.decision.allowed, shortest) {
        verdict.decision.retry_after = wait;
    }
    verdict
}

fn check_many(check: CheckMany, scenario: &Scenario) -> Check {
    let mut dice = scenario.dice();
    let others = dice.between(1, 2);
    let specs = (0..others).map(|_| scenario::roll_spec(&mut dice));
    let limits: Vec<Limit> = specs.chain([scenario.spec]).map(|spec| limit(&spec)).collect();
    let mut states = vec![State::default(); limits.len()];
    for (now, cost) in scenario.asks() {
        let need = dice.pick(&[Need::All, Need::Any]);
        let before = states.clone();
        let verdict = check_at(check, need, &limits, &mut states, cost, now);
        check_states(need, &limits, &before, &states, &verdict, cost, now)?;
        check_binding(need, &limits[verdict.binding].decide(&before[verdict.binding], cost, now), &verdict)?;
        let again = |at| check_at(check, need, &limits, &mut before.clone(), cost, at).decision.allowed;
        check_wait(&verdict.decision, now, again)?;
    }
    Ok(())
}

fn check_at(
    check: CheckMany,
    need: Need,
    limits: &[Limit],
    states: &mut [State],
    cost: u64,
    now: Timestamp,
) -> Verdict {
    let mut charges: Vec<LimitCharge<'_>> =
        limits.iter().zip(states).map(|(limit, state)| LimitCharge { limit, state, cost }).collect();
    check(need, &mut charges, now)
}

/// Checks that each state is unchanged, or charged by its own limit, according to the verdict.
fn check_states(
    need: Need,
    limits: &[Limit],
    before: &[State],
    after: &[State],
    verdict: &Verdict,
    cost: u64,
    now: Timestamp,
) -> Check {
    for (limit, (before, after)) in limits.iter().zip(before.iter().zip(after)) {
        let alone = limit.decide(before, cost, now);
        let mut expected = before.clone();
        if verdict.decision.allowed && alone.allowed {
            limit.charge(&mut expected, cost, now);
        }
        ensure(*after == expected, || {
            format!(
                "{need:?} of {limits:?} for {cost} at {now}: {before:?} became {after:?}, not {expected:?}"
            )
        })?;
        let counts = match need {
            Need::All => alone.allowed || !verdict.decision.allowed,
            Need::Any => !alone.allowed || verdict.decision.allowed,
        };
        ensure(counts, || format!("{need:?} for {cost} at {now}: {verdict:?} against {alone:?}"))?;
    }
    Ok(())
}

/// Checks that the limit named by a verdict is one that decided it: the one to wait for, or the one with the least left
/// (of all) or the most left (of any).
fn check_binding(need: Need, named: &Decision, verdict: &Verdict) -> Check {
    let Decision { allowed, remaining, retry_after, .. } = verdict.decision;
    let decided = match need {
        Need::Any => *named == verdict.decision,
        Need::All if allowed => named.remaining == remaining,
        Need::All => !named.allowed && named.retry_after == retry_after,
    };
    ensure(decided, || format!("{need:?}: {verdict:?} names {named:?}"))
}

fn check_wait(decision: &Decision, now: Timestamp, allowed: impl Fn(Timestamp) -> bool) -> Check {
    let (false, Retry::After(wait)) = (decision.allowed, decision.retry_after) else { return Ok(()) };
    let promised = now + wait;
    let before = Timestamp::from_nanos(promised.as_nanos() - 1);
    let exact = promised == Timestamp::MAX || (allowed(promised) && !allowed(before));
    ensure(exact, || format!("the wait of {wait:?} from {now} is not exact for all limits together"))
}
