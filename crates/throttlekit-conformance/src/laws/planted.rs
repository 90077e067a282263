//! Rules with a deliberate bug, to show that each law can fail.

use std::time::Duration;

use throttlekit_core::rate::{Limit, Rule, State};
use throttlekit_core::{Cost, Decision, Forecast, Retry, Timestamp};

use super::limit;
use crate::Spec;

/// What is wrong with a [`Planted`] rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Bug {
    ClockTrusted,
    ChargeOnDenial,
    CostIgnored,
    OneUnitMore,
    OneUnitFewer,
    OneNanoEarly,
    OneNanoLate,
    RetryEarly,
    RetryLate,
    NeverAsWait,
    JoinKeepsSmaller,
    ForgetEarly,
    ForgetLate,
    PeekSpends,
    ReplenishEarly,
    ReplenishLate,
    FullEarly,
    FullLate,
}

/// A limit with one bug.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    rule: Limit,
    bug: Bug,
}

/// The rule's state, and the instant of the last charge.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlantedState {
    state: State,
    charged: Timestamp,
}

const TICK: Duration = Duration::from_nanos(1);

impl Planted {
    /// The limit described, with this bug.
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

impl Rule for Planted {
    type State = PlantedState;

    fn decide(&self, state: &PlantedState, cost: Cost, now: Timestamp) -> Decision {
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

    fn charge(&self, state: &mut PlantedState, cost: Cost, now: Timestamp) {
        if self.bug == Bug::ClockTrusted && now < state.charged {
            state.state = State::default();
        }
        let cost = if self.bug == Bug::CostIgnored { cost.min(1) } else { cost };
        self.rule.charge(&mut state.state, cost, now);
        state.charged = now;
    }

    fn idle_at(&self, state: &PlantedState) -> Timestamp {
        let at = self.rule.idle_at(&state.state);
        moved(at, self.bug == Bug::ForgetEarly, self.bug == Bug::ForgetLate)
    }

    fn join(&self, state: &mut PlantedState, other: &PlantedState) {
        if self.bug != Bug::JoinKeepsSmaller {
            self.rule.join(&mut state.state, &other.state);
        }
    }

    fn check(&self, state: &mut PlantedState, cost: Cost, now: Timestamp) -> Decision {
        let decision = self.decide(state, cost, now);
        if decision.allowed || (self.bug == Bug::ChargeOnDenial && cost <= self.rule.cost_max()) {
            self.charge(state, cost, now);
        }
        decision
    }

    fn peek(&self, state: &PlantedState, now: Timestamp) -> Decision {
        match self.bug {
            Bug::PeekSpends => self.rule.decide(&state.state, 1, now),
            _ => self.rule.peek(&state.state, now),
        }
    }

    fn forecast(&self, state: &PlantedState, cost: Cost, now: Timestamp) -> Forecast {
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
