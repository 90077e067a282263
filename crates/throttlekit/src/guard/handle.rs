//! The public concurrency limiter.

use std::fmt;
use std::sync::Arc;
#[cfg(feature = "wait")]
use std::time::Duration;

use throttlekit_core::Decision;

use super::builder::GuardBuilder;
use super::permit::{GuardPermit, OwnedGuardPermit};
use super::single::Single;
use super::stats::GuardStats;
use crate::admit::Denied;
use crate::clock::{BootClock, Clock};
use crate::{BuildError, Call, Concurrency};

/// A concurrency limiter for this process: at most `n` at a time, fixed or adaptive.
///
/// Clones share the limit. [`try_acquire`](Self::try_acquire) is one load and one compare-and-swap if no caller waits.
/// See the [module](super) for its guarantees. [`KeyedGuard`](super::KeyedGuard) has a limit for each key.
///
/// ```
/// use throttlekit::Guard;
///
/// let guard = Guard::new(1)?;
/// let permit = guard.try_acquire(())?;
/// assert_eq!(guard.try_acquire(()).unwrap_err().decision.limit, 1);
/// permit.success();
/// assert!(guard.try_acquire(()).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Guard<C = BootClock>(Arc<Single<C>>);

impl Guard {
    /// Creates a guard with this limit: a number, or a [`Concurrency`] in total.
    pub fn new(limit: impl Into<Concurrency>) -> Result<Self, BuildError> {
        Self::builder(limit).build()
    }

    /// Describes a guard with this limit, or a [`KeyedGuard`](super::KeyedGuard).
    pub fn builder(limit: impl Into<Concurrency>) -> GuardBuilder {
        GuardBuilder::new(limit.into())
    }
}

/// The maximum number in flight, and the number in flight at the same instant.
type LimitAndInFlight = (u32, u32);

impl<C: Clock> Guard<C> {
    pub(super) fn from_single(single: Single<C>) -> Self {
        Self(Arc::new(single))
    }

    /// Acquires a slot, if one is free for the call's priority now.
    // Not only a hint: out of line, the permit would be returned in memory, for half as many instructions more.
    #[inline(always)]
    pub fn try_acquire<'c>(&self, call: impl Into<Call<'c>>) -> Result<GuardPermit<'_, C>, Denied> {
        self.0.try_acquire(call.into().of_priority())
    }

    /// Like [`try_acquire`](Self::try_acquire), and returns the numbers that decided.
    #[inline(always)]
    pub(crate) fn try_acquire_seen(
        &self,
        call: &Call<'_>,
    ) -> Result<(GuardPermit<'_, C>, LimitAndInFlight), LimitAndInFlight> {
        match self.0.try_acquire_seen(call.of_priority()) {
            Ok((permit, entry)) => Ok((permit, (entry.limit, entry.in_flight))),
            Err(full) => Err((full.limit, full.in_flight)),
        }
    }

    /// Like [`try_acquire`](Self::try_acquire), with an owned permit.
    #[inline]
    pub fn try_acquire_owned<'c>(&self, call: impl Into<Call<'c>>) -> Result<OwnedGuardPermit<C>, Denied> {
        match Arc::clone(&self.0).try_acquire_owned(call.into().of_priority()) {
            Ok(slot) => Ok(OwnedGuardPermit::new(slot)),
            Err(full) => Err(full.into()),
        }
    }

    /// Acquires a slot for the call's priority, now or after waiting in the queue. Denied at once if the queue is full.
    ///
    /// The future can be dropped at any time: it leaves the queue, and a slot that was already granted goes to the next
    /// waiter. [`queue_max`](GuardBuilder::queue_max) sets the length of the queue. Default: 0.
    pub async fn acquire<'c>(&self, call: impl Into<Call<'c>>) -> Result<GuardPermit<'_, C>, Denied> {
        Ok(self.0.acquire(call.into().of_priority()).await?)
    }

    /// Like [`acquire`](Self::acquire), with an owned permit: `guard.clone().acquire_owned(call)`.
    pub async fn acquire_owned<'c>(self, call: impl Into<Call<'c>>) -> Result<OwnedGuardPermit<C>, Denied> {
        let slot = self.0.acquire_owned(call.into().of_priority()).await?;
        Ok(OwnedGuardPermit::new(slot))
    }

    /// Like [`acquire`](Self::acquire), with a timeout by tokio's timer. Denied on timeout.
    #[cfg(feature = "wait")]
    pub async fn acquire_timeout<'c>(
        &self,
        call: impl Into<Call<'c>>,
        timeout: Duration,
    ) -> Result<GuardPermit<'_, C>, Denied> {
        let call = call.into();
        let answer = tokio::time::timeout(timeout, self.acquire(call)).await;
        answer.unwrap_or_else(|_| Err(Denied::timed_out(self.peek(call))))
    }

    /// Decides a call without admitting it: whether a slot is free, how many, and of how many. `limit` and `remaining`
    /// are of the same instant.
    pub fn peek<'c>(&self, call: impl Into<Call<'c>>) -> Decision {
        self.0.peek(call.into().of_priority())
    }

    /// Caps the limit: the limit in force is the smaller of `share` and this guard's own limit.
    ///
    /// Calls in flight continue. Zero denies all new ones.
    pub fn cap(&self, share: u32) {
        self.0.cap(share);
    }

    /// Sets a fixed limit; the inferred one is discarded. A [`cap`](Self::cap) stays.
    pub fn set_limit(&self, limit: u32) {
        self.0.set_limit(limit);
    }

    /// Returns the current state and counters. Takes two short locks.
    pub fn stats(&self) -> GuardStats {
        self.0.stats()
    }

    /// Returns the maximum number in flight and the number in flight, at one instant.
    #[inline]
    pub(crate) fn snapshot(&self) -> (u32, u32) {
        self.0.snapshot()
    }
}

impl<C> Clone for Guard<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C> fmt::Debug for Guard<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.0).finish()
    }
}
