//! Proof of admission over axes of which some are shared, and its settlement.

use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::concurrency::Ending;
use throttlekit_core::{ALLOW_FULL, Decision, combine};

use super::settler::Settler;
use super::slots::Slot;
use super::step::Bill;
use crate::admit::{BoxFuture, Debiting, Held};
use crate::guard::ending_without_outcome;
use crate::policy::meter::Meter;
use crate::store::StoreError;
use crate::{Guarantee, LimitName};

/// The permit of a shared policy. Settles every axis exactly once, however the work ends.
pub(super) struct StorePermit {
    settler: Arc<Settler>,
    /// `None` once the permit has ended.
    slot: Option<Slot>,
    bills: Vec<Box<dyn Bill>>,
    meter: Meter,
    stage: Stage,
    guarantee: Guarantee,
}

/// Stage of the permit. It determines the amount due on each open bill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    // Asking => Held | dropped: nothing was admitted, so nothing is due.
    Asking,
    // Held => Ended
    Held,
    /// Ended, with this much of the reservation used.
    Ended(u64),
}

impl StorePermit {
    pub(super) fn new(settler: Arc<Settler>, slot: Slot, estimate: u64) -> Self {
        Self {
            settler,
            slot: Some(slot),
            bills: Vec::new(),
            meter: Meter::new(estimate),
            stage: Stage::Asking,
            guarantee: Guarantee::Exact,
        }
    }

    /// Adds the bill of one more step.
    pub(super) fn owes(&mut self, bill: Box<dyn Bill>) {
        self.bills.push(bill);
    }

    /// Hands the permit to the caller: every axis has allowed.
    pub(super) fn hand_over(mut self, guarantee: Guarantee) -> Self {
        (self.stage, self.guarantee) = (Stage::Held, guarantee);
        self
    }

    /// Returns everything and waits until that is done: an axis denied, and no work was done. If a store does not
    /// respond, the return is retried in the background: the decision is a denial either way.
    pub(super) async fn cancel(mut self) {
        if let Some(slot) = self.slot.take() {
            slot.give_back().await;
        }
        while let Some(mut bill) = self.bills.pop() {
            let _ = self.settler.see_to(bill.close(None)).await;
        }
    }

    /// Charges a chunk of which this number of units are not reserved.
    async fn debit_some(&mut self, tokens: u64, beyond: u64) -> Result<Decision, StoreError> {
        let decision = self.debit_beyond(beyond).await?;
        if decision.allowed {
            self.meter.count(tokens, beyond);
        }
        Ok(decision)
    }

    /// Charges a chunk beyond the reservation. The charge of a chunk that was denied, or whose caller is gone, is
    /// returned before the next one is requested.
    async fn debit_beyond(&mut self, tokens: u64) -> Result<Decision, StoreError> {
        self.reject().await;
        let mut all = ALLOW_FULL;
        for place in 0..self.bills.len() {
            let decision = match self.bills[place].debit(tokens).await {
                Ok((decision, guarantee)) if decision.allowed => {
                    self.guarantee = self.guarantee.weaker(guarantee);
                    decision
                }
                refused => {
                    let denied = self.bills[place].limit_name();
                    self.reject().await;
                    let (decision, guarantee) = refused?;
                    self.meter.denied = denied;
                    self.guarantee = self.guarantee.weaker(guarantee);
                    return Ok(decision);
                }
            };
            all = combine(all, decision);
        }
        self.bills.iter_mut().for_each(|bill| bill.confirm());
        Ok(all)
    }

    async fn reject(&mut self) {
        for bill in &mut self.bills {
            let _ = self.settler.see_to(bill.reject()).await;
        }
    }

    /// Ends the permit and waits until the stores are updated. If dropped while waiting, the permit ends all the same.
    async fn close_all(mut self, ending: Ending) -> Result<(), StoreError> {
        let used = self.meter.last(ending);
        self.stage = Stage::Ended(used);
        // First, so that the concurrency limit does not learn from store latency.
        if let Some(slot) = self.slot.take() {
            slot.close(ending).await;
        }
        let mut result = Ok(());
        while let Some(mut bill) = self.bills.pop() {
            result = result.and(self.settler.finish(bill.close(Some(used))).await);
        }
        result
    }

    /// Ends the permit; every outcome takes this path. The slot is taken first: whatever panics after that, nothing
    /// ends twice.
    fn end_once(&mut self, ending: Ending, latency: Option<Duration>) {
        let slot = self.slot.take();
        let used = match self.stage {
            Stage::Asking => None,
            Stage::Held => Some(self.meter.last(ending)),
            Stage::Ended(used) => Some(used),
        };
        self.stage = Stage::Ended(used.unwrap_or(0));
        for mut bill in self.bills.drain(..) {
            self.settler.leave(bill.close(used));
        }
        if let Some(slot) = slot {
            slot.end(ending, latency);
        }
    }
}

impl Held for StorePermit {
    fn end(mut self: Box<Self>, ending: Ending, latency: Option<Duration>) {
        self.end_once(ending, latency);
    }

    fn close(self: Box<Self>, ending: Ending) -> BoxFuture<'static, Result<(), StoreError>> {
        Box::pin((*self).close_all(ending))
    }

    fn debit(&mut self, tokens: u64) -> Debiting<'_> {
        self.meter.denied = None;
        let beyond = self.meter.beyond(tokens);
        if beyond == 0 {
            self.meter.count(tokens, 0);
            return Debiting::ready(Ok(ALLOW_FULL));
        }
        Debiting::pending(self.debit_some(tokens, beyond))
    }

    fn settle(&mut self, actual: u64) {
        self.meter.count_all(actual);
    }

    fn used(&self) -> u64 {
        self.meter.used()
    }

    fn reserved(&self) -> u64 {
        self.meter.covered()
    }

    fn elapsed(&self) -> Option<Duration> {
        self.slot.as_ref()?.elapsed()
    }

    fn guarantee(&self) -> Guarantee {
        self.guarantee
    }

    fn limit_name(&self) -> Option<LimitName> {
        self.meter.denied
    }

    fn is_fenced(&self) -> bool {
        self.slot.as_ref().is_some_and(Slot::is_fenced)
    }

    fn fenced(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            match &self.slot {
                Some(slot) => slot.fenced().await,
                None => std::future::pending().await,
            }
        })
    }
}

impl Drop for StorePermit {
    fn drop(&mut self) {
        self.end_once(ending_without_outcome(), None);
    }
}
