//! The permit of everything that decides.

use std::time::Duration;

use throttlekit_core::concurrency::Ending;
use throttlekit_core::{ALLOW_FULL, Decision};

use super::{BoxFuture, Debiting};
use crate::fence::{Fenced, run_unless_fenced};
use crate::store_error::StoreError;
use crate::{Guarantee, LimitName};

/// Proof that a request was admitted, held while its work runs: that of every [`Admit`](crate::Admit), and of shared and
/// remote policies.
///
/// Count units as they are used: [`debit`](Self::debit) chunk by chunk, or [`settle`](Self::settle) once the total is
/// known. Then report the outcome of the work. Dropped without an outcome, it ends as [`ignored`](Self::ignored), or as
/// [`dropped`](Self::dropped) if the thread is panicking.
///
/// What was reserved and not used returns to a policy. A permit of a limiter holds nothing, and its charge stays. Stores
/// are updated in the background; [`close`](Self::close) waits for that. If no runtime is left to do it, or the process
/// ends, the reservation stays charged until its window ends, and a slot held on a store is released when its lease
/// expires.
#[must_use = "dropping it gives back what the call was admitted with"]
pub struct SharedPermit(Option<Box<dyn Held>>);

/// Something that a permit holds. Implemented for [`SharedPermit::new`].
///
/// Dropping it must release everything, once, as work that was ignored; or as work that was dropped if the thread is
/// panicking.
pub trait Held: Send + Sync + 'static {
    /// Ends the work. Stores are updated in the background.
    fn end(self: Box<Self>, ending: Ending, latency: Option<Duration>);

    /// Ends the work and waits until stores are updated. An error means that the outcome at one store is unknown.
    fn close(self: Box<Self>, ending: Ending) -> BoxFuture<'static, Result<(), StoreError>> {
        self.end(ending, None);
        Box::pin(std::future::ready(Ok(())))
    }

    /// Decides a chunk, and charges it if allowed. Default: allows it, because nothing is counted.
    fn debit(&mut self, units: u64) -> Debiting<'_> {
        let _ = units;
        Debiting::ready(Ok(ALLOW_FULL))
    }

    /// Sets the total use, settled at the end. Default: no effect.
    fn settle(&mut self, actual: u64) {
        let _ = actual;
    }

    /// Returns the units counted so far. Default: 0.
    fn used(&self) -> u64 {
        0
    }

    /// Returns the units reserved and not used yet. Default: 0.
    fn reserved(&self) -> u64 {
        0
    }

    /// Returns how long a slot has been held, if this permit is timed. Default: it is not.
    fn elapsed(&self) -> Option<Duration> {
        None
    }

    /// Returns the weakest guarantee of the admission and of every chunk since. Default: exact.
    fn guarantee(&self) -> Guarantee {
        Guarantee::Exact
    }

    /// Returns the name of the limit that denied the last chunk, if one did and has a name. Default: none.
    fn limit_name(&self) -> Option<LimitName> {
        None
    }

    /// Returns whether the work has to stop because its slot may be held by others. Default: never.
    fn is_fenced(&self) -> bool {
        false
    }

    /// Waits until the work has to stop. Default: forever.
    fn fenced(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

impl SharedPermit {
    /// Creates a permit that holds nothing, for limiters. Does not allocate.
    #[inline]
    pub const fn none() -> Self {
        Self(None)
    }

    /// Creates a permit, for implementors of [`Admit`](crate::Admit).
    pub fn new(held: impl Held) -> Self {
        Self(Some(Box::new(held)))
    }

    /// Returns whether there is nothing to end or to settle.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Decides a chunk, and charges it if allowed. Call it before the chunk is sent; stop after a denial.
    ///
    /// The reservation covers the chunk as far as it goes, without a call to any store. Beyond it, every limit of the
    /// cost axis and the fair share must allow the rest, or none is charged; a token budget allows the one chunk that
    /// exceeds it. A debit without a response is retried with its idempotency key if the limit is a window, and counts
    /// once. Returns the decision of the limits that were checked, or [`ALLOW_FULL`] if none had to be.
    pub async fn debit(&mut self, units: u64) -> Result<Decision, StoreError> {
        match &mut self.0 {
            Some(held) => held.debit(units).await,
            None => Ok(ALLOW_FULL),
        }
    }

    /// Sets the total use, regardless of what was counted before. Settled when the permit ends: returns the excess, or
    /// charges the shortfall, which may exceed the limits. Never less than the debits beyond the estimate: those stay
    /// charged. No effect on a permit that holds nothing.
    pub fn settle(&mut self, actual: u64) {
        if let Some(held) = &mut self.0 {
            held.settle(actual);
        }
    }

    /// Returns the units counted so far.
    pub fn used(&self) -> u64 {
        self.0.as_ref().map_or(0, |held| held.used())
    }

    /// Returns the units reserved and not used yet.
    pub fn reserved(&self) -> u64 {
        self.0.as_ref().map_or(0, |held| held.reserved())
    }

    /// Returns how long a slot has been held, if this permit is timed: for [`success_after`](Self::success_after), if
    /// the slot is held longer than the work to be sampled.
    pub fn elapsed(&self) -> Option<Duration> {
        self.0.as_ref()?.elapsed()
    }

    /// Returns the weakest guarantee of the admission and of every chunk since. [`Guarantee::Closed`] if a chunk was
    /// denied because a store did not respond, and not because a budget is exhausted.
    pub fn guarantee(&self) -> Guarantee {
        self.0.as_ref().map_or(Guarantee::Exact, |held| held.guarantee())
    }

    /// Returns the name of the limit that denied the last chunk, if one did and has a name: which of several token
    /// budgets is spent.
    pub fn limit_name(&self) -> Option<LimitName> {
        self.0.as_ref().and_then(|held| held.limit_name())
    }

    /// Returns whether the work has to stop because its slot may be held by others.
    pub fn is_fenced(&self) -> bool {
        self.0.as_ref().is_some_and(|held| held.is_fenced())
    }

    /// Waits until the work has to stop: forever if no slot is shared.
    pub async fn fenced(&self) {
        match &self.0 {
            Some(held) => held.fenced().await,
            None => std::future::pending().await,
        }
    }

    /// Runs the work, but no longer than its slot is held: then the future is dropped. Needs a tokio runtime with time
    /// enabled if slots are shared.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Fenced> {
        match &self.0 {
            Some(held) => run_unless_fenced(work, || held.is_fenced(), held.fenced()).await,
            None => Ok(work.await),
        }
    }

    endings!();

    pub(crate) fn end(self, ending: Ending, latency: Option<Duration>) {
        if let Some(held) = self.0 {
            held.end(ending, latency);
        }
    }

    /// Ends the permit and waits until the stores are updated, retries included. An error means that the outcome at one
    /// store is unknown. If dropped while waiting, the permit ends all the same.
    pub async fn close(self, ending: Ending) -> Result<(), StoreError> {
        match self.0 {
            Some(held) => held.close(ending).await,
            None => Ok(()),
        }
    }
}

debug_fields!([] SharedPermit, |it| used = it.used(), reserved = it.reserved());
