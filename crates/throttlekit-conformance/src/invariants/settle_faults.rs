//! Rules with bugs in settling.

use throttlekit_core::rate::{Limit, Mark, Rule, Settle, State, UNITS_MAX};
use throttlekit_core::{Cost, Decision, Timestamp};

crate::bugs! {
    /// The bug of a [`Faulty`] rule.
    pub(super) enum SettleBug {
        RefundByMarkOnly: "A refund counts whatever has passed since its charge.",
        RefundTwice: "A refund counts twice.",
        RefundOfAnyWindow: "A refund counts in whichever window it arrives.",
        RefundForgotten: "Refunds are ignored.",
        RefundOfAShaper: "A shaper refunds turns that have passed.",
        DebtStopsAtLimit: "What was used beyond the limit is not owed.",
        DebtWithoutEnd: "What is owed may last longer than the longest debt.",
        DebtForgotten: "What was used beyond the estimate is not charged.",
    }
}

/// A limit that decides and charges correctly, and settles incorrectly.
pub(super) struct Faulty {
    rule: Limit,
    bug: SettleBug,
}

impl Faulty {
    pub(super) fn new(rule: Limit, bug: SettleBug) -> Self {
        Self { rule, bug }
    }

    /// Subtracts the units from the current state, as if no time had passed since the charge.
    fn refund_now(&self, state: &mut State, units: Cost, now: Timestamp) {
        let mut charged = state.clone();
        self.rule.charge(&mut charged, units, now);
        if let (State::Tat(tat), State::Tat(more)) = (state, charged) {
            tat.0 = tat.0.saturating_sub(more.0 - tat.0);
        }
    }
}

impl Rule for Faulty {
    type State = State;

    fn decide(&self, state: &State, cost: Cost, now: Timestamp) -> Decision {
        self.rule.decide(state, cost, now)
    }

    fn charge(&self, state: &mut State, cost: Cost, now: Timestamp) {
        self.rule.charge(state, cost, now);
    }

    fn idle_at(&self, state: &State) -> Timestamp {
        self.rule.idle_at(state)
    }

    fn join(&self, state: &mut State, other: &State) {
        self.rule.join(state, other);
    }
}

impl Settle for Faulty {
    fn mark(&self, state: &State, now: Timestamp) -> Mark {
        self.rule.mark(state, now)
    }

    fn refund(&self, state: &mut State, mark: Mark, units: Cost, now: Timestamp) {
        match self.bug {
            SettleBug::RefundForgotten => {}
            SettleBug::RefundTwice => (0..2).for_each(|_| self.rule.refund(state, mark, units, now)),
            SettleBug::RefundOfAnyWindow => {
                self.rule.refund(state, self.rule.mark(state, now), units, now);
            }
            SettleBug::RefundByMarkOnly | SettleBug::RefundOfAShaper => self.refund_now(state, units, now),
            _ => self.rule.refund(state, mark, units, now),
        }
    }

    fn owe(&self, state: &mut State, units: Cost, now: Timestamp) {
        match self.bug {
            SettleBug::DebtForgotten => {}
            SettleBug::DebtStopsAtLimit => {
                let left = self.rule.decide(state, 0, now).remaining;
                self.rule.owe(state, units.min(left.saturating_sub(1)), now);
            }
            SettleBug::DebtWithoutEnd => self.rule.charge(state, units.min(UNITS_MAX / 100), now),
            _ => self.rule.owe(state, units, now),
        }
    }
}
