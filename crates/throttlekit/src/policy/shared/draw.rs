//! Debits of admitted calls beyond their reservation: charged to all limits of the cost axis, or to none.

use std::sync::Arc;

use throttlekit_core::rate::{Limit, Mark, Need};
use throttlekit_core::{Decision, Retry};

use super::step::{Job, OwnedCall};
use super::store_step::{StoreStep, again, settlement};
use crate::shared::{Once, Paid, is_current};
use crate::store::{Charge, Charges, Debit, DebitId, Outcome, Store, StoreError};
use crate::{Axis, Guarantee, LimitName};

/// Maximum number of attempts for a debit that a caller waits for. It carries an idempotency key and counts once.
const DEBIT_TRIES_MAX: u32 = 3;

/// A limit of the cost axis that a call is debited on.
pub(super) struct Debited {
    /// Index of the limit.
    place: usize,
    /// The key as the store keeps it.
    key: String,
}

impl Debited {
    /// Returns the limits that a call is debited on. One that leaves the call out is not among them.
    pub(super) fn of<S: Store>(step: &StoreStep<S>, call: &OwnedCall) -> Arc<[Self]> {
        let parts = step.parts(call, |_| 0);
        let keys = step.limiter.keys(&parts).into_iter().enumerate();
        let counted = |place: usize| {
            step.on[place].axis == Axis::Cost && !step.limiter.is_left_out(place, parts[place])
        };
        keys.filter(|(place, _)| counted(*place)).map(|(place, key)| Self { place, key }).collect()
    }
}

/// The charge of an unconfirmed debit. It is returned on drop.
pub(super) struct Drawn<S: Store> {
    step: Arc<StoreStep<S>>,
    paid: Vec<Paid>,
}

impl<S: Store> Drawn<S> {
    pub(super) fn stands(mut self) {
        self.paid.clear();
    }

    /// Returns the work to do to return the charge.
    pub(super) fn back(mut self) -> Option<Job> {
        self.take()
    }

    fn take(&mut self) -> Option<Job> {
        settlement(self.step.clone(), std::mem::take(&mut self.paid), |_| 0)
    }
}

impl<S: Store> Drop for Drawn<S> {
    fn drop(&mut self) {
        let job = self.take();
        self.step.settler.leave(job);
    }
}

/// A debit with an unknown outcome. On drop the outcome is queried with its idempotency key, and any charge is
/// returned.
pub(super) struct Unsure<S: Store>(Option<NamedDebit<S>>);

impl<S: Store> Unsure<S> {
    pub(super) fn stands(mut self) {
        self.0 = None;
    }
}

impl<S: Store> Drop for Unsure<S> {
    fn drop(&mut self) {
        let Some(debit) = self.0.take() else { return };
        let settler = debit.step.settler.clone();
        settler.leave(Some(Box::new(move |pauses| {
            Box::pin(async move {
                let sent = again(&pauses, || debit.send()).await?;
                match sent.drawn.and_then(Drawn::back) {
                    Some(job) => job(pauses).await,
                    None => Ok(()),
                }
            })
        })));
    }
}

/// A debit with an idempotency key: it may be retried, and counts once.
pub(super) struct NamedDebit<S: Store> {
    pub(super) step: Arc<StoreStep<S>>,
    pub(super) debited: Arc<[Debited]>,
    pub(super) tokens: u64,
    pub(super) id: DebitId,
}

/// The result of a debit: the decision, and its charge if it was allowed.
pub(super) struct Sent<S: Store> {
    pub(super) decision: Decision,
    pub(super) guarantee: Guarantee,
    /// Name of the limit that denied.
    pub(super) denied: Option<LimitName>,
    pub(super) drawn: Option<Drawn<S>>,
}

/// The same, or an error with the uncertain charge.
pub(super) type Drawing<S> = Result<Sent<S>, (StoreError, Option<Unsure<S>>)>;

impl<S: Store> NamedDebit<S> {
    /// Sends the debit until the store responds, a few times at most.
    pub(super) async fn draw(self) -> Drawing<S> {
        let mut tries = 1;
        let sent = loop {
            match self.send().await {
                Err(error) if error.may_pass() && tries < DEBIT_TRIES_MAX => tries += 1,
                sent => break sent,
            }
        };
        sent.map_err(|error| (error, Some(Unsure(Some(self)))))
    }

    async fn send(&self) -> Result<Sent<S>, StoreError> {
        let limiter = &self.step.limiter;
        let charges: Vec<_> = self.debited.iter().map(|debited| self.charge(debited)).collect();
        if let [charge] = charges[..]
            && matches!(charge.form.limit(), Limit::Window(_))
        {
            let debit = Debit { charge, id: self.id, remember: limiter.remembers() };
            let answers = limiter.store().debit(&[debit]).await;
            let none = || Err(StoreError::bad_state("the store returned too few results"));
            return Ok(self.decided(&answers.into_iter().next().unwrap_or_else(none)?.outcome));
        }
        // A store in this process loses no replies, so its debits need no record.
        if let Some(outcome) = limiter.store().admit_now(&Charges { need: Need::All, charges: &charges }) {
            return Ok(self.decided(&outcome?));
        }
        Ok(match limiter.charge_once(&charges, self.id).await? {
            Once::Now(outcome) => self.decided(&outcome),
            Once::Before(outcome, at) => {
                let marks = charges.iter().zip(&outcome.marks).enumerate();
                let current = marks.filter(|(_, (charge, mark))| is_current(charge, **mark, at));
                let drawn = self.drawn(current.map(|(index, (_, mark))| (index, *mark)));
                let left = outcome.verdict.decision;
                let decision = Decision { allowed: true, retry_after: Retry::Now, ..left };
                Sent { decision, guarantee: limiter.note(&outcome), denied: None, drawn: Some(drawn) }
            }
        })
    }

    fn charge<'a>(&'a self, debited: &'a Debited) -> Charge<'a> {
        Charge { key: &debited.key, form: self.step.form(debited.place), cost: self.tokens }
    }

    fn decided(&self, outcome: &Outcome) -> Sent<S> {
        let decision = outcome.verdict.decision;
        let drawn = decision.allowed.then(|| self.drawn(outcome.marks.iter().copied().enumerate()));
        let place = self.debited[outcome.verdict.binding].place;
        let denied = if decision.allowed { None } else { self.step.limiter.name_of(place) };
        Sent { decision, guarantee: self.step.limiter.note(outcome), denied, drawn }
    }

    /// Returns the charge of the limits at these indexes, with their charge positions.
    fn drawn(&self, charged: impl Iterator<Item = (usize, Mark)>) -> Drawn<S> {
        let paid = |(index, mark): (usize, Mark)| {
            let Debited { place, key } = &self.debited[index];
            Paid { limit: *place, key: key.clone(), cost: self.tokens, mark }
        };
        Drawn { step: self.step.clone(), paid: charged.map(paid).collect() }
    }
}
