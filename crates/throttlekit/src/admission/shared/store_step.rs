//! Limits that one call to a store charges, all or none: of the rate and the cost axis, as many as there are.

use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::lease::{Epoch, Return, ReturnId};
use throttlekit_core::rate::shared::SharedForm;
use throttlekit_core::rate::{Limit, Mark, Need};
use throttlekit_core::{ALLOW_FULL, Cost, Decision};

use super::keeper::Keeper;
use super::step::{Bill, Charged, Job, Later, OwnedCall, Step, land, shut_down};
use crate::admission::{Axes, Axis, Dimension};
use crate::hash::random_u128;
use crate::shared::Paid;
use crate::store::{Charge, Charges, Debit, DebitId, Debited, GiveBack, Settlement, Store, StoreError};
use crate::{Ask, Guarantee, SharedLimiter};

/// How often a debit is sent that somebody waits for. It has a name and counts once.
const DEBIT_TRIES_MAX: u32 = 3;
/// How often what has a name is sent in the background, and how long after one another at first; twice as long each time.
const SETTLE_TRIES_MAX: u32 = 8;
const SETTLE_PAUSE: Duration = Duration::from_millis(50);

pub(super) struct StoreStep<S, const N: usize> {
    pub(super) limiter: Arc<SharedLimiter<S, N>>,
    pub(super) on: [Dimension; N],
    pub(super) keeper: Arc<Keeper>,
}

impl<S: Store, const N: usize> Step for StoreStep<S, N> {
    fn axes(&self) -> (Axis, Axis) {
        let has_rate = self.on.iter().any(|on| on.axis == Axis::Rate);
        let has_cost = self.on.iter().any(|on| on.axis == Axis::Cost);
        (if has_rate { Axis::Rate } else { Axis::Cost }, if has_cost { Axis::Cost } else { Axis::Rate })
    }

    fn hands_back(&self) -> bool {
        self.limiter.limits().iter().all(Limit::hands_back)
    }

