//! `settle`: a corrected charge leaves the state that the actual cost would have left, or, after time has passed, no
//! less debt.

use throttlekit_core::rate::{Limit, Mark, Rule, Settle, State, Tat, UNITS_MAX};
use throttlekit_core::{Cost, Decision, Timestamp};

use super::settle_faults::{Faulty, SettleBug};
use super::{Check, Invariant, Trial, ensure, limit, over_scenarios};
use crate::text::nanos;
use crate::{Dice, Scenario, Spec, scenario};

/// Windows and logs: exactly the state of a trace that was charged the actual costs from the start, with usage beyond
/// an estimate charged when it became known.
pub(super) fn replay() -> Invariant {
    Invariant {
        name: "settle/replay",
        holds: over_scenarios(Scenario::roll, |scenario| check_replay(&limit(&scenario.spec), scenario)),
        seeded: vec![
            buggy(check_replay, SettleBug::RefundTwice),
            buggy(check_replay, SettleBug::RefundOfAnyWindow),
            buggy(check_replay, SettleBug::RefundForgotten),
            buggy(check_replay, SettleBug::DebtStopsAtLimit),
        ],
    }
}

/// Buckets: never less debt than that trace leaves, however often and in whatever order charges are settled; and
/// exactly that at the instant of the charge. A shaper refunds nothing.
pub(super) fn refund() -> Invariant {
    Invariant {
        name: "settle/refund",
        holds: over_scenarios(forward, |scenario| check_refund(&limit(&scenario.spec), scenario)),
        seeded: vec![
            buggy_forward(check_refund, SettleBug::RefundByMarkOnly),
            buggy_forward(check_refund, SettleBug::RefundTwice),
            buggy_forward(check_refund, SettleBug::RefundForgotten),
            buggy_forward(check_refund, SettleBug::RefundOfAShaper),
        ],
    }
}

/// Usage beyond the limit is owed: requests are denied until the instant that the denial names. No debt is longer than
/// a hundred years, whatever was used.
pub(super) fn debt() -> Invariant {
    Invariant {
        name: "settle/debt",
        holds: over_scenarios(forward, |scenario| check_debt(&limit(&scenario.spec), scenario)),
        seeded: vec![
            buggy_forward(check_debt, SettleBug::DebtStopsAtLimit),
            buggy_forward(check_debt, SettleBug::DebtWithoutEnd),
            buggy_forward(check_debt, SettleBug::DebtForgotten),
        ],
    }
}

type SettleCheck = fn(&Faulty, &Scenario) -> Check;

fn forward(seed: u64) -> Scenario {
    Scenario::roll(seed).forward()
}

fn buggy(check: SettleCheck, bug: SettleBug) -> (&'static str, Trial) {
    let trial = over_scenarios(Scenario::roll, move |scenario| {
        check(&Faulty::new(limit(&scenario.spec), bug), scenario)
    });
    (bug.name(), trial)
}

fn buggy_forward(check: SettleCheck, bug: SettleBug) -> (&'static str, Trial) {
    let trial =
        over_scenarios(forward, move |scenario| check(&Faulty::new(limit(&scenario.spec), bug), scenario));
    (bug.name(), trial)
}

/// A charge and its settlement.
#[derive(Clone, Copy, Debug)]
struct Charged {
    at: Timestamp,
    mark: Mark,
    cost: Cost,
    settled: Option<Cost>,
}

/// The charges of one key, in order: by number, or for usage beyond an estimate.
#[derive(Default)]
struct History {
    charged: Vec<Charged>,
    events: Vec<Event>,
}

#[derive(Clone, Copy)]
enum Event {
    Charge(usize),
    Beyond(Cost, Timestamp),
}

impl History {
    fn charge(&mut self, rule: &impl Settle<State = State>, state: &mut State, cost: Cost, at: Timestamp) {
        let mark = rule.mark(state, at);
        rule.charge(state, cost, at);
        self.events.push(Event::Charge(self.charged.len()));
        self.charged.push(Charged { at, mark, cost, settled: None });
    }

