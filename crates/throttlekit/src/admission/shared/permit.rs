//! Proof of admission over axes of which some are shared, and its settlement.

use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::concurrency::Ending;
use throttlekit_core::{ALLOW_FULL, Cost, Decision, combine};

use super::settler::Settler;
use super::slots::Slot;
use super::step::Bill;
use crate::Guarantee;
use crate::admission::meter::Meter;
use crate::fence::{Fenced, run_unless_fenced};
use crate::guard::ending_without_a_word;
use crate::store::StoreError;

/// Proof that a call was admitted, held while its work runs. Settles every axis exactly once, however the work ends.
///
/// Has all methods of [`Permit`](crate::admission::Permit). When it ends, stores are updated in the background;
/// [`close`](Self::close) waits for that. If no runtime is left to do it, or the process ends, the reservation stays
/// charged until its window ends, and a slot held on a store is released when its lease expires.
#[must_use = "dropping it gives back what the call was admitted with"]
pub struct SharedPermit {
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
    Ended(Cost),
}

impl SharedPermit {
    pub(super) fn new(settler: Arc<Settler>, slot: Slot, estimate: Cost) -> Self {
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

    /// Decides a chunk, and charges it if allowed. Call it before the chunk is sent; stop after a denial.
    ///
    /// The reservation covers the chunk as far as it goes, without a call to any store. Beyond it, every limit of the
    /// cost axis and the fair share must allow the rest, or none is charged; a token budget allows the one chunk that
    /// exceeds it. A debit without a response is retried with its idempotency key if the limit is a window, and counts
    /// once. Returns the decision of the limits that were checked, or [`ALLOW_FULL`] if none had to be.
    pub async fn debit(&mut self, tokens: Cost) -> Result<Decision, StoreError> {
        let beyond = self.meter.beyond(tokens);
        let decision = if beyond == 0 { ALLOW_FULL } else { self.debit_beyond(beyond).await? };
        if decision.allowed {
            self.meter.count(tokens, beyond);
        }
        Ok(decision)
    }

    /// Charges a chunk beyond the reservation. The charge of a chunk that was denied, or whose caller is gone, is
    /// returned before the next one is requested.
    async fn debit_beyond(&mut self, tokens: Cost) -> Result<Decision, StoreError> {
        self.reject().await;
        let mut all = ALLOW_FULL;
        for place in 0..self.bills.len() {
            let decision = match self.bills[place].debit(tokens).await {
                Ok((decision, guarantee)) if decision.allowed => {
                    self.guarantee = self.guarantee.weaker(guarantee);
                    decision
                }
                refused => {
                    self.reject().await;
                    let (decision, guarantee) = refused?;
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

    /// Sets the total use, regardless of what was counted before. Settled when the permit ends: returns the excess, or
    /// charges the shortfall, which may exceed the limits. Never less than the debits beyond the estimate: those stay
    /// charged.
    pub fn settle(&mut self, actual: Cost) {
        self.meter.count_all(actual);
    }

    /// Returns the units counted so far.
    pub fn used(&self) -> Cost {
        self.meter.used()
    }

    /// Returns the units reserved and not used yet.
    pub fn reserved(&self) -> Cost {
        self.meter.covered()
    }

    /// Returns the weakest guarantee of the admission and of every chunk since. [`Guarantee::Closed`] if a chunk was
    /// denied because a store did not respond, and not because a budget is exhausted.
    pub fn guarantee(&self) -> Guarantee {
        self.guarantee
    }

    /// Checks whether the work has to stop because its slot may be held by others.
    pub fn is_fenced(&self) -> bool {
        self.slot.as_ref().is_some_and(Slot::is_fenced)
    }

    /// Runs the work, but no longer than its slot is held: then the future is dropped. Needs a tokio runtime with time
    /// enabled if slots are shared.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Fenced> {
        let Some(slot) = &self.slot else { return Err(Fenced) };
        run_unless_fenced(work, || slot.is_fenced(), slot.fenced()).await
    }

    endings!();

    fn end(mut self, ending: Ending, latency: Option<Duration>) {
        self.end_once(ending, latency);
    }

    /// Ends the permit and waits until the stores are updated, retries included. An error means that the outcome at one
    /// store is unknown. If dropped while waiting, the permit ends all the same.
    pub async fn close(mut self, ending: Ending) -> Result<(), StoreError> {
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

impl Drop for SharedPermit {
    fn drop(&mut self) {
        self.end_once(ending_without_a_word(), None);
    }
}

debug_fields!([] SharedPermit, |it| meter = it.meter);