    fn charge(self: Arc<Self>, call: Arc<OwnedCall>) -> Later<'static, Result<Charged, StoreError>> {
        Box::pin(async move {
            let (answer, decisions) =
                self.limiter.reserve_all(self.asks(&call, |on| on.cost(call.estimate))).await?;
            let axes = match decisions {
                Some(decisions) => self.axes(&decisions),
                None => self.axes_without_store(answer.decision, answer.binding),
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

impl<S: Store, const N: usize> StoreStep<S, N> {
    fn asks<'a>(&self, call: &'a OwnedCall, cost: impl Fn(Dimension) -> Cost) -> [Ask<'a>; N] {
        self.on.map(|on| Ask { key: call.key_at(on.key), cost: cost(on) })
    }

    /// What each axis said. The store was asked about all at once; as everywhere, those after the first denier say nothing.
    fn axes(&self, decisions: &[Decision]) -> Axes {
        let mut axes = Axes::default();
        for axis in [Axis::Rate, Axis::Cost] {
            let of_axis = self.on.iter().zip(decisions).filter(|(on, _)| on.axis == axis);
            of_axis.for_each(|(_, decision)| axes.note(axis, *decision));
            if axes.binding_axis().is_some() {
                break;
            }
        }
        axes
    }

    /// Whatever stood in for the store has one answer for all.
    fn axes_without_store(&self, decision: Decision, binding: usize) -> Axes {
        let mut axes = Axes::default();
        if decision.allowed {
            self.on.iter().for_each(|on| axes.note(on.axis, decision));
        } else {
            axes.note(self.on[binding].axis, decision);
        }
        axes
    }

    /// The limits of the cost axis, by their places.
    fn costs(&self) -> impl Iterator<Item = usize> {
        (0..N).filter(|&place| self.on[place].axis == Axis::Cost)
    }

    /// The one limit of the cost axis, if it counts debits by name.
    fn named(&self) -> Option<usize> {
        let mut costs = self.costs();
        let place = costs.next().filter(|&place| matches!(self.form(place).limit(), Limit::Window(_)));
        place.filter(|_| costs.next().is_none())
    }

    fn form(&self, place: usize) -> &SharedForm {
        self.limiter.form_at(place)
    }
}

/// What a store charged one call.
struct StoreBill<S: Store, const N: usize> {
    step: Arc<StoreStep<S, N>>,
    call: Arc<OwnedCall>,
    /// The keys of the call's limits, as the store keeps them.
    keys: Arc<[String]>,
    /// What was set aside. Nothing once it is closed.
    paid: Option<Vec<Paid>>,
    /// The name of the next debit.
    next: DebitId,
    /// A debit of which nobody knows whether it was charged, and its tokens.
    unsure: Option<(DebitId, Cost)>,
    /// What the last debit charged, until it is confirmed.
    unconfirmed: Option<Drawn<S, N>>,
}

impl<S: Store, const N: usize> StoreBill<S, N> {
    fn new(step: Arc<StoreStep<S, N>>, call: Arc<OwnedCall>, paid: Vec<Paid>) -> Self {
        let keys = step.limiter.keys(&step.asks(&call, |_| 0)).into();
        let next = DebitId { stream: random_u128(), number: 1 };
        Self { step, call, keys, paid: Some(paid), next, unsure: None, unconfirmed: None }
    }

    /// By name where that is possible: then it may be sent again, and counts once.
    async fn debit_named(&mut self, place: usize, tokens: Cost) -> Result<(Decision, Guarantee), StoreError> {
        let id = match self.unsure {
            // The same again, after its caller went away or the store did not answer.
            Some((id, before)) if before == tokens => id,
            _ => {
                self.forget_unsure();
                let id = self.next;
                self.next.number += 1;
                id
            }
        };
        self.unsure = Some((id, tokens));
        let mut tries = 1;
        let answer = loop {
            match self.send(place, tokens, id).await {
                Err(error) if error.is_outage() && tries < DEBIT_TRIES_MAX => tries += 1,
                answer => break answer,
            }
        };
        let debited = match answer {
            Ok(debited) => debited,
            Err(error) => return self.stand_in(tokens, error),
        };
        self.unsure = None;
        let (decision, mark) = (debited.outcome.verdict.decision, debited.outcome.marks[0]);
        if decision.allowed {
            let paid = vec![Paid { limit: place, key: self.keys[place].clone(), cost: tokens, mark }];
            self.unconfirmed = Some(Drawn { step: self.step.clone(), paid });
        }
        Ok((decision, self.step.limiter.note(debited.outcome.now)))
    }

    async fn send(&self, place: usize, tokens: Cost, id: DebitId) -> Result<Debited, StoreError> {
        send_debit(&self.step, &self.keys[place], place, tokens, id).await
    }

    /// All limits of the cost axis in one call, without a name. It lands whether or not anyone waits for it.
    async fn debit_all(&mut self, tokens: Cost) -> Result<(Decision, Guarantee), StoreError> {
        let debit = draw(self.step.clone(), self.keys.clone(), tokens);
        match land(Box::pin(debit), shut_down).await {
            Ok((decision, guarantee, drawn)) => {
                self.unconfirmed = drawn;
                Ok((decision, guarantee))
            }
            Err(error) => self.stand_in(tokens, error),
        }
    }

    /// The store does not answer: whoever stands in for it does. What it lets pass is not asked for again.
    fn stand_in(&mut self, tokens: Cost, error: StoreError) -> Result<(Decision, Guarantee), StoreError> {
        let cost = |on: Dimension| if on.axis == Axis::Cost { tokens } else { 0 };
        let answer = self.step.limiter.without_store(self.step.asks(&self.call, cost), error)?;
        Ok((answer.decision, answer.guarantee))
    }

    /// A debit that nobody asks for again is found out about in the background, and given back if it was charged. What
    /// comes after it goes by another name, so that neither makes the other stale.
    fn forget_unsure(&mut self) {
        if let Some(job) = self.resolve_unsure() {
            self.step.keeper.leave(Some(job));
        }
    }

    fn resolve_unsure(&mut self) -> Option<Job> {
        let (id, tokens) = self.unsure.take()?;
        self.next = DebitId { stream: random_u128(), number: 1 };
        let (step, place) = (self.step.clone(), self.step.named()?);
        let key = self.keys[place].clone();
        Some(Box::pin(async move {
            let debited = again(|| send_debit(&step, &key, place, tokens, id)).await?;
            if !debited.outcome.verdict.decision.allowed {
                return Ok(());
            }
            let mark = debited.outcome.marks[0];
            settle(step, vec![Paid { limit: place, key, cost: tokens, mark }], |_| 0).await
        }))
    }
}

impl<S: Store, const N: usize> Bill for StoreBill<S, N> {
    fn debit(&mut self, tokens: Cost) -> Later<'_, Result<(Decision, Guarantee), StoreError>> {
        Box::pin(async move {
            match self.step.named() {
                Some(place) => self.debit_named(place, tokens).await,
                None if self.step.costs().next().is_some() => self.debit_all(tokens).await,
                None => Ok((ALLOW_FULL, Guarantee::Exact)),
            }
        })
    }

    fn confirm(&mut self) {
        if let Some(drawn) = self.unconfirmed.take() {
            drawn.stands();
        }
        // Let pass by whoever stood in for the store: if it was charged after all, it was used as well.
        self.unsure = None;
    }

    fn reject(&mut self) -> Option<Job> {
        self.unconfirmed.take().and_then(Drawn::back)
    }

    fn close(&mut self, used: Option<Cost>) -> Option<Job> {
        let paid = self.paid.take()?;
        let (step, unsure, rejected) = (self.step.clone(), self.resolve_unsure(), self.reject());
        let actual = move |paid: &Paid, on: Dimension| match used {
            None => 0,
            Some(used) if on.axis == Axis::Cost => used,
            Some(_) => paid.cost,
        };
        let on = step.on;
        let differs = paid.iter().any(|paid| paid.cost != actual(paid, on[paid.limit]));
        if !differs && unsure.is_none() && rejected.is_none() {
            return None;
        }
        Some(Box::pin(async move {
            let settled = settle(step, paid, move |paid| actual(paid, on[paid.limit])).await;
            for job in [unsure, rejected].into_iter().flatten() {
                job.await?;
            }
            settled
        }))
    }
}

impl<S: Store, const N: usize> Drop for StoreBill<S, N> {
    fn drop(&mut self) {
        let job = self.close(None);
        self.step.keeper.leave(job);
    }
}

/// What a debit charged and nobody has confirmed. Dropped, it goes back.
struct Drawn<S: Store, const N: usize> {
    step: Arc<StoreStep<S, N>>,
    paid: Vec<Paid>,
}

impl<S: Store, const N: usize> Drawn<S, N> {
    fn stands(mut self) {
        self.paid.clear();
    }

    /// What is to be done for it to go back.
    fn back(mut self) -> Option<Job> {
        self.take()
    }

    fn take(&mut self) -> Option<Job> {
        let (step, paid) = (self.step.clone(), std::mem::take(&mut self.paid));
        (!paid.is_empty()).then(|| -> Job { Box::pin(settle(step, paid, |_| 0)) })
    }
}

impl<S: Store, const N: usize> Drop for Drawn<S, N> {
    fn drop(&mut self) {
        let job = self.take();
        self.step.keeper.leave(job);
    }
}

/// Charges every limit of the cost axis, or none.
async fn draw<S: Store, const N: usize>(
    step: Arc<StoreStep<S, N>>,
    keys: Arc<[String]>,
    tokens: Cost,
) -> Result<(Decision, Guarantee, Option<Drawn<S, N>>), StoreError> {
    let places: Vec<usize> = step.costs().collect();
    let charge = |&place: &usize| Charge { key: &keys[place], form: step.form(place), cost: tokens };
    let charges: Vec<_> = places.iter().map(charge).collect();
    let answers = step.limiter.store().admit(&[Charges { need: Need::All, charges: &charges }]).await?;
    let no_answer = || StoreError::bad_state("the store left an ask without an answer");
    let outcome = answers.into_iter().next().ok_or_else(no_answer)?;
    let decision = outcome.verdict.decision;
    let guarantee = step.limiter.note(outcome.now);
    let paid = |(&place, &mark): (&usize, &Mark)| Paid {
        limit: place,
        key: keys[place].clone(),
        cost: tokens,
        mark,
    };
    let paid = decision.allowed.then(|| places.iter().zip(&outcome.marks).map(paid).collect());
    Ok((decision, guarantee, paid.map(|paid| Drawn { step, paid })))
}

async fn send_debit<S: Store, const N: usize>(
    step: &StoreStep<S, N>,
    key: &str,
    place: usize,
    tokens: Cost,
    id: DebitId,
) -> Result<Debited, StoreError> {
    let charge = Charge { key, form: step.form(place), cost: tokens };
    let debit = Debit { charge, id, remember: step.limiter.remembers() };
    let answers = step.limiter.store().debit(&[debit]).await;
    answers
        .into_iter()
        .next()
        .unwrap_or_else(|| Err(StoreError::bad_state("the store left a debit without an answer")))
}

/// Replaces what was paid by what was used. What goes back into a window does so under a name, and is sent until it is
/// answered; for other rules, and for debts, there are no names: they are sent once.
async fn settle<S: Store, const N: usize>(
    step: Arc<StoreStep<S, N>>,
    paid: Vec<Paid>,
    actual: impl Fn(&Paid) -> Cost + Send,
) -> Result<(), StoreError> {
    let (mut backs, mut others) = (Vec::new(), Vec::new());
    for paid in &paid {
        let (form, actual) = (step.limiter.reserving(paid.limit), actual(paid));
        let Paid { ref key, cost, mark, .. } = *paid;
        match form.limit() {
            Limit::Window(_) if actual < cost => {
                let back = Return { epoch: epoch(mark), units: cost - actual };
                backs.push(GiveBack { key, form, id: ReturnId(random_u128()), back });
            }
            _ if actual != cost => others.push(Settlement { key, form, mark, charged: cost, actual }),
            _ => {}
        }
    }
    let store = step.limiter.store();
    let given = if backs.is_empty() { Ok(()) } else { again(|| store.give_back(&backs)).await };
    let settled = if others.is_empty() { Ok(()) } else { store.settle(&others).await };
    given.and(settled)
}

/// A window's charge is marked by the window's number.
fn epoch(mark: Mark) -> Epoch {
    Epoch(mark.0)
}

/// Sends what has a name until it is answered, but only so often.
async fn again<T, F: Future<Output = Result<T, StoreError>>>(send: impl Fn() -> F) -> Result<T, StoreError> {
    let mut pause = SETTLE_PAUSE;
    for _ in 1..SETTLE_TRIES_MAX {
        match send().await {
            Err(error) if error.is_outage() => {}
            done => return done,
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
    send().await
}
