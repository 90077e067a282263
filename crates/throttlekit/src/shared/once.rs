//! Charges to several limits that count once.
//!
//! A debit of several limits and a record of it are one atomic group. The record is a limit of one unit: while it is
//! spent, the debit was charged. So a debit that is sent again finds that out in the call that would charge it, on
//! every store.

use std::time::Duration;

use throttlekit_core::rate::shared::ScriptEncoding;
use throttlekit_core::rate::{Limit, Mark, Need, Rate, Rule, Settle, State};
use throttlekit_core::{Decision, Retry, Timestamp, combine};

use super::Answer;
use super::strict::Strict;
use crate::store::{CHARGES_MAX, Charge, DebitId, Outcome, REMEMBER_MAX, Store, StoreError};
use crate::{BuildError, Guarantee};

/// Precision of the time of a charge that was found later: that of stores.
const PRECISION: Duration = Duration::from_micros(1);

/// The outcome of a debit that counts once.
pub(crate) enum Once {
    /// It was decided now.
    Now(Outcome),
    /// It was charged before, about at this time. The outcome is that of another debit of the same cost now.
    Before(Outcome, Timestamp),
}

/// Returns the limit of records that are kept for this long.
pub(super) fn record(remember: Duration) -> Result<ScriptEncoding, BuildError> {
    let kept = remember.clamp(Duration::from_millis(1), REMEMBER_MAX);
    let limit = Limit::gcra(Rate::per(1, Duration::from_micros(kept.as_micros() as u64)).burst(1))?;
    Ok(ScriptEncoding::of(&limit)?)
}

/// Returns the key of the record of a debit: in the cluster slot of the keys that it charges, and apart from all others.
fn record_of(key: &str, id: DebitId) -> String {
    let (slot, rest) = key.split_at(key.find('}').map_or(0, |end| end + 1));
    format!("{slot}g:%once/{:x}.{:x}:{rest}", id.stream, id.number)
}

impl<S: Store> Strict<S> {
    /// Charges several limits, all or none, unless this debit was charged before. No fallback applies.
    pub(crate) async fn charge_once(&self, charges: &[Charge<'_>], id: DebitId) -> Result<Once, StoreError> {
        if charges.len() >= CHARGES_MAX {
            return Err(StoreError::misconfigured(format_args!(
                "a debit with an idempotency key charges at most {} limits: use fewer",
                CHARGES_MAX - 1
            )));
        }
        let key = record_of(charges[0].key, id);
        let record = Charge { key: &key, form: &self.once, cost: 1 };
        let all: Vec<_> = charges.iter().copied().chain([record]).collect();
        let mut outcome = self.admit(&all).await?;
        let recorded = outcome.decisions.pop().filter(|decision| !decision.allowed);
        outcome.marks.truncate(charges.len());
        outcome.verdict = Need::All.judge(&outcome.decisions);
        match recorded {
            None => Ok(Once::Now(outcome)),
            Some(_) if matches!(outcome.guarantee, Guarantee::Bounded(_)) => Err(StoreError::unavailable(
                "the store has no memory left for the idempotency keys of debits of several limits",
            )),
            Some(decision) => {
                let at = self.charged_at(&decision, outcome.now);
                Ok(Once::Before(outcome, at))
            }
        }
    }

    /// Returns the time at which a record was charged.
    fn charged_at(&self, record: &Decision, now: Timestamp) -> Timestamp {
        let Retry::After(wait) = record.retry_after else { return now };
        let kept = self.once.limit().period();
        Timestamp::from_nanos(now.as_nanos().saturating_sub(kept.saturating_sub(wait).as_nanos() as u64))
    }

    /// Sends a debit of several limits once. No fallback applies.
    pub(super) async fn try_debit_all(
        &self,
        charges: &[Charge<'_>],
        id: DebitId,
    ) -> Result<Answer, StoreError> {
        match self.charge_once(charges, id).await? {
            Once::Now(outcome) => {
                let answer = Answer::new(outcome.verdict.decision, self.note(&outcome), outcome.now);
                Ok(self.named(Answer { binding: outcome.verdict.binding, ..answer }))
            }
            Once::Before(outcome, _) => {
                let left = self.store.peek(charges).await?;
                let each = charges.iter().zip(&left.states);
                let each = each.map(|(charge, state)| charge.form.limit().peek(state, left.now));
                let left = each.reduce(combine).expect("at least one limit");
                let decision = Decision { allowed: true, retry_after: Retry::Now, ..left };
                Ok(Answer::new(decision, self.note(&outcome), outcome.now))
            }
        }
    }
}

/// Checks whether a charge at about this time lies in the window that is current in the outcome, so that it can be
/// returned. If that is uncertain, it cannot.
pub(crate) fn is_current(charge: &Charge<'_>, mark: Mark, at: Timestamp) -> bool {
    let limit = charge.form.limit();
    let earlier = Timestamp::from_nanos(at.as_nanos().saturating_sub(PRECISION.as_nanos() as u64));
    let in_it = |at| limit.mark(&State::default(), at) == mark;
    matches!(limit, Limit::Window(_)) && in_it(earlier) && in_it(at + PRECISION)
}
