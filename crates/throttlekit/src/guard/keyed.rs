//! A concurrency limiter for many keys, and optionally for all of them together.

use std::sync::Arc;
#[cfg(feature = "wait")]
use std::time::Duration;

use throttlekit_core::{Decision, combine};

use super::handle::Guard;
use super::key_guards::KeyGuards;
use super::overflow::{Guest, Overflow};
use super::permit::{More, OwnedGuardPermit};
use super::single::{Full, Single, decision};
use super::stats::GuardStats;
use crate::admit::Denied;
use crate::clock::{BootClock, Clock};
use crate::concurrency::OneLimit;
use crate::hash::{KeyHash, SecretHash};
use crate::{BuildError, Call, Concurrency};

/// A concurrency limiter for each key: a tenant, a model, a backend.
///
/// Each key has a limit of its own, fixed or adaptive, and there may be one over all. Clones share the limits. Differs
/// from [`Guard`](super::Guard) in that permits are owned, and that every call looks its key up under a short lock.
///
/// Memory is bounded: at [`keys_max`](super::GuardBuilder::keys_max) a new key evicts the key that was idle longest, of a few. A
/// key that holds or awaits a slot is never evicted. While all examined keys do, new keys share one more limit until they
/// have released it; none of them has more there, waiting or not, than its own limit.
///
/// ```
/// use throttlekit::Concurrency;
/// use throttlekit::guard::KeyedGuard;
///
/// let tenants = KeyedGuard::new(Concurrency::per_key(2).total(100))?;
/// let held = [tenants.try_acquire("alice")?, tenants.try_acquire("alice")?];
/// assert!(tenants.try_acquire("alice").is_err() && tenants.try_acquire("bob").is_ok());
/// held.map(|permit| permit.success());
/// assert!(tenants.try_acquire("alice").is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct KeyedGuard<C = BootClock>(Arc<Keyed<C>>);

struct Keyed<C> {
    guards: KeyGuards<C>,
    overflow: Arc<Overflow<C>>,
    total: Option<Arc<Single<C>>>,
    each: Each<C>,
    hash: SecretHash,
}

/// The limit of a key.
pub(super) struct Each<C> {
    /// Creates a limit.
    pub(super) make: Make<C>,
    pub(super) limit: OneLimit,
    /// The limit of a key, if limits differ.
    pub(super) limit_of: Option<LimitOf>,
}

/// Function that creates a limit, with all other settings of the guard.
pub(super) type Make<C> = Box<dyn Fn(OneLimit) -> Single<C> + Send + Sync>;

/// Function that returns the limit of a key.
pub(super) type LimitOf = Box<dyn Fn(&[u8]) -> Concurrency + Send + Sync>;

/// The limit of a key; and if it is the shared one, the entry of the key in it.
type Found<C> = (Arc<Single<C>>, Option<Guest<C>>);

impl KeyedGuard {
    /// Creates a guard with this limit for each key: a number, or a [`Concurrency`].
    pub fn new(limit: impl Into<Concurrency>) -> Result<Self, BuildError> {
        Guard::builder(limit).build_per_key()
    }
}

impl<C: Clock> KeyedGuard<C> {
    pub(super) fn from_parts(each: Each<C>, total: Option<Single<C>>, keys_max: usize) -> Self {
        let overflow = Overflow::new((each.make)(each.limit));
        let (guards, total) = (KeyGuards::new(keys_max), total.map(Arc::new));
        Self(Arc::new(Keyed { guards, overflow, total, each, hash: SecretHash::random() }))
    }

