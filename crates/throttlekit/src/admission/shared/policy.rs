//! The public policy type for axes that are shared with other processes.

use std::sync::Arc;

use super::builder::SharedPolicyBuilder;
use super::permit::StorePermit;
use super::settler::{SettleStats, Settler};
use super::slots::Slots;
use super::step::{OwnedCall, Step, land};
use crate::admission::{Admission, Axis, Call, Observer};
use crate::admit::{LimitInfo, SharedPermit, Told};
use crate::store::StoreError;
use crate::{Guarantee, Pricer};

/// Every axis that a request must pass, each in this process or shared with others: one call, one decision, one permit.
///
/// A call is evaluated on concurrency, price, rate, cost and fairness, in this order; the first axis that denies ends
/// it, and is named. Charges of earlier axes are returned before the decision. Limits of an [atomic
/// group](SharedPolicyBuilder::together) on one store are evaluated in one round trip.
///
/// ```
/// use std::sync::Arc;
/// use throttlekit::admission::{Axis, Call, SharedPolicy};
/// use throttlekit::{Budget, KeyedGuard, Rate, SharedLimiter, store::MemoryStore};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// // In production a RedisStore or a PostgresStore.
/// let limiter = SharedLimiter::builder(MemoryStore::new(), "chat", Rate::per_minute(60))
///     .limit("tokens", Budget::per_minute(100_000).tokens()?)
///     .build()?;
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
    /// Describes a policy. The name appears in metrics, logs and traces.
    pub fn builder(name: &str) -> SharedPolicyBuilder {
        SharedPolicyBuilder::new(name)
    }

    /// Decides one call over all axes, and charges it if all allow.
    ///
    /// Cancel safe: if the future is dropped, calls in progress complete and their charges are returned. An error means
    /// that nothing was decided, and names the cause; charges of earlier axes have been returned.
    pub async fn admit<'a>(&self, call: impl Into<Call<'a>>) -> Result<Admission, StoreError> {
        let call = call.into();
        let mut admission = Admission::open();
        admission.permit = self.ask(&call, &mut admission).await?;
        let told = Told { observer: self.observer.as_deref(), policy: &self.name, call: &call };
        admission.close(told);
        Ok(admission.map(SharedPermit::new))
    }

    async fn ask(
        &self,
        call: &Call<'_>,
        draft: &mut Admission<StorePermit>,
    ) -> Result<Option<StorePermit>, StoreError> {
        let entry = self.slots.enter(call).await?;
        if let Some(decision) = entry.decision {
            draft.axes.note(Axis::Concurrency, decision);
        }
        draft.weigh(entry.guarantee, entry.outage);
        let Some(slot) = entry.slot else { return Ok(None) };
        // From here on the permit owns all charges, and returns them when it is dropped.
        let mut permit = StorePermit::new(self.settler.clone(), slot, call.units());
        if self.pricer.as_ref().is_some_and(|pricer| !pricer.clears(&call.bid())) {
            draft.policy_denied = true;
            permit.cancel().await;
            return Ok(None);
        }
        let (call, background) = (OwnedCall::of(call), self.settler.background());
        for step in &self.steps {
            let charged = land(&background, step.clone().charge(call.clone())).await;
            let charged = match charged.unwrap_or_else(Err) {
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

    /// Describes the limits of all axes, for response headers.
    pub(crate) fn limit_infos(&self) -> Vec<LimitInfo> {
        self.slots.limit().into_iter().chain(self.steps.iter().flat_map(|step| step.limits())).collect()
    }

    /// Returns the counters of settlements.
    pub fn settlements(&self) -> SettleStats {
        self.settler.stats()
    }

    /// Returns the policy's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Admission<StorePermit> {
    /// Lowers the guarantee to the weakest of the parts.
    fn weigh(&mut self, guarantee: Guarantee, outage: Option<StoreError>) {
        self.guarantee = self.guarantee.weaker(guarantee);
        self.outage = self.outage.take().or(outage);
    }
}

debug_fields!([] SharedPolicy, |it| name = it.name, slots = it.slots, settlements = it.settlements());
