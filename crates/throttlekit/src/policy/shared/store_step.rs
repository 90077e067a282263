//! Limits that one call to a store charges, all or none: any number of them, of the rate and the cost axis.

use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::lease::{Epoch, Return, ReturnId};
use throttlekit_core::rate::Limit;
use throttlekit_core::rate::shared::ScriptEncoding;
use throttlekit_core::{ALLOW_FULL, Decision};
use tokio::sync::Notify;

use super::draw::{Debited, Drawn, NamedDebit, Sent, Unsure};
use super::settler::Settler;
use super::step::{Bill, Charged, Job, Later, OwnedCall, Step, land};
use crate::admit::LimitInfo;
use crate::call::Part;
use crate::hash::random_u128;
use crate::policy::{Axes, Dimension};
use crate::shared::{Paid, Strict};
use crate::store::{DebitId, LeaseReturn, Settlement, Store, StoreError};
use crate::{Answer, Axis, Guarantee, LimitName};

/// Maximum number of attempts for background calls with an idempotency key, and the first pause between them, which
/// doubles each time.
const SETTLE_TRIES_MAX: u32 = 8;
const SETTLE_PAUSE: Duration = Duration::from_millis(50);

pub(super) struct StoreStep<S> {
    pub(super) limiter: Arc<Strict<S>>,
    /// The axis and the key of each limit.
    pub(super) on: Box<[Dimension]>,
    pub(super) settler: Arc<Settler>,
}

impl<S: Store> Step for StoreStep<S> {
    fn axes(&self) -> (Axis, Axis) {
        let last = if self.costs().next().is_some() { Axis::Cost } else { Axis::Rate };
        (self.first_axis(), last)
    }

    fn hands_back(&self) -> bool {
        self.limiter.limits().iter().all(Limit::hands_back)
    }

    fn limits(&self) -> Vec<LimitInfo> {
        self.on.iter().zip(self.limiter.limits()).map(|(on, limit)| on.describe(limit)).collect()
    }

    fn charge(self: Arc<Self>, call: Arc<OwnedCall>) -> Later<'static, Result<Charged, StoreError>> {
        Box::pin(async move {
            let parts = self.parts(&call, |on| on.cost(call.estimate));
            let (answer, decisions) = self.limiter.reserve(&parts).await?;
            drop(parts);
            let axes = match decisions {
                Some(decisions) => self.axes(&decisions),
                None => self.axes_without_store(&answer),
            };
            let paid = answer.receipt.map(|receipt| receipt.charged).unwrap_or_default();
            let bill = answer
                .decision
                .allowed
                .then(|| -> Box<dyn Bill> { Box::new(StoreBill::new(self, call, paid)) });
            Ok(Charged { axes, guarantee: answer.guarantee, outage: answer.outage, bill })
        })
    }
}

impl<S: Store> StoreStep<S> {
    pub(super) fn parts<'a>(&self, call: &'a OwnedCall, cost: impl Fn(Dimension) -> u64) -> Vec<Part<'a>> {
        let key_of = |place: usize| call.key_at(self.on[place].key);
        let part = |(place, on): (usize, &Dimension)| self.limiter.part_of(place, cost(*on), key_of);
        self.on.iter().enumerate().map(part).collect()
    }

    /// Returns the decision of each axis. The store evaluates all limits at once; axes after the first that denied are
    /// left out.
    fn axes(&self, decisions: &[Decision]) -> Axes {
        let mut axes = Axes::default();
        for axis in [Axis::Rate, Axis::Cost] {
            let of_axis = self.on.iter().zip(decisions).enumerate().filter(|(_, (on, _))| on.axis == axis);
            for (place, (_, decision)) in of_axis {
                let name = if decision.allowed { None } else { self.limiter.name_of(place) };
                axes.record_named(axis, *decision, name);
            }
            if axes.denied_by().is_some() {
                break;
            }
        }
        axes
    }

    /// Returns the decision of the fallback, which is one for all limits. A local share of this node names the limit;
    /// otherwise it is the first.
    fn axes_without_store(&self, answer: &Answer) -> Axes {
        let (mut axes, decision) = (Axes::default(), answer.decision);
        if decision.allowed {
            self.on.iter().for_each(|on| axes.record(on.axis, decision));
        } else if answer.guarantee == Guarantee::Local {
            axes.record_named(self.on[answer.binding].axis, decision, answer.limit_name);
        } else {
            axes.record(self.first_axis(), decision);
        }
        axes
    }

    fn first_axis(&self) -> Axis {
        if self.on.iter().any(|on| on.axis == Axis::Rate) { Axis::Rate } else { Axis::Cost }
    }

    /// Returns the indexes of the limits of the cost axis.
    fn costs(&self) -> impl Iterator<Item = usize> {
        (0..self.on.len()).filter(|&place| self.on[place].axis == Axis::Cost)
    }

    pub(super) fn form(&self, place: usize) -> &ScriptEncoding {
        self.limiter.form(place)
    }
}

