//! A concurrency limiter for many keys, and optionally for all of them together.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::concurrency::Ending;

use super::key_guards::KeyGuards;
use super::overflow::{Guest, Overflow};
use super::{Full, Guard, GuardBuilder, GuardLimit, KeyedGuardBuilder, OwnedPermit, Priority};
use crate::{BootClock, Clock, KeyHash, SecretHash};

/// A concurrency limiter for each key: a tenant, a model, a backend.
///
/// Each key has a [`Guard`] of its own, fixed or adaptive, and there may be one over all. Memory is bounded: at the cap
/// a new key evicts the key that was idle longest, of a few. A key that holds or awaits a slot is never evicted. While
/// all examined keys do, new keys share one more guard, and so one limit, until they have released it; none of them has
/// more there, waiting or not, than its own limit.
///
/// ```
/// use throttlekit::KeyedGuard;
///
/// let tenants = KeyedGuard::builder(2).total(100).keys_max(10_000).build();
/// let held = [tenants.try_acquire("alice").unwrap(), tenants.try_acquire("alice").unwrap()];
/// assert!(tenants.try_acquire("alice").is_err() && tenants.try_acquire("bob").is_ok());
/// held.map(|permit| permit.success());
/// assert!(tenants.try_acquire("alice").is_ok());
/// ```
pub struct KeyedGuard<C = BootClock, H = SecretHash> {
    guards: KeyGuards<C>,
    overflow: Arc<Overflow<C>>,
    total: Option<Arc<Guard<C>>>,
    each: Each<C>,
    hash: H,
}

/// Settings of the guard of a key.
pub(super) struct Each<C> {
    pub(super) builder: GuardBuilder<C>,
    /// The limit of a key, if limits differ.
    pub(super) limit_of: Option<LimitOf>,
}

/// Function that returns the limit of a key.
pub(super) type LimitOf = Box<dyn Fn(&[u8]) -> GuardLimit + Send + Sync>;

/// The guard of a key; and if it is the shared one, the entry of the key in it.
type Found<C> = (Arc<Guard<C>>, Option<Guest<C>>);

/// A slot of a key, and one of the total limit if there is one. Ends like a [`Permit`](super::Permit).
#[must_use = "the slot is given back as soon as the permit is dropped"]
pub struct KeyedPermit<C: Clock = BootClock> {
    // In drop order: the slot before the key's entry in the shared guard.
    own: OwnedPermit<C>,
    total: Option<OwnedPermit<C>>,
    guest: Option<Guest<C>>,
}

/// The limit that denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyedFull {
    /// The key's own, or the one it shares with other new keys.
    Key(Full),
    /// The one over all keys.
    Total(Full),
}

impl KeyedGuard {
    /// Describes a keyed guard with this limit for each key: a number or a [`Ceiling`](super::Ceiling).
    pub fn builder(limit: impl Into<GuardLimit>) -> KeyedGuardBuilder {
        KeyedGuardBuilder::new(limit.into())
    }
}

impl<C: Clock + Clone, H: KeyHash> KeyedGuard<C, H> {
    pub(super) fn from_parts(each: Each<C>, total: Option<Guard<C>>, keys_max: usize) -> Self {
        let overflow = Overflow::new(each.builder.clone().build());
        let (guards, total) = (KeyGuards::new(keys_max), total.map(Arc::new));
        Self { guards, overflow, total, each, hash: H::random() }
    }

    /// Acquires a slot of the key, of the first priority, if one is free now.
    pub fn try_acquire(&self, key: impl AsRef<[u8]>) -> Result<KeyedPermit<C>, KeyedFull> {
        self.try_acquire_as(key, Priority::HIGHEST)
    }

    /// Acquires a slot of the key, of a priority, if one is free for it now.
    pub fn try_acquire_as(
        &self,
        key: impl AsRef<[u8]>,
        priority: Priority,
    ) -> Result<KeyedPermit<C>, KeyedFull> {
        let (guard, guest) = self.guard(key.as_ref())?;
        let own = guard.try_into_permit(priority).map_err(KeyedFull::Key)?;
        let total = self.total.clone().map(|total| total.try_into_permit(priority)).transpose();
        Ok(KeyedPermit { own, total: total.map_err(KeyedFull::Total)?, guest })
    }

    /// Acquires a slot of the key and then one of the total limit, each now or after waiting in the queue.
    ///
    /// The future can be dropped at any time, like that of [`Guard::acquire`]. A request that has its key's slot keeps
    /// it while it waits for one of the total limit, even ahead of a request of the same key with an earlier priority.
    pub async fn acquire(
        &self,
        key: impl AsRef<[u8]>,
        priority: Priority,
    ) -> Result<KeyedPermit<C>, KeyedFull> {
        let (guard, guest) = self.guard(key.as_ref())?;
        let mut own = guard.acquire_owned(priority).await.map_err(KeyedFull::Key)?;
        let mut total = None;
        if let Some(all) = self.total.clone() {
            total = Some(all.acquire_owned(priority).await.map_err(KeyedFull::Total)?);
            // The work begins now. Otherwise a long wait for the total limit would count as latency of the key's
            // backend.
            own.restart();
        }
        Ok(KeyedPermit { own, total, guest })
    }

