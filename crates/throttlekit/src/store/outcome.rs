//! What a store is asked and what it answers.

use throttlekit_core::rate::shared::SharedForm;
use throttlekit_core::rate::{Mark, Need, Rule, Settle, State, Verdict};
use throttlekit_core::{Cost, Decision, Timestamp};

use super::StoreError;
use crate::Guarantee;

/// One limit × one key × one cost.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// The key as the store keeps it, from a [`KeySpace`](super::KeySpace).
    pub key: &'a str,
    /// The limit.
    pub form: &'a SharedForm,
    /// What the ask costs on this limit.
    pub cost: Cost,
}

/// The charges of one ask, applied all or none. Their keys differ, and share one home.
#[derive(Clone, Copy, Debug)]
pub struct Charges<'a> {
    /// Whether all limits must allow, or any.
    pub need: Need,
    /// One to sixteen charges.
    pub charges: &'a [Charge<'a>],
}

/// The answer to one ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The store's instant.
    pub now: Timestamp,
    /// The answer, and the charge that decided it.
    pub verdict: Verdict,
    /// Each limit's own answer, in the order of the charges.
    pub decisions: Vec<Decision>,
    /// Where each charge went, so that it can be settled.
    pub marks: Vec<Mark>,
    /// What this answer is worth, where that is less than what [`Store::guarantee`](super::Store::guarantee) says of all.
    pub guarantee: Guarantee,
}

/// What a store remembers, without writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// The store's instant.
    pub now: Timestamp,
    /// Each key's state, in the order asked.
    pub states: Vec<State>,
}

/// A charge to be corrected.
#[derive(Clone, Copy, Debug)]
pub struct Settlement<'a> {
    /// The key as the store keeps it.
    pub key: &'a str,
    /// The limit.
    pub form: &'a SharedForm,
    /// Where the charge went.
    pub mark: Mark,
    /// What it took.
    pub charged: Cost,
    /// What was used.
    pub actual: Cost,
}

impl Outcome {
    /// The answer of a store that found these states at `now` and `admitted` the ask or not.
    ///
    /// The rules word the answer; the store only ran their mirror. If the two disagree, its state is not ours.
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
            return Err(StoreError::bad_state(format_args!("{key}: the store and the rule disagree")));
        }
        let marks = each().map(|(c, state)| c.form.limit().mark(state, now)).collect();
        Ok(Self { now, verdict, decisions, marks, guarantee: Guarantee::Exact })
    }

    /// The same where a key was estimated: it may have used as many units less than was counted for it. Zero is a key that
    /// was counted exactly.
    #[must_use]
    pub fn estimated(mut self, units: Cost) -> Self {
        if units > 0 {
            self.guarantee = self.guarantee.weaker(Guarantee::Bounded(units));
        }
        self
    }

    /// The same where the store counted in windows with these ends, one for each charge that has one.
    ///
    /// A window of a limit that was changed since is none of the limit's own: what was charged to it must not be handed
    /// back to the one that follows, so it has no mark.
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
