//! `same-everywhere/word`: a rule packed into one machine word decides as the full rule, field by field, for any step
//! of the clock.

use std::time::Duration;

use throttlekit_core::rate::word::{GcraWord, WORDS_END, WindowWord, WordRule};
use throttlekit_core::rate::{Limit, Rule, State};
use throttlekit_core::{Cost, Decision, Retry, Timestamp};

use super::{Check, Invariant, ensure, limit, over_scenarios};
use crate::Scenario;
use crate::trace::print_answer;

pub(super) fn invariant() -> Invariant {
    let buggy =
        |bug: Bug| (bug.name(), over_scenarios(Scenario::roll, move |scenario| check(scenario, Some(bug))));
    Invariant {
        name: "same-everywhere/word",
        holds: over_scenarios(Scenario::roll, |scenario| check(scenario, None)),
        seeded: vec![
            buggy(Bug::CostDropped),
            buggy(Bug::FloorIgnored),
            buggy(Bug::WordIgnored),
            buggy(Bug::RetryEarly),
            buggy(Bug::FromWhenItWasBuilt),
            buggy(Bug::TenYearsAtMost),
        ],
    }
}

crate::bugs! {
    /// A bug of a rule on a word.
    enum Bug {
        CostDropped: "A request does not raise the word.",
        FloorIgnored: "Time does not refill the word.",
        WordIgnored: "What the word says is ignored.",
        RetryEarly: "Waits are a nanosecond too short.",
        FromWhenItWasBuilt: "Words count from a day before the first ask, as if that were when the limiter was built.",
        TenYearsAtMost: "Words end ten years after it.",
    }
}

const DAY: Duration = Duration::from_secs(86_400);
const YEAR: Duration = Duration::from_secs(366 * 86_400);

fn check(scenario: &Scenario, bug: Option<Bug>) -> Check {
    let limit = limit(&scenario.spec);
    match limit {
        Limit::Gcra(rule) => match GcraWord::new(&rule) {
            Some(word) => compare(&limit, &word, bug, scenario),
            None => Ok(()),
        },
        Limit::Window(rule) => match WindowWord::new(&rule) {
            Some(word) => compare(&limit, &word, bug, scenario),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Returns the requests of a scenario whose clock was wrong at first: at the epoch, days or years ahead, or behind.
fn asks_of_a_wrong_clock(scenario: &Scenario) -> Vec<(Timestamp, Cost)> {
    let mut dice = scenario.dice();
    let wrong = dice.below(4);
    let right_from = dice.between(0, 8) as usize;
    let shown = |now: Timestamp| match wrong {
        0 => now,
        1 => Timestamp::from_nanos(now.as_nanos() % (3 * DAY.as_nanos() as u64)),
        2 => now + 2 * DAY,
        _ => now + 12 * YEAR,
    };
    let asks = scenario.asks().enumerate();
    asks.map(|(i, (now, cost))| (if i < right_from { shown(now) } else { now }, cost)).collect()
}

fn compare(limit: &Limit, rule: &impl WordRule, bug: Option<Bug>, scenario: &Scenario) -> Check {
    let asks = asks_of_a_wrong_clock(scenario);
    let built = asks.first().map_or(Timestamp::EPOCH, |(now, _)| *now);
    // A key of its own for each stretch of time: one that is charged in the future is ahead in either form.
    let (mut state, mut word, mut before) = (State::default(), 0, Timestamp::EPOCH);
    for (now, cost) in asks.into_iter().take_while(|(now, _)| *now < WORDS_END) {
        let ordered = rule.floor(now.min(before)) <= rule.floor(now.max(before));
        ensure(ordered, || format!("the floor shrinks between {before} and {now}"))?;
        if before > now + DAY {
            (state, word) = (State::default(), 0);
        }
        before = now;
        let want = limit.check(&mut state, cost, now);
        let got = step(rule, bug, built, word, (cost, now));
        ensure(want == got.decision, || {
            let (want, got) = (print_answer(&want), print_answer(&got.decision));
            format!("{cost} at {now}, built at {built}:\n  full {want}\n  word {got}")
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

/// The effect of a request on a word.
struct Step {
    decision: Decision,
    next: u64,
}

/// Makes one request as a store does: the next word first, then the decision.
fn take(rule: &impl WordRule, word: u64, floor: u64, cost: Cost, now: Timestamp) -> Step {
    match rule.next(word, floor, cost) {
        Some(next) => Step { decision: rule.allowed(next, floor, cost), next },
        None => Step { decision: rule.denied(word, floor, cost, now), next: word },
    }
}

fn step(
    rule: &impl WordRule,
    bug: Option<Bug>,
    built: Timestamp,
    word: u64,
    (cost, now): (Cost, Timestamp),
) -> Step {
    let floor = rule.floor(now);
    let origin = Timestamp::from_nanos(built.as_nanos().saturating_sub(DAY.as_nanos() as u64));
    match bug {
        None => take(rule, word, floor, cost, now),
        Some(Bug::CostDropped) => Step { next: word.max(floor), ..take(rule, word, floor, cost, now) },
        Some(Bug::FloorIgnored) => take(rule, word, rule.floor(Timestamp::EPOCH), cost, now),
        Some(Bug::WordIgnored) => take(rule, floor, floor, cost, now),
        Some(Bug::FromWhenItWasBuilt) => take(rule, word, rule.floor(now.max(origin)), cost, now),
        Some(Bug::TenYearsAtMost) => take(rule, word, rule.floor(now.min(origin + 10 * YEAR)), cost, now),
        Some(Bug::RetryEarly) => {
            let mut step = take(rule, word, floor, cost, now);
            if let Retry::After(wait) = step.decision.retry_after {
                step.decision.retry_after = Retry::after(wait - Duration::from_nanos(1));
            }
            step
        }
    }
}
