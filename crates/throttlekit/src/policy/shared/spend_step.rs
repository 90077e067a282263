//! Limits that are spent in process from units that a store granted: a leased limiter, or a participant of a fair
//! budget.

use std::sync::Arc;

use throttlekit_core::rate::{Limit, Mark};
use throttlekit_core::{ALLOW_FULL, Decision, Timestamp};

use super::settler::Settler;
use super::step::{Bill, Charged, Job, Later, OwnedCall, Step, land};
use crate::admit::LimitInfo;
use crate::clock::LeaseClock;
use crate::policy::{Axes, Dimension};
use crate::shared::Receipt;
use crate::store::{Settlement, Store, StoreError};
use crate::{Answer, Axis, Call, Guarantee, LimitName, SharedFairLimiter, SharedLimiter};

/// A limit that is spent by key, and that takes unused units back.
pub(super) trait Spends: Send + Sync + 'static {
    fn check(&self, ask: Call<'_>) -> impl Future<Output = Result<Answer, StoreError>> + Send;

    /// Checks whether spent units can be returned.
    fn hands_back(&self) -> bool;

    /// Returns the limit, if it is a rate limit.
    fn limit(&self) -> Option<Limit> {
        None
    }

    /// Takes back units of the window that ends at `reset_at`.
    fn refund(&self, key: &[u8], units: u64, reset_at: Timestamp);

    /// Settles a charge of the store itself.
    fn settle(self: Arc<Self>, receipt: Receipt, actual: u64) -> Job;

    /// Charges units that were used without a request.
    fn owe(self: Arc<Self>, key: &[u8], units: u64) -> Option<Job>;
}

impl<S: Store, C: LeaseClock + 'static> Spends for SharedLimiter<S, C> {
    fn check(&self, ask: Call<'_>) -> impl Future<Output = Result<Answer, StoreError>> + Send {
        Self::check(self, ask)
    }

    fn hands_back(&self) -> bool {
        Self::hands_back(self)
    }

    fn limit(&self) -> Option<Limit> {
        Some(self.limits()[0])
    }

    fn refund(&self, key: &[u8], units: u64, reset_at: Timestamp) {
        Self::refund(self, key, units, reset_at);
    }

    fn settle(self: Arc<Self>, receipt: Receipt, actual: u64) -> Job {
        Box::new(move |_| Box::pin(async move { Self::settle(&self, receipt, actual).await }))
    }

    fn owe(self: Arc<Self>, key: &[u8], units: u64) -> Option<Job> {
        let key = self.strict().key(key);
        Some(Box::new(move |_| {
            Box::pin(async move {
                let (form, mark) = (self.strict().form(0), Mark(0));
                let debt = Settlement { key: &key, form, mark, charged: 0, actual: units };
                self.store().settle(&[debt]).await
            })
        }))
    }
}

impl<C: LeaseClock + 'static> Spends for SharedFairLimiter<C> {
    fn check(&self, ask: Call<'_>) -> impl Future<Output = Result<Answer, StoreError>> + Send {
        Self::check(self, ask)
    }

    fn hands_back(&self) -> bool {
        true
    }

    fn refund(&self, key: &[u8], units: u64, reset_at: Timestamp) {
        Self::refund(self, key, units, reset_at);
    }

    /// A participant spends only what it was granted; the store charges nothing for it.
    fn settle(self: Arc<Self>, _receipt: Receipt, _actual: u64) -> Job {
        Box::new(|_| Box::pin(std::future::ready(Ok(()))))
    }

    /// Charges as much as the tenant can have: a participant cannot charge units that it was not granted.
    fn owe(self: Arc<Self>, key: &[u8], units: u64) -> Option<Job> {
        let key: Box<[u8]> = key.into();
        Some(Box::new(move |_| {
            Box::pin(async move {
                let most = Self::check(&*self, Call::by(&key).cost(0)).await?.decision.remaining;
                Self::check(&*self, Call::by(&key).cost(units.min(most))).await.map(drop)
            })
        }))
    }
}

pub(super) struct SpendStep<M> {
    pub(super) meter: Arc<M>,
    pub(super) on: Dimension,
    pub(super) settler: Arc<Settler>,
}

impl<M: Spends> Step for SpendStep<M> {
    fn axes(&self) -> (Axis, Axis) {
        (self.on.axis, self.on.axis)
    }

    fn hands_back(&self) -> bool {
        self.meter.hands_back()
    }

    fn limits(&self) -> Vec<LimitInfo> {
        self.meter.limit().iter().map(|limit| self.on.describe(limit)).collect()
    }