    /// Settles a random open charge. Returns it with its actual cost.
    fn settle(
        &mut self,
        rule: &impl Settle<State = State>,
        state: &mut State,
        dice: &mut Dice,
        now: Timestamp,
    ) -> Option<Charged> {
        let open: Vec<usize> =
            (0..self.charged.len()).filter(|i| self.charged[*i].settled.is_none()).collect();
        if open.is_empty() {
            return None;
        }
        let charged = &mut self.charged[dice.pick(&open)];
        let Charged { mark, cost, .. } = *charged;
        let actual = dice.pick(&[0, cost / 2, cost - 1, cost, cost + 1, 2 * cost]);
        rule.settle(state, mark, cost, actual, now);
        charged.settled = Some(actual);
        if actual > cost {
            self.events.push(Event::Beyond(actual - cost, now));
        }
        Some(*charged)
    }

    /// Returns the state if every settled charge had been of its actual cost.
    fn replay(&self, rule: &Limit) -> State {
        let mut state = State::default();
        for event in &self.events {
            match (*event, rule) {
                (Event::Charge(index), _) => {
                    let Charged { at, cost, settled, .. } = self.charged[index];
                    rule.charge(&mut state, cost.min(settled.unwrap_or(cost)), at);
                }
                // The debt of a bucket is capped, which the invariant of debts checks.
                (Event::Beyond(cost, at), Limit::Gcra(_)) => rule.owe(&mut state, cost, at),
                (Event::Beyond(cost, at), _) => rule.charge(&mut state, cost, at),
            }
        }
        state
    }

    /// Returns whether some charge was refunded in full: then the key has the instant at which it was charged, and a
    /// key that was never charged does not.
    fn hands_back_all(&self) -> bool {
        self.charged.iter().any(|charged| charged.settled == Some(0))
    }
}

fn is_bucket(spec: &Spec) -> bool {
    matches!(spec, Spec::Gcra { .. } | Spec::TokenBucket { .. } | Spec::LeakyBucket { .. })
}

/// Returns costs that may be charged in any state: from one unit to all of them.
fn costs(scenario: &Scenario) -> impl Iterator<Item = (Timestamp, Cost)> {
    let units = limit(&scenario.spec).units().min(UNITS_MAX / 100);
    scenario.asks().map(move |(now, cost)| (now, cost.clamp(1, units)))
}

fn check_replay<R: Settle<State = State>>(rule: &R, scenario: &Scenario) -> Check {
    if is_bucket(&scenario.spec) {
        return Ok(());
    }
    let (mut state, mut history, mut dice) = (State::default(), History::default(), scenario.dice());
    let mut furthest = scenario.start;
    for (now, cost) in costs(scenario) {
        furthest = furthest.max(now);
        history.charge(rule, &mut state, cost, now);
        if dice.once_in(2) {
            continue;
        }
        history.settle(rule, &mut state, &mut dice, now);
        let want = history.replay(&limit(&scenario.spec));
        if !history.hands_back_all() {
            ensure(state == want, || format!("settled at {now}: {state:?}, not {want:?}"))?;
        } else if scenario.operations.iter().all(|o| !matches!(o, crate::Operation::StepBack(_))) {
            let cost = scenario::roll_cost(&mut dice, &scenario.spec);
            let later = furthest + scenario::roll_wait(&mut dice, &scenario.spec);
            let told = |state| answer(&limit(&scenario.spec).decide(state, cost, later));
            ensure(told(&state) == told(&want), || format!("{cost} at {later}: {state:?}, not {want:?}"))?;
        }
    }
    Ok(())
}

/// Returns all of a decision but the reset: a log reports the instant at which its oldest entry leaves, also if nothing
/// is left of that entry.
fn answer(decision: &Decision) -> (bool, Cost, throttlekit_core::Retry) {
    (decision.allowed, decision.remaining, decision.retry_after)
}