    /// Like [`acquire`](Self::acquire), with a timeout by tokio's timer. `None` on timeout.
    #[cfg(feature = "wait")]
    pub async fn acquire_within(
        &self,
        key: impl AsRef<[u8]>,
        priority: Priority,
        wait: Duration,
    ) -> Option<Result<KeyedPermit<C>, KeyedFull>> {
        tokio::time::timeout(wait, self.acquire(key, priority)).await.ok()
    }

    /// Returns the maximum number in flight and the number in flight of a key: of its own guard, or of the one it
    /// shares. `None` for a key that holds nothing and has no guard.
    pub fn snapshot(&self, key: impl AsRef<[u8]>) -> Option<(u32, u32)> {
        let fingerprint = self.hash.fingerprint(key.as_ref());
        let mut shard = self.guards.lock(fingerprint);
        let shared = || self.overflow.has(fingerprint).then(|| Arc::clone(&self.overflow.guard));
        shard.find(fingerprint).or_else(shared).map(|guard| guard.snapshot())
    }

    /// Returns the guard over all keys, if there is one.
    pub fn total(&self) -> Option<&Guard<C>> {
        self.total.as_deref()
    }

    /// Returns the limit of a key whose limit is not set apart.
    pub(crate) fn limit_of_key(&self) -> u32 {
        self.overflow.guard.limit()
    }

    /// Returns the number of keys with a guard of their own; at most the cap.
    pub fn keys(&self) -> usize {
        self.guards.count()
    }

    /// Returns the number of requests in the guard that new keys share: above zero, the cap is too small for the load.
    pub fn overflowing(&self) -> usize {
        self.overflow.count()
    }

    /// Returns the key's guard, or the shared one. A key in the shared one stays in it: two guards would mean two
    /// limits.
    fn guard(&self, key: &[u8]) -> Result<Found<C>, KeyedFull> {
        let fingerprint = self.hash.fingerprint(key);
        let mut shard = self.guards.lock(fingerprint);
        if let Some(guard) = shard.find(fingerprint) {
            return Ok((guard, None));
        }
        let own = (!self.overflow.has(fingerprint)).then(|| shard.give(fingerprint, || self.each.guard(key)));
        if let Some(guard) = own.flatten() {
            return Ok((guard, None));
        }
        let guest = self.overflow.enter(fingerprint, self.each.most(key)).map_err(KeyedFull::Key)?;
        Ok((Arc::clone(&self.overflow.guard), Some(guest)))
    }
}

impl<C: Clock + Clone> Each<C> {
    fn guard(&self, key: &[u8]) -> Guard<C> {
        let builder = self.builder.clone();
        match &self.limit_of {
            Some(limit_of) => builder.limit(limit_of(key)).build(),
            None => builder.build(),
        }
    }

    /// Returns the most that a key may have in any guard: the maximum of its own limit.
    fn most(&self, key: &[u8]) -> u32 {
        match self.limit_of.as_ref().map(|limit_of| limit_of(key)) {
            Some(GuardLimit::Fixed(limit)) => limit,
            Some(GuardLimit::Adaptive(ceiling)) => ceiling.most(),
            None => u32::MAX,
        }
    }
}

impl<C: Clock> KeyedPermit<C> {
    /// Returns the maximum number in flight and the number in flight of the key.
    pub(crate) fn snapshot(&self) -> (u32, u32) {
        self.own.snapshot()
    }

    /// See [`OwnedPermit::elapsed`].
    pub fn elapsed(&self) -> Option<Duration> {
        self.own.elapsed()
    }

    endings!();

    /// Ends both slots, and then removes the key from the shared guard.
    pub(crate) fn end(self, ending: Ending, latency: Option<Duration>) {
        let Self { own, total, guest } = self;
        own.end(ending, latency);
        total.into_iter().for_each(|total| total.end(ending, latency));
        drop(guest);
    }
}

impl KeyedFull {
    /// Returns the limit and the number in flight.
    pub fn full(self) -> Full {
        let (Self::Key(full) | Self::Total(full)) = self;
        full
    }
}

impl fmt::Display for KeyedFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(full) => write!(f, "{full} of the key"),
            Self::Total(full) => write!(f, "{full} of all keys"),
        }
    }
}

impl std::error::Error for KeyedFull {}

debug_fields!([C: Clock] KeyedPermit<C>, |it| shared = it.guest.is_some());

debug_fields!([C, H] KeyedGuard<C, H>, |it| keys = it.guards.count());
