//! Rules with a seeded bug, which show that each invariant can fail.

use std::time::Duration;

use throttlekit_core::rate::{Limit, Rule, State};
use throttlekit_core::{Cost, Decision, Forecast, Retry, Timestamp};

use super::limit;
use crate::Spec;

crate::bugs! {
    /// The bug of a [`Seeded`] rule.
    pub enum Bug {
        ClockTrusted: "A clock that steps back starts from a fresh state.",
        ChargeOnDenial: "A denied request is charged.",
        CostIgnored: "Every request costs one unit.",
        OneUnitMore: "A request is admitted with one unit less than it costs.",
        OneUnitFewer: "A request is denied with exactly the units that it costs.",
        OneNanoEarly: "Requests are admitted a nanosecond early.",
        OneNanoLate: "Requests are admitted a nanosecond late.",
        RetryEarly: "Waits are a nanosecond too short.",
        RetryLate: "Waits are a nanosecond too long.",
        NeverAsWait: "A request that can never be admitted is asked to wait.",
        JoinKeepsSmaller: "Joining two states keeps the first.",
        ForgetEarly: "A state is idle a nanosecond early.",
        ForgetLate: "A state is idle a nanosecond late.",
        PeekSpends: "A peek reports what is left after a request of one unit.",
        ReplenishEarly: "The forecast of the next unit is a nanosecond early.",
        ReplenishLate: "The forecast of the next unit is a nanosecond late.",
        FullEarly: "The forecast of a full budget is a nanosecond early.",
        FullLate: "The forecast of a full budget is a nanosecond late.",
    }
}

/// A limit with one bug.
#[derive(Clone, Copy, Debug)]
pub struct Seeded {
    rule: Limit,
    bug: Bug,
}

/// The rule's state, and the instant of the last charge.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeededState {
    state: State,
    charged: Timestamp,
}

const TICK: Duration = Duration::from_nanos(1);

impl Seeded {
    /// Creates the limit with this bug.
    pub fn new(spec: &Spec, bug: Bug) -> Self {
        Self { rule: limit(spec), bug }
    }

    fn moved_retry(&self, retry: Retry) -> Retry {
        match (self.bug, retry) {
            (Bug::RetryEarly, Retry::After(wait)) => Retry::after(wait.saturating_sub(TICK)),
            (Bug::RetryLate, Retry::After(wait)) => Retry::after(wait + TICK),
            (Bug::NeverAsWait, Retry::Never) => Retry::after(self.rule.period()),
            (_, retry) => retry,
        }
    }
}

impl Rule for Seeded {
    type State = SeededState;

    fn decide(&self, state: &SeededState, cost: Cost, now: Timestamp) -> Decision {
        let fresh = State::default();
        let known = &state.state;
        let possible = cost <= self.rule.cost_max();
        let (state, cost, now) = match self.bug {
            // An older window looks like a fresh one: the fault B8 of the first implementation.
            Bug::ClockTrusted if now < state.charged => (&fresh, cost, now),
            Bug::OneUnitMore if possible => (known, cost.saturating_sub(1), now),
            Bug::OneUnitFewer if possible && cost > 0 => (known, (cost + 1).min(self.rule.cost_max()), now),
            Bug::OneNanoEarly => (known, cost, now + TICK),
            Bug::OneNanoLate => (known, cost, Timestamp::from_nanos(now.as_nanos().saturating_sub(1))),
            _ => (known, cost, now),
        };
        let decision = self.rule.decide(state, cost, now);
        if decision.allowed {
            return decision;
        }
        Decision { retry_after: self.moved_retry(decision.retry_after), ..decision }
    }

    fn charge(&self, state: &mut SeededState, cost: Cost, now: Timestamp) {
        if self.bug == Bug::ClockTrusted && now < state.charged {
            state.state = State::default();
        }
        let cost = if self.bug == Bug::CostIgnored { cost.min(1) } else { cost };
        self.rule.charge(&mut state.state, cost, now);
        state.charged = now;
    }

    fn idle_at(&self, state: &SeededState) -> Timestamp {
        let at = self.rule.idle_at(&state.state);
        moved(at, self.bug == Bug::ForgetEarly, self.bug == Bug::ForgetLate)
    }

    fn join(&self, state: &mut SeededState, other: &SeededState) {
        if self.bug != Bug::JoinKeepsSmaller {
            self.rule.join(&mut state.state, &other.state);
        }
    }

    fn check(&self, state: &mut SeededState, cost: Cost, now: Timestamp) -> Decision {
        let decision = self.decide(state, cost, now);
        if decision.allowed || (self.bug == Bug::ChargeOnDenial && cost <= self.rule.cost_max()) {
            self.charge(state, cost, now);
        }
        decision
    }

    fn peek(&self, state: &SeededState, now: Timestamp) -> Decision {
        match self.bug {
            Bug::PeekSpends => self.rule.decide(&state.state, 1, now),
            _ => self.rule.peek(&state.state, now),
        }
    }

    fn forecast(&self, state: &SeededState, cost: Cost, now: Timestamp) -> Forecast {
        let right = self.rule.forecast(&state.state, cost, now);
        let bug = |name| self.bug == name;
        Forecast {
            next_replenish_at: moved(
                right.next_replenish_at,
                bug(Bug::ReplenishEarly),
                bug(Bug::ReplenishLate),
            ),
            full_at: moved(right.full_at, bug(Bug::FullEarly), bug(Bug::FullLate)),
            ..right
        }
    }
}

fn moved(at: Timestamp, early: bool, late: bool) -> Timestamp {
    Timestamp::from_nanos((at.as_nanos() + u64::from(late)).saturating_sub(u64::from(early)))
}
