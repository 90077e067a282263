//! The public policy type for axes that are shared with other processes.

use std::sync::Arc;

use super::builder::SharedPolicyBuilder;
use super::permit::StorePermit;
use super::settler::{Settler, SharedPolicyStats};
use super::slots::{Entrance, Slots};
use super::step::{OwnedCall, Step, land};
use crate::admit::{LimitInfo, SharedPermit, Told};
use crate::observe::Observer;
use crate::policy::{Admission, Call};
use crate::price::Pricer;
use crate::store::{Store, StoreError};
use crate::{Axis, Guarantee};

/// Every axis that a request must pass, over a store: one call, one decision, one permit.
///
/// A call is evaluated on concurrency, price, rate, cost and fairness, in this order; the first axis that denies ends
/// it, and is named. Charges of earlier axes are returned before the decision. The limits of the rate and the cost
/// axis on the policy's store are charged in one round trip, all or none.
///
/// ```
/// use throttlekit::{Budget, Call, Concurrency, Rate, SharedPolicy, store::MemoryStore};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let store = MemoryStore::new(); // in production a RedisStore or a PostgresStore
/// let chat = SharedPolicy::builder(store, "chat")
///     .concurrency(Concurrency::per_key(8))
///     .rate(Rate::per_minute(60))
///     .tokens(Budget::per_minute(100_000))
///     .build()?;
///
/// let mut permit = chat.admit(Call::by("acme").cost(1_500)).await?.into_permit()?; // the error names the axis
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
    pub(super) observer: Option<Box<dyn Observer>>,
    pub(super) settler: Arc<Settler>,
}

impl SharedPolicy {
    /// Creates a builder. The name appears in metrics, logs and traces, and separates the keys of the policy from those
    /// of others on the store.
    pub fn builder<S: Store>(store: S, name: &str) -> SharedPolicyBuilder<S> {
        SharedPolicyBuilder::new(store, name)
    }

    /// Decides one call over all axes, and charges it if all allow.
    ///
    /// Cancel safe: if the future is dropped, calls in progress complete and their charges are returned. An error means
    /// that nothing was decided, and names the cause; charges of earlier axes have been returned.
    pub async fn admit<'a>(&self, call: impl Into<Call<'a>>) -> Result<Admission, StoreError> {
        let call = call.into();
        self.admit_copied(&call, Entrance::AtOnce, || Arc::new(OwnedCall::of(&call))).await
    }

    /// Like [`admit`](Self::admit) with the copy of the call for limits on stores, which is made once it is needed.
    pub(super) async fn admit_copied(
        &self,
        call: &Call<'_>,
        entrance: Entrance,
        copy: impl FnOnce() -> Arc<OwnedCall> + Send,
    ) -> Result<Admission, StoreError> {
        let mut admission = Admission::open();
        admission.permit = self.ask(call, entrance, copy, &mut admission).await?;
        let told = |observer| Told { observer, policy: &self.name, call };
        admission.close(self.observer.as_deref().map(told));
        Ok(admission.map(SharedPermit::new))
    }

    async fn ask(
        &self,
        call: &Call<'_>,
        entrance: Entrance,
        copy: impl FnOnce() -> Arc<OwnedCall> + Send,
        draft: &mut Admission<StorePermit>,
    ) -> Result<Option<StorePermit>, StoreError> {
        let entry = self.slots.enter(call, entrance).await?;
        if let Some(decision) = entry.decision {
            draft.axes.record(Axis::Concurrency, decision);
        }
        draft.weigh(entry.guarantee, entry.outage);
        let Some(slot) = entry.slot else { return Ok(None) };
        // From here on the permit owns all charges, and returns them when it is dropped.
        let mut permit = StorePermit::new(self.settler.clone(), slot, call.units());
        if self.pricer.as_ref().is_some_and(|pricer| !pricer.clears(&call.bid())) {
            draft.priced_out = true;
            permit.cancel().await;
            return Ok(None);
        }
        let (call, background) = (copy(), self.settler.background());
        for step in &self.steps {
            let charged = land(&background, step.clone().charge(call.clone())).await;
            let charged = match charged.unwrap_or_else(Err) {
                Ok(charged) => charged,
                Err(error) => {
                    permit.cancel().await;
                    return Err(error);
                }
            };
            let name = charged.axes.limit_name();
            charged.axes.iter().for_each(|(axis, decision)| draft.axes.record_named(axis, *decision, name));
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

    /// Returns the counters.
    pub fn stats(&self) -> SharedPolicyStats {
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

debug_fields!([] SharedPolicy, |it| name = it.name, slots = it.slots, stats = it.stats());