/// The charge of a store for one call.
struct StoreBill<S: Store> {
    step: Arc<StoreStep<S>>,
    call: Arc<OwnedCall>,
    /// The limits that a debit charges, and their keys.
    debited: Arc<[Debited]>,
    /// The reservation. `None` once it is closed.
    paid: Option<Vec<Paid>>,
    /// The stream id of its debits, and the number of the last one.
    stream: u128,
    debits: u64,
    /// `true` if the store responded to that debit.
    answered: bool,
    /// The charge of the last debit, until it is confirmed.
    unconfirmed: Option<Drawn<S>>,
    /// Name of the limit that denied the last debit.
    denied: Option<LimitName>,
}

impl<S: Store> StoreBill<S> {
    fn new(step: Arc<StoreStep<S>>, call: Arc<OwnedCall>, paid: Vec<Paid>) -> Self {
        let debited = Debited::of(&step, &call);
        Self {
            step,
            call,
            debited,
            paid: Some(paid),
            stream: 0,
            debits: 0,
            answered: false,
            unconfirmed: None,
            denied: None,
        }
    }

    /// Charges units that were not reserved. Completes whether or not the caller waits for it.
    async fn draw(&mut self, tokens: u64) -> Result<(Decision, Guarantee), StoreError> {
        let debit =
            NamedDebit { step: self.step.clone(), debited: self.debited.clone(), tokens, id: self.next_id() };
        let drawn = land(&self.step.settler.background(), Box::pin(debit.draw())).await;
        let drawn = drawn.unwrap_or_else(|late| Err((late, None)));
        match drawn {
            Ok(Sent { decision, guarantee, denied, drawn }) => {
                self.answered = true;
                (self.unconfirmed, self.denied) = (drawn, denied);
                Ok((decision, guarantee))
            }
            Err((error, unsure)) => self.stand_in(tokens, error, unsure),
        }
    }

    /// Returns the idempotency key of a debit. After a debit that may still be in progress, the next one starts another
    /// stream: a later number in the same stream would make that one stale.
    fn next_id(&mut self) -> DebitId {
        if !std::mem::replace(&mut self.answered, false) {
            (self.stream, self.debits) = (random_u128(), 0);
        }
        self.debits += 1;
        DebitId { stream: self.stream, number: self.debits }
    }

    /// Decides by the fallback, because the store does not respond. A chunk that the fallback allows was used, charged
    /// or not; for one that it denies, the outcome is queried and any charge is returned.
    fn stand_in(
        &mut self,
        tokens: u64,
        error: StoreError,
        unsure: Option<Unsure<S>>,
    ) -> Result<(Decision, Guarantee), StoreError> {
        let cost = |on: Dimension| if on.axis == Axis::Cost { tokens } else { 0 };
        let parts = self.step.parts(&self.call, cost);
        let answer = self.step.limiter.without_store(&parts, error)?;
        if answer.decision.allowed
            && let Some(unsure) = unsure
        {
            unsure.stands();
        }
        self.denied = answer.limit_name;
        Ok((answer.decision, answer.guarantee))
    }
}