    /// Acquires a slot of the call's key and one of the limit over all keys, if both are free for its priority now.
    pub fn try_acquire<'c>(&self, call: impl Into<Call<'c>>) -> Result<OwnedGuardPermit<C>, Denied> {
        let (call, Keyed { total, .. }) = (call.into(), &*self.0);
        let (guard, guest) = self.0.guard(call.key())?;
        let own = guard.try_acquire_owned(call.of_priority())?;
        let total = total.clone().map(|total| total.try_acquire_owned(call.of_priority())).transpose()?;
        Ok(OwnedGuardPermit::keyed(own, More { total, guest }))
    }

    /// Acquires a slot of the call's key and then one of the limit over all keys, each now or after waiting in the
    /// queue; see [`Guard::acquire`].
    ///
    /// A request that has its key's slot keeps it while it waits for the other, even ahead of a request of the same key
    /// with an earlier priority.
    pub async fn acquire<'c>(&self, call: impl Into<Call<'c>>) -> Result<OwnedGuardPermit<C>, Denied> {
        let call = call.into();
        let (guard, guest) = self.0.guard(call.key())?;
        let mut own = guard.acquire_owned(call.of_priority()).await?;
        let mut total = None;
        if let Some(all) = self.0.total.clone() {
            total = Some(all.acquire_owned(call.of_priority()).await?);
            // The work begins now. Otherwise a long wait for the total limit would count as latency of the key's
            // backend.
            own.restart();
        }
        Ok(OwnedGuardPermit::keyed(own, More { total, guest }))
    }

    /// Like [`acquire`](Self::acquire), with a timeout by tokio's timer. Denied on timeout.
    #[cfg(feature = "wait")]
    pub async fn acquire_timeout<'c>(
        &self,
        call: impl Into<Call<'c>>,
        timeout: Duration,
    ) -> Result<OwnedGuardPermit<C>, Denied> {
        let call = call.into();
        let answer = tokio::time::timeout(timeout, self.acquire(call)).await;
        answer.unwrap_or_else(|_| Err(Denied::timed_out(self.peek(call))))
    }

    /// Decides a call without admitting it: by the key's limit, or the one it shares, and by the one over all keys.
    pub fn peek<'c>(&self, call: impl Into<Call<'c>>) -> Decision {
        let call = call.into();
        let own = match self.0.find(call.key()) {
            Some(guard) => guard.peek(call.of_priority()),
            None => {
                let initial = self.0.each.limit(call.key()).initial();
                decision(initial > 0, initial, 0)
            }
        };
        self.0.total.as_ref().map_or(own, |total| combine(own, total.peek(call.of_priority())))
    }

    /// Returns the limit of a key whose limit is not set apart.
    pub(crate) fn limit_of_key(&self) -> u32 {
        self.0.overflow.guard.snapshot().0
    }

    /// Returns the current state and counters. Limit, in flight, waiting, own limit, samples and drops are those of the
    /// limit over all keys, and zero if there is none.
    pub fn stats(&self) -> GuardStats {
        let total = self.0.total.as_deref().map(Single::stats).unwrap_or_default();
        GuardStats { keys: self.0.guards.count(), overflowing: self.0.overflow.count(), ..total }
    }
}

impl<C: Clock> Keyed<C> {
    /// Returns the key's limit, or the shared one if it is in that.
    fn find(&self, key: &[u8]) -> Option<Arc<Single<C>>> {
        let fingerprint = self.hash.fingerprint(key);
        let mut shard = self.guards.lock(fingerprint);
        let shared = || self.overflow.has(fingerprint).then(|| Arc::clone(&self.overflow.guard));
        shard.find(fingerprint).or_else(shared)
    }

    /// Returns the key's limit, or the shared one. A key in the shared one stays in it: two limits would admit twice as
    /// many.
    fn guard(&self, key: &[u8]) -> Result<Found<C>, Full> {
        let fingerprint = self.hash.fingerprint(key);
        let mut shard = self.guards.lock(fingerprint);
        if let Some(guard) = shard.find(fingerprint) {
            return Ok((guard, None));
        }
        let own = (!self.overflow.has(fingerprint)).then(|| shard.give(fingerprint, || self.each.guard(key)));
        if let Some(guard) = own.flatten() {
            return Ok((guard, None));
        }
        let guest = self.overflow.enter(fingerprint, self.each.most(key))?;
        Ok((Arc::clone(&self.overflow.guard), Some(guest)))
    }
}

impl<C: Clock> Each<C> {
    fn guard(&self, key: &[u8]) -> Single<C> {
        (self.make)(self.limit(key))
    }

    fn limit(&self, key: &[u8]) -> OneLimit {
        self.own_limit(key).unwrap_or(self.limit)
    }

    /// Returns the limit of a key if limits differ.
    fn own_limit(&self, key: &[u8]) -> Option<OneLimit> {
        let limit_of = self.limit_of.as_ref()?;
        Some(limit_of(key).limit().unwrap_or(OneLimit::Fixed(0)))
    }

    /// Returns the most that a key may have in any limit: the maximum of its own.
    fn most(&self, key: &[u8]) -> u32 {
        self.own_limit(key).map_or(u32::MAX, OneLimit::most)
    }
}

impl<C> Clone for KeyedGuard<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

debug_fields!([C] KeyedGuard<C>, |it| keys = it.0.guards.count());
