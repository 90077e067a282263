//! Proof of admission over axes of which some are shared, and how it is settled.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use throttlekit_core::concurrency::Ending;
use throttlekit_core::{ALLOW_FULL, Cost, Decision, combine};

use super::settler::Settler;
use super::slots::Slot;
use super::step::Bill;
use crate::Guarantee;
use crate::admission::meter::Meter;
use crate::admission::permit::ending_without_a_word;
use crate::store::StoreError;

/// Proof that a call was admitted, held while its work runs. Settles every axis exactly once, however it goes.
///
/// As [`Permit`](crate::admission::Permit), whose every word it has. What has to be told to a store when it ends is told in
/// the background; [`close`](Self::close) waits for that. Where no runtime is left to do it,
/// and where a process ends, what was set aside stays charged until its window ends, and a slot that is held on a store comes
/// back when its lease is over.
#[must_use = "dropping it gives back what the call was admitted with"]
pub struct SharedPermit {
    settler: Arc<Settler>,
    /// Nothing once it has ended.
    slot: Option<Slot>,
    bills: Vec<Box<dyn Bill>>,
    meter: Meter,
    stage: Stage,
    guarantee: Guarantee,
}

/// How far it has come, which says what is owed on each bill that is still open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    // Asking => Held | dropped: nothing was admitted, so nothing is owed.
    Asking,
    // Held => Ended
    Held,
    /// This much of what was set aside was used.
    Ended(Cost),
}

/// The slot is not held any more: others may have it. What was under way was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced;

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

    /// One more step that it owes something for.
    pub(super) fn owes(&mut self, bill: Box<dyn Bill>) {
        self.bills.push(bill);
    }

    /// Every axis has allowed.
    pub(super) fn hand_over(mut self, guarantee: Guarantee) -> Self {
        (self.stage, self.guarantee) = (Stage::Held, guarantee);
        self
    }

    /// Gives everything back, and waits until it is: an axis denied, and nothing was done. What a store does not answer is
    /// told again in the background: the answer is a denial either way.
    pub(super) async fn cancel(mut self) {
        if let Some(slot) = self.slot.take() {
            slot.give_back().await;
        }
        while let Some(mut bill) = self.bills.pop() {
            let _ = self.settler.see_to(bill.close(None)).await;
        }
    }

    /// Answers for a chunk, and charges it if allowed. Ask before the chunk is passed on; after a denial stop.
    ///
    /// What was set aside covers it as far as it goes, without a call to any store. Beyond, every limit of the cost axis and
    /// the fair share must allow, or none is charged; a token budget lets the chunk pass that crosses its edge. A debit that
    /// gets no answer is sent again under its name where the limit is a window, and counts once. The answer is that of
    /// what was asked: [`ALLOW_FULL`] where nothing had to be.
    pub async fn debit(&mut self, tokens: Cost) -> Result<Decision, StoreError> {
        let beyond = self.meter.beyond(tokens);
        let decision = if beyond == 0 { ALLOW_FULL } else { self.debit_beyond(beyond).await? };
        if decision.allowed {
            self.meter.count(tokens, beyond);
        }
        Ok(decision)
    }

    /// What was charged for a chunk that did not pass, or whose caller went away, is given back before the next is asked.
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

    /// Says what all of it came to, whatever was counted before. Settled when the permit ends: hands back what was too
    /// much, or takes what was too little, which may go beyond the limits. Not less than what debits took beyond the
    /// estimate: that stays.
    pub fn settle(&mut self, actual: Cost) {
        self.meter.count_all(actual);
    }

    /// What was counted so far.
    pub fn used(&self) -> Cost {
        self.meter.used()
    }

    /// What is set aside and not used yet.
    pub fn reserved(&self) -> Cost {
        self.meter.covered()
    }

    /// What its answers are worth: as much as the weakest, of the admission and of every chunk since. [`Guarantee::Closed`] if a
    /// chunk was refused because a store did not answer, and not because a budget is spent.
    pub fn guarantee(&self) -> Guarantee {
        self.guarantee
    }

    /// Whether the work has to stop, since others may have its slot.
    pub fn is_fenced(&self) -> bool {
        self.slot.as_ref().is_some_and(Slot::is_fenced)
    }

    /// Does the work, but no longer than its slot is held: then it is dropped where it stands. Needs a tokio runtime with
    /// time where slots are shared.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Fenced> {
        let Some(slot) = &self.slot else { return Err(Fenced) };
        let (mut work, mut fenced) = (pin!(work), pin!(slot.fenced()));
        poll_fn(|context| {
            if slot.is_fenced() || fenced.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(Fenced));
            }
            work.as_mut().poll(context).map(Ok)
        })
        .await
    }

    /// The work was done. How long it took tells how loaded the backend is.
    pub fn success(mut self) {
        self.end(Ending::Success, None);
    }

    /// The work was done, and took this long as far as the backend's load goes: the time to a first token, say.
    pub fn success_after(mut self, latency: Duration) {
        self.end(Ending::Success, Some(latency));
    }

    /// The backend was too full for it: a timeout, a refusal, a crash.
    pub fn dropped(mut self) {
        self.end(Ending::Dropped, None);
    }

    /// It says nothing of the backend: the caller went away.
    pub fn ignored(mut self) {
        self.end(Ending::Ignored, None);
    }

    /// Ends it, and waits until the stores have been told, however often that takes. An error says that nobody knows whether
    /// one was. Dropped while it waits, it ends all the same.
    pub async fn close(mut self, ending: Ending) -> Result<(), StoreError> {
        let used = self.meter.last(ending);
        self.stage = Stage::Ended(used);
        // First, so that the ceiling is not taught how long stores take.
        if let Some(slot) = self.slot.take() {
            slot.close(ending).await;
        }
        let mut result = Ok(());
        while let Some(mut bill) = self.bills.pop() {
            result = result.and(self.settler.finish(bill.close(Some(used))).await);
        }
        result
    }

    /// The one way out. The slot is taken first: whatever panics after that, nothing ends twice.
    fn end(&mut self, ending: Ending, latency: Option<Duration>) {
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
        self.end(ending_without_a_word(), None);
    }
}

impl fmt::Debug for SharedPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedPermit").field("meter", &self.meter).finish_non_exhaustive()
    }
}

impl fmt::Display for Fenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the slot is not held any more: stop, and ask again")
    }
}

impl std::error::Error for Fenced {}
