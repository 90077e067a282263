//! What users hold where an axis is shared with other processes.

use std::fmt;
use std::sync::Arc;

use super::builder::SharedPolicyBuilder;
use super::permit::SharedPermit;
use super::settler::{SettleStats, Settler};
use super::slots::Slots;
use super::step::{OwnedCall, Step, land};
use crate::admission::answer::Told;
use crate::admission::{Admission, Axis, Call, Observer};
use crate::store::StoreError;
use crate::{Guarantee, Pricer};

/// Every axis that a request must clear, each in this process or shared with others: one call, one answer, one permit.
///
/// A call is asked on concurrency, price, rate, cost and fairness, in this order; the first that denies ends it, and is
/// named. What axes before it had taken is given back before the answer. Limits that lie [together](SharedPolicyBuilder::together)
/// on one store are asked in one round trip.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use throttlekit::admission::{Axis, Call, SharedPolicy};
/// use throttlekit::{KeyedGuard, Limit, Rate, SharedLimiter, store::MemoryStore};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let minute = Limit::token_budget(100_000, Duration::from_secs(60))?;
/// let limits = [("calls", Limit::try_from(Rate::per_minute(60))?), ("tokens", minute)];
/// // In production a RedisStore or a PostgresStore.
/// let limiter = SharedLimiter::all(MemoryStore::new(), "chat", limits)?.home(0);
/// let chat = SharedPolicy::builder("chat")
///     .concurrency(KeyedGuard::builder(8).build())
///     .together(limiter, [Axis::Rate, Axis::Cost])
///     .build()?;
///
/// let admission = chat.admit(Call::by("acme").cost(1_500)).await?;
/// let Some(mut permit) = admission.permit else {
///     panic!("{:?} denied: {:?}", admission.binding_axis(), admission.decision.retry_after);
/// };
/// while permit.used() < 2_000 {
///     if !permit.debit(100).await?.allowed {
///         break; // the budget is spent: stop generating
///     }
/// }
/// permit.success();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SharedPolicy {
    pub(super) name: Box<str>,
    pub(super) slots: Slots,
    pub(super) pricer: Option<Pricer>,
    /// In the order of their axes.
    pub(super) steps: Vec<Arc<dyn Step>>,
    pub(super) observer: Option<Arc<dyn Observer>>,
    pub(super) settler: Arc<Settler>,
}

impl SharedPolicy {
    /// Describes a policy. The name stands in what those who watch are told.
    pub fn builder(name: &str) -> SharedPolicyBuilder {
        SharedPolicyBuilder::new(name)
    }

    /// Answers one call over all axes, and charges it if all allow.
    ///
    /// Whoever goes away while this waits leaves nothing behind: what is under way lands, and what it took goes back. An
    /// error says that nothing was decided, and what to look at; what axes before had taken has been given back.
    pub async fn admit<'a>(&self, call: impl Into<Call<'a>>) -> Result<Admission<SharedPermit>, StoreError> {
        let call = call.into();
        let mut admission = Admission::open();
        admission.permit = self.ask(&call, &mut admission).await?;
        let told = Told { observer: self.observer.as_deref(), policy: &self.name, call: &call };
        admission.close(told);
        Ok(admission)
    }

    async fn ask(
        &self,
        call: &Call<'_>,
        draft: &mut Admission<SharedPermit>,
    ) -> Result<Option<SharedPermit>, StoreError> {
        let entry = self.slots.enter(call).await?;
        if let Some(decision) = entry.decision {
            draft.axes.note(Axis::Concurrency, decision);
        }
        draft.weigh(entry.guarantee, entry.outage);
        let Some(slot) = entry.slot else { return Ok(None) };
        // From here on whatever was taken is the permit's, and goes back with it.
        let mut permit = SharedPermit::new(self.settler.clone(), slot, call.estimate());
        if self.pricer.as_ref().is_some_and(|pricer| !pricer.clears(&call.bid())) {
            draft.policy_denied = true;
            permit.cancel().await;
            return Ok(None);
        }
        let (call, background) = (OwnedCall::of(call), self.settler.background());
        for step in &self.steps {
            let charged = land(&background, step.clone().charge(call.clone())).await;
            let charged = match charged.flatten() {
                Ok(charged) => charged,
                Err(error) => {
                    permit.cancel().await;
                    return Err(error);
                }
            };
            charged.axes.iter().for_each(|(axis, decision)| draft.axes.note(axis, *decision));
            draft.weigh(charged.guarantee, charged.outage);
            let Some(bill) = charged.bill else {
                permit.cancel().await;
                return Ok(None);
            };
            permit.owes(bill);
        }
        Ok(Some(permit.hand_over(draft.guarantee)))
    }

    /// What became of settlements.
    pub fn settlements(&self) -> SettleStats {
        self.settler.stats()
    }

    /// The policy's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Admission<SharedPermit> {
    /// An answer is worth as much as the weakest of its parts.
    fn weigh(&mut self, guarantee: Guarantee, outage: Option<StoreError>) {
        self.guarantee = self.guarantee.weaker(guarantee);
        self.outage = self.outage.take().or(outage);
    }
}

impl fmt::Debug for SharedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedPolicy")
            .field("name", &self.name)
            .field("slots", &self.slots)
            .field("settlements", &self.settlements())
            .finish_non_exhaustive()
    }
}
