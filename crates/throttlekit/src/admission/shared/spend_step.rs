//! Limits that are spent in process from what a store lent: a node that leases, a place that shares by weight.

use std::sync::Arc;

use throttlekit_core::rate::Mark;
use throttlekit_core::{ALLOW_FULL, Cost, Decision, Timestamp};

use super::keeper::Keeper;
use super::step::{Bill, Charged, Job, Later, OwnedCall, Step};
use crate::admission::{Axes, Axis, Dimension};
use crate::fair::Budget;
use crate::store::{Settlement, Store, StoreError};
use crate::{Answer, Ask, Guarantee, LeaseClock, Receipt, SharedFairLimiter, TwoTier};

/// Something that is spent by key, and takes back what was spent too much.
pub(super) trait Spends: Send + Sync + 'static {
    fn check(&self, ask: Ask<'_>) -> impl Future<Output = Result<Answer, StoreError>> + Send;

    /// Takes back units of the window that ends at `reset_at`.
    fn refund(&self, key: &[u8], units: Cost, reset_at: Timestamp);

    /// Settles what the store itself charged.
    fn settle(self: Arc<Self>, receipt: Receipt, actual: Cost) -> Job;

    /// Takes what was used and not asked for.
    fn owe(self: Arc<Self>, key: &[u8], units: Cost) -> Option<Job>;
}

impl<S: Store, C: LeaseClock + 'static> Spends for TwoTier<S, C> {
    fn check(&self, ask: Ask<'_>) -> impl Future<Output = Result<Answer, StoreError>> + Send {
        Self::check(self, ask)
    }

    fn refund(&self, key: &[u8], units: Cost, reset_at: Timestamp) {
        let _pending = (key, units, reset_at);
    }

    fn settle(self: Arc<Self>, receipt: Receipt, actual: Cost) -> Job {
        Box::pin(async move { self.shared().settle(receipt, [actual]).await })
    }

    fn owe(self: Arc<Self>, key: &[u8], units: Cost) -> Option<Job> {
        let key = self.shared().key(key);
        Some(Box::pin(async move {
            let (form, mark) = (self.shared().form(), Mark(0));
            let debt = Settlement { key: &key, form, mark, charged: 0, actual: units };
            self.shared().store().settle(&[debt]).await
        }))
    }
}

impl<B: Budget, C: LeaseClock + 'static> Spends for SharedFairLimiter<B, C> {
    fn check(&self, ask: Ask<'_>) -> impl Future<Output = Result<Answer, StoreError>> + Send {
        Self::check(self, ask)
    }

    fn refund(&self, key: &[u8], units: Cost, reset_at: Timestamp) {
        let _pending = (key, units, reset_at);
    }

    /// A place spends only what it was granted; the store charges nobody for it.
    fn settle(self: Arc<Self>, _receipt: Receipt, _actual: Cost) -> Job {
        Box::pin(std::future::ready(Ok(())))
    }

    /// As much of it as the tenant can have: what a place was not granted it cannot take.
    fn owe(self: Arc<Self>, key: &[u8], units: Cost) -> Option<Job> {
        let key: Box<[u8]> = key.into();
        Some(Box::pin(async move { Self::check(&*self, Ask { key: &key, cost: units }).await.map(drop) }))
    }
}

pub(super) struct SpendStep<M> {
    pub(super) meter: Arc<M>,
    pub(super) on: Dimension,
    pub(super) keeper: Arc<Keeper>,
}

impl<M: Spends> Step for SpendStep<M> {
    fn axes(&self) -> (Axis, Axis) {
        (self.on.axis, self.on.axis)
    }

    fn charge(self: Arc<Self>, call: Arc<OwnedCall>) -> Later<'static, Result<Charged, StoreError>> {
        Box::pin(async move {
            let cost = self.on.cost(call.estimate);
            let answer = self.meter.check(Ask { key: call.key_at(self.on.key), cost }).await?;
            let mut axes = Axes::default();
            axes.note(self.on.axis, answer.decision);
            let (guarantee, outage) = (answer.guarantee, answer.outage.clone());
            let bill = answer.decision.allowed.then(|| -> Box<dyn Bill> {
                let paid = Some(Spent::of(answer, cost));
                Box::new(SpendBill { step: self, call, paid, unconfirmed: None })
            });
            Ok(Charged { axes, guarantee, outage, bill })
        })
    }
}

/// What was spent at one time.
struct Spent {
    units: Cost,
    reset_at: Timestamp,
    from: From,
}

/// Where it came from.
enum From {
    /// What this process holds.
    Hand,
    /// The store itself.
    Store(Receipt),
    /// Nowhere: something stood in for the store.
    Nowhere,
}

impl Spent {
    fn of(answer: Answer, units: Cost) -> Self {
        let from = match (answer.receipt, answer.outage) {
            (Some(receipt), _) => From::Store(receipt),
            (None, None) => From::Hand,
            (None, Some(_)) => From::Nowhere,
        };
        Self { units, reset_at: answer.decision.reset_at, from }
    }
}

struct SpendBill<M: Spends> {
    step: Arc<SpendStep<M>>,
    call: Arc<OwnedCall>,
    /// Nothing once it is closed.
    paid: Option<Spent>,
    unconfirmed: Option<Spent>,
}

impl<M: Spends> SpendBill<M> {
    fn key(&self) -> &[u8] {
        self.call.key_at(self.step.on.key)
    }

    /// Replaces what was spent by what was used.
    fn settle(&self, spent: Spent, actual: Cost) -> Option<Job> {
        let meter = &self.step.meter;
        let Spent { units, reset_at, from } = spent;
        match from {
            _ if units == actual => None,
            From::Store(receipt) => Some(meter.clone().settle(receipt, actual)),
            From::Hand if actual < units => {
                meter.refund(self.key(), units - actual, reset_at);
                None
            }
            From::Hand => meter.clone().owe(self.key(), actual - units),
            From::Nowhere => None,
        }
    }
}

impl<M: Spends> Bill for SpendBill<M> {
    fn debit(&mut self, tokens: Cost) -> Later<'_, Result<(Decision, Guarantee), StoreError>> {
        Box::pin(async move {
            if self.step.on.axis == Axis::Rate {
                return Ok((ALLOW_FULL, Guarantee::Exact));
            }
            let answer = self.step.meter.check(Ask { key: self.key(), cost: tokens }).await?;
            let (decision, guarantee) = (answer.decision, answer.guarantee);
            self.unconfirmed = decision.allowed.then(|| Spent::of(answer, tokens));
            Ok((decision, guarantee))
        })
    }

    fn confirm(&mut self) {
        self.unconfirmed = None;
    }

    fn reject(&mut self) -> Option<Job> {
        let spent = self.unconfirmed.take()?;
        self.settle(spent, 0)
    }

    fn close(&mut self, used: Option<Cost>) -> Option<Job> {
        let spent = self.paid.take()?;
        let rejected = self.reject();
        let actual = match used {
            None => 0,
            Some(_) if self.step.on.axis == Axis::Rate => spent.units,
            Some(used) => used,
        };
        let settled = self.settle(spent, actual);
        match (settled, rejected) {
            (Some(settled), Some(rejected)) => {
                Some(Box::pin(async move { settled.await.and(rejected.await) }))
            }
            (settled, rejected) => settled.or(rejected),
        }
    }
}

impl<M: Spends> Drop for SpendBill<M> {
    fn drop(&mut self) {
        let job = self.close(None);
        self.step.keeper.leave(job);
    }
}
