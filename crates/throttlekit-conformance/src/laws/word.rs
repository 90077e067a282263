//! `same-everywhere/word`: a rule squeezed into one machine word answers as the rule in full, field by field.

use throttlekit_core::rate::word::{GcraWord, HORIZON, WindowWord, WordRule};
use throttlekit_core::rate::{Limit, Rule, State};
use throttlekit_core::{Cost, Decision, Retry, Timestamp};

use super::{Check, Law, ensure, limit, over_worlds};
use crate::World;
use crate::timeline::print_answer;

pub(super) fn law() -> Law {
    let buggy = |bug| over_worlds(World::roll, move |world| check(world, Some(bug)));
    Law {
        name: "same-everywhere/word",
        holds: over_worlds(World::roll, |world| check(world, None)),
        planted: vec![
            ("cost_dropped", buggy(Bug::CostDropped)),
            ("floor_ignored", buggy(Bug::FloorIgnored)),
            ("word_ignored", buggy(Bug::WordIgnored)),
            ("retry_early", buggy(Bug::RetryEarly)),
        ],
    }
}

#[derive(Clone, Copy)]
enum Bug {
    CostDropped,
    FloorIgnored,
    WordIgnored,
    RetryEarly,
}

fn check(world: &World, bug: Option<Bug>) -> Check {
    let limit = limit(&world.spec);
    let before = world.dice().any_size(366 * 86_400_000_000_000);
    let origin = Timestamp::from_nanos(world.earliest().as_nanos().saturating_sub(before));
    match limit {
        Limit::Gcra(rule) => match GcraWord::new(&rule, origin) {
            Some(word) => compare(&limit, &word, bug, origin, world),
            None => Ok(()),
        },
        Limit::Window(rule) => match WindowWord::new(&rule, origin) {
            Some(word) => compare(&limit, &word, bug, origin, world),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

fn compare(limit: &Limit, rule: &impl WordRule, bug: Option<Bug>, origin: Timestamp, world: &World) -> Check {
    let (mut state, mut word, mut before) = (State::default(), 0, Timestamp::EPOCH);
    for (now, cost) in world.asks().take_while(|(now, _)| *now < origin + HORIZON) {
        let ordered = rule.floor(now.min(before)) <= rule.floor(now.max(before));
        ensure(ordered, || format!("the floor shrinks between {before} and {now}"))?;
        before = now;
        let want = limit.check(&mut state, cost, now);
        let got = step(rule, bug, word, cost, now);
        ensure(want == got.decision, || {
            let (want, got) = (print_answer(&want), print_answer(&got.decision));
            format!("{cost} at {now}, origin {origin}:\n  full {want}\n  word {got}")
        })?;
        if let Some(short) = rule.at_once(word, cost, now).filter(|_| bug.is_none()) {
            let right = got.decision.allowed && cost > 0 && short == got.next;
            ensure(right, || format!("{cost} at {now}: the short way from {word} leads to {short}"))?;
        }
        if got.decision.allowed && cost > 0 {
            ensure(got.next >= word, || format!("{cost} at {now} shrank the word {word} to {}", got.next))?;
            word = got.next;
        }
    }
    Ok(())
}

/// What an ask does to a word.
struct Step {
    decision: Decision,
    next: u64,
}

/// One ask, as a store takes it: the next word first, then the answer.
fn take(rule: &impl WordRule, word: u64, floor: u64, cost: Cost, now: Timestamp) -> Step {
    match rule.next(word, floor, cost) {
        Some(next) => Step { decision: rule.allowed(next, floor, cost), next },
        None => Step { decision: rule.denied(word, floor, cost, now), next: word },
    }
}

fn step(rule: &impl WordRule, bug: Option<Bug>, word: u64, cost: Cost, now: Timestamp) -> Step {
    let floor = rule.floor(now);
    match bug {
        None => take(rule, word, floor, cost, now),
        Some(Bug::CostDropped) => Step { next: word.max(floor), ..take(rule, word, floor, cost, now) },
        Some(Bug::FloorIgnored) => take(rule, word, rule.floor(Timestamp::EPOCH), cost, now),
        Some(Bug::WordIgnored) => take(rule, floor, floor, cost, now),
        Some(Bug::RetryEarly) => {
            let mut step = take(rule, word, floor, cost, now);
            if let Retry::After(wait) = step.decision.retry_after {
                step.decision.retry_after = Retry::after(wait - std::time::Duration::from_nanos(1));
            }
            step
        }
    }
}
