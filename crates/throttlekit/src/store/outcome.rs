//! Requests to a store, and its responses.

use throttlekit_core::rate::shared::ScriptEncoding;
use throttlekit_core::rate::{Mark, Need, Rule, Settle, State, Verdict};
use throttlekit_core::{Decision, Timestamp};

use super::StoreError;
use crate::Guarantee;

/// One limit × one key × one cost.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// The key as the store keeps it, from a [`KeySpace`](super::KeySpace).
    pub key: &'a str,
    /// The limit.
    pub form: &'a ScriptEncoding,
    /// u64 of the request on this limit.
    pub cost: u64,
}

/// The charges of one request, applied all or none. Their keys differ, and share one routing key.
#[derive(Clone, Copy, Debug)]
pub struct Charges<'a> {
    /// Condition to allow: all limits, or any.
    pub need: Need,
    /// One to sixteen charges.
    pub charges: &'a [Charge<'a>],
}

/// The response to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Time of the response, by the store's clock.
    pub now: Timestamp,
    /// The decision, and the charge that decided it.
    pub verdict: Verdict,
    /// Each limit's own decision, in the order of the charges.
    pub decisions: Vec<Decision>,
    /// Position of each charge, so that it can be settled.
    pub marks: Vec<Mark>,
    /// Guarantee of this outcome, if it is weaker than [`Store::guarantee`](super::Store::guarantee) for all.
    pub guarantee: Guarantee,
}

/// The response to a single charge that nobody settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// Time of the response, by the store's clock.
    pub now: Timestamp,
    /// The decision.
    pub decision: Decision,
    /// Guarantee of this decision, if it is weaker than [`Store::guarantee`](super::Store::guarantee) for all.
    pub guarantee: Guarantee,
}

/// State in a store, read without writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Time of the response, by the store's clock.
    pub now: Timestamp,
    /// Each key's state, in the order requested.
    pub states: Vec<State>,
}

/// A charge to be corrected.
#[derive(Clone, Copy, Debug)]
pub struct Settlement<'a> {
    /// The key as the store keeps it.
    pub key: &'a str,
    /// The limit.
    pub form: &'a ScriptEncoding,
    /// Charge position.
    pub mark: Mark,
    /// Charged cost.
    pub charged: u64,
    /// Actual cost.
    pub actual: u64,
}

impl Outcome {
    /// Creates the outcome of a store that found these states at `now` and `admitted` the request or not.
    ///
    /// The rules compute the response; the store only ran their mirror. If the two disagree, its state is not ours.
    pub fn of(
        ask: &Charges<'_>,
        states: &[State],
        now: Timestamp,
        admitted: bool,
    ) -> Result<Self, StoreError> {
        let each = || ask.charges.iter().zip(states);
        let decisions: Vec<_> = each().map(|(c, state)| c.form.limit().decide(state, c.cost, now)).collect();
        let verdict = ask.need.judge(&decisions);
        if verdict.decision.allowed != admitted {
            let key = ask.charges[verdict.binding].key;
            return Err(StoreError::bad_state(format_args!(
                "{key}: the response of the store is inconsistent with the limit"
            )));
        }
        let marks = each().map(|(c, state)| c.form.limit().mark(state, now)).collect();
        Ok(Self { now, verdict, decisions, marks, guarantee: Guarantee::Exact })
    }

    /// The same for an estimated key: it may have used up to `units` less than was counted for it. Zero is a key that
    /// was counted exactly.
    #[must_use]
    pub fn estimated(mut self, units: u64) -> Self {
        if units > 0 {
            self.guarantee = self.guarantee.weaker(Guarantee::Bounded(units));
        }
        self
    }

    /// The same for a store that counted in windows with these ends, one for each charge that has one.
    ///
    /// A window of a limit that was changed since is none of the limit's own: what was charged to it must not be
    /// returned to the one that follows, so it has no charge position.
    #[must_use]
    pub fn in_windows(mut self, ask: &Charges<'_>, ends: impl Iterator<Item = Option<Timestamp>>) -> Self {
        for ((mark, charge), end) in self.marks.iter_mut().zip(ask.charges).zip(ends) {
            if end.is_some_and(|end| end > self.now && !charge.form.ends_a_window(end)) {
                *mark = Mark::NONE;
            }
        }
        self
    }
}