    fn charge(self: Arc<Self>, call: Arc<OwnedCall>) -> Later<'static, Result<Charged, StoreError>> {
        Box::pin(async move {
            let (on, cost) = (self.on, self.on.cost(call.estimate));
            let (answer, spent) = Spent::ask(self, call, cost).await?;
            let mut axes = Axes::default();
            axes.record_named(on.axis, answer.decision, answer.limit_name);
            let bill =
                |paid| -> Box<dyn Bill> { Box::new(SpendBill { paid, unconfirmed: None, denied: None }) };
            Ok(Charged { axes, guarantee: answer.guarantee, outage: answer.outage, bill: spent.map(bill) })
        })
    }
}

/// Units spent at one time. If dropped open, all of them are returned.
struct Spent<M: Spends> {
    step: Arc<SpendStep<M>>,
    call: Arc<OwnedCall>,
    units: u64,
    reset_at: Timestamp,
    /// `None` once it is closed.
    from: Option<From>,
}

/// Origin of spent units.
enum From {
    /// Units that this process holds.
    Hand,
    /// Units of the store itself.
    Store(Receipt),
    /// No units: a fallback decided for the store.
    Nowhere,
}

impl<M: Spends> Spent<M> {
    /// Sends a request, which completes whether or not the caller waits for it.
    async fn ask(
        step: Arc<SpendStep<M>>,
        call: Arc<OwnedCall>,
        units: u64,
    ) -> Result<(Answer, Option<Self>), StoreError> {
        let request = Call::by(call.key_at(step.on.key)).cost(units).weighing(call.weight());
        let mut answer = step.meter.check(request).await?;
        if !answer.decision.allowed {
            return Ok((answer, None));
        }
        let from = match (answer.receipt.take(), &answer.outage) {
            (Some(receipt), _) => From::Store(receipt),
            (None, None) => From::Hand,
            (None, Some(_)) => From::Nowhere,
        };
        let reset_at = answer.decision.reset_at;
        Ok((answer, Some(Self { step, call, units, reset_at, from: Some(from) })))
    }

    /// Replaces the spent units by the actual use. Once.
    fn close(&mut self, actual: u64) -> Option<Job> {
        let (meter, units, from) = (&self.step.meter, self.units, self.from.take()?);
        let key = self.call.key_at(self.step.on.key);
        match from {
            _ if units == actual => None,
            From::Store(receipt) => Some(meter.clone().settle(receipt, actual)),
            From::Hand if actual < units => {
                meter.refund(key, units - actual, self.reset_at);
                None
            }
            From::Hand => meter.clone().owe(key, actual - units),
            From::Nowhere => None,
        }
    }
}

impl<M: Spends> Drop for Spent<M> {
    fn drop(&mut self) {
        let job = self.close(0);
        self.step.settler.leave(job);
    }
}

struct SpendBill<M: Spends> {
    paid: Spent<M>,
    unconfirmed: Option<Spent<M>>,
    /// Name of the limit, if it denied the last debit.
    denied: Option<LimitName>,
}

impl<M: Spends> Bill for SpendBill<M> {
    fn debit(&mut self, tokens: u64) -> Later<'_, Result<(Decision, Guarantee), StoreError>> {
        Box::pin(async move {
            let (step, call) = (self.paid.step.clone(), self.paid.call.clone());
            let background = step.settler.background();
            if step.on.axis == Axis::Rate {
                return Ok((ALLOW_FULL, Guarantee::Exact));
            }
            let (answer, spent) = land(&background, Box::pin(Spent::ask(step, call, tokens))).await??;
            (self.unconfirmed, self.denied) = (spent, answer.limit_name);
            Ok((answer.decision, answer.guarantee))
        })
    }

    fn limit_name(&self) -> Option<LimitName> {
        self.denied
    }

    fn confirm(&mut self) {
        if let Some(mut spent) = self.unconfirmed.take() {
            spent.from = None;
        }
    }

    fn reject(&mut self) -> Option<Job> {
        self.unconfirmed.take().and_then(|mut spent| spent.close(0))
    }

    fn close(&mut self, used: Option<u64>) -> Option<Job> {
        let rejected = self.reject();
        let actual = match used {
            None => 0,
            Some(_) if self.paid.step.on.axis == Axis::Rate => self.paid.units,
            Some(used) => used,
        };
        match (self.paid.close(actual), rejected) {
            (Some(settled), Some(rejected)) => Some(Box::new(move |pauses| {
                Box::pin(async move { settled(pauses.clone()).await.and(rejected(pauses).await) })
            })),
            (settled, rejected) => settled.or(rejected),
        }
    }
}