impl<S: Store> Bill for StoreBill<S> {
    fn debit(&mut self, tokens: u64) -> Later<'_, Result<(Decision, Guarantee), StoreError>> {
        Box::pin(async move {
            if self.step.costs().next().is_none() {
                return Ok((ALLOW_FULL, Guarantee::Exact));
            }
            self.draw(tokens).await
        })
    }

    fn limit_name(&self) -> Option<LimitName> {
        self.denied
    }

    fn confirm(&mut self) {
        if let Some(drawn) = self.unconfirmed.take() {
            drawn.stands();
        }
    }

    fn reject(&mut self) -> Option<Job> {
        self.unconfirmed.take().and_then(Drawn::back)
    }

    fn close(&mut self, used: Option<u64>) -> Option<Job> {
        // An unconfirmed debit is returned on drop.
        self.unconfirmed = None;
        let step = self.step.clone();
        let actual = |paid: &Paid| match used {
            None => 0,
            Some(used) if step.on[paid.limit].axis == Axis::Cost => used,
            Some(_) => paid.cost,
        };
        settlement(step.clone(), self.paid.take()?, actual)
    }
}

impl<S: Store> Drop for StoreBill<S> {
    fn drop(&mut self) {
        let job = self.close(None);
        self.step.settler.leave(job);
    }
}

/// Returns the work that replaces the charge by the actual use, if they differ. A return to a window carries an
/// idempotency key and is retried until the store responds; other rules and debts have no idempotency keys and are sent
/// once.
pub(super) fn settlement<S: Store>(
    step: Arc<StoreStep<S>>,
    paid: Vec<Paid>,
    actual: impl Fn(&Paid) -> u64,
) -> Option<Job> {
    let differs = |paid: Paid| {
        let actual = actual(&paid);
        (paid.cost != actual).then_some((paid, actual))
    };
    let differ: Vec<(Paid, u64)> = paid.into_iter().filter_map(differs).collect();
    (!differ.is_empty()).then(|| -> Job { Box::new(move |pauses| Box::pin(settle(step, differ, pauses))) })
}

async fn settle<S: Store>(
    step: Arc<StoreStep<S>>,
    differ: Vec<(Paid, u64)>,
    pauses: Arc<Notify>,
) -> Result<(), StoreError> {
    let (mut backs, mut others) = (Vec::new(), Vec::new());
    for (paid, actual) in &differ {
        let form = step.limiter.reserving(paid.limit);
        let (Paid { key, cost: charged, mark, .. }, actual) = (paid, *actual);
        if matches!(form.limit(), Limit::Window(_)) && actual < *charged {
            // The charge position of a window is the window's number.
            let back = Return { epoch: Epoch(mark.0), units: charged - actual };
            backs.push(LeaseReturn { key, form, id: ReturnId(random_u128()), back });
        } else {
            others.push(Settlement { key, form, mark: *mark, charged: *charged, actual });
        }
    }
    let store = step.limiter.store();
    let settled = if others.is_empty() { Ok(()) } else { store.settle(&others).await };
    let given = if backs.is_empty() { Ok(()) } else { again(&pauses, || store.give_back(&backs)).await };
    given.and(settled)
}

/// Retries a call with an idempotency key until the store responds, up to a maximum number of attempts.
pub(super) async fn again<T, F: Future<Output = Result<T, StoreError>>>(
    pauses: &Notify,
    send: impl Fn() -> F,
) -> Result<T, StoreError> {
    let mut pause = SETTLE_PAUSE;
    for _ in 1..SETTLE_TRIES_MAX {
        match send().await {
            Err(error) if error.may_pass() => {}
            done => return done,
        }
        pauses.notify_one();
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
    send().await
}