fn check_refund<R: Settle<State = State>>(rule: &R, scenario: &Scenario) -> Check {
    if !is_bucket(&scenario.spec) {
        return Ok(());
    }
    let shapes = matches!(scenario.spec, Spec::LeakyBucket { .. });
    let (mut state, mut history, mut dice) = (State::default(), History::default(), scenario.dice());
    for (now, cost) in costs(scenario) {
        let (before, debts) = (state.clone(), history.charged.len());
        if rule.decide(&state, cost, now).allowed {
            history.charge(rule, &mut state, cost, now);
            let mut at_once = state.clone();
            check_at_once(rule, &before, &mut at_once, history.charged[debts], shapes, &mut dice)?;
        }
        if dice.once_in(2) {
            continue;
        }
        let untouched = state.clone();
        let Some(charged) = history.settle(rule, &mut state, &mut dice, now) else { continue };
        if rule.idle_at(&state) >= now + CENTURY {
            return Ok(()); // a debt that was cut is not owed again when a charge before it is handed back
        }
        let (got, least) = (full_at(&state), full_at(&history.replay(&limit(&scenario.spec))));
        ensure(got >= least, || format!("{charged:?} settled at {now}: {got:?} owes less than {least:?}"))?;
        let handed_back = charged.settled.is_some_and(|actual| actual < charged.cost);
        ensure(!(shapes && handed_back) || state == untouched, || {
            format!("{charged:?} settled at {now}: a turn was handed back")
        })?;
    }
    Ok(())
}

/// Checks that a bucket settled at the instant of the charge is as if the actual cost had been requested.
fn check_at_once<R: Settle<State = State>>(
    rule: &R,
    before: &State,
    state: &mut State,
    charged: Charged,
    shapes: bool,
    dice: &mut Dice,
) -> Check {
    let actual = dice.below(charged.cost + 1);
    rule.settle(state, charged.mark, charged.cost, actual, charged.at);
    let mut want = before.clone();
    rule.charge(&mut want, if shapes { charged.cost } else { actual }, charged.at);
    let told = |state: &State| rule.decide(state, 0, charged.at);
    ensure(told(state) == told(&want), || {
        format!("{charged:?} settled to {actual} at once: {state:?}, not {want:?}")
    })
}

fn full_at(state: &State) -> Tat {
    if let State::Tat(tat) = state { *tat } else { Tat::default() }
}

/// A hundred years, the longest debt.
const CENTURY: std::time::Duration = std::time::Duration::from_secs(100 * 366 * 86_400);

fn check_debt<R: Settle<State = State>>(rule: &R, scenario: &Scenario) -> Check {
    let mut dice = scenario.dice();
    let mut state = State::default();
    for (now, cost) in costs(scenario) {
        let beyond = dice.any_size(u64::MAX).max(1);
        let before = rule.idle_at(&state);
        let left = rule.decide(&state, 0, now).remaining;
        let mark = rule.mark(&state, now);
        rule.settle(&mut state, mark, cost, cost.saturating_add(beyond), now);
        let capped = before.max(now + CENTURY);
        ensure(!is_bucket(&scenario.spec) || rule.idle_at(&state) <= capped, || {
            format!("{beyond} beyond at {now}: owed until {}, past {capped}", rule.idle_at(&state))
        })?;
        // A bucket that takes longer than the longest debt to fill is never emptied by one.
        if limit(&scenario.spec).period() <= CENTURY {
            check_denied(rule, &state, beyond.min(u64::MAX - cost), left, now)?;
        }
    }
    Ok(())
}

/// Checks that after using `beyond` when `left` were left, nothing is allowed until the reported wait is over.
fn check_denied<R: Rule<State = State>>(
    rule: &R,
    state: &State,
    beyond: Cost,
    left: Cost,
    now: Timestamp,
) -> Check {
    let decision = rule.decide(state, 1, now);
    ensure(!decision.allowed || beyond < left, || format!("{beyond} beyond {left} at {now}: {decision:?}"))?;
    let told = decision.retry_after.wait().map_or(now, |wait| now + wait);
    if decision.allowed || told == Timestamp::MAX {
        return Ok(());
    }
    let before = Timestamp::from_nanos(told.as_nanos() - 1);
    let exact = rule.decide(state, 1, told).allowed && !rule.decide(state, 1, before).allowed;
    ensure(exact && nanos(told.since(now)) > 0, || format!("{beyond} beyond at {now}: not paid at {told}"))
}
