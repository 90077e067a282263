//! Many keys: at most so many at a time of each, and perhaps of all.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::key_guards::KeyGuards;
use super::overflow::{Guest, Overflow};
use super::{Class, Full, Guard, GuardBuilder, GuardLimit, KeyedGuardBuilder, OwnedPermit};
use crate::{BootClock, Clock, KeyHash, SecretHash};

/// At most so many at a time for each key: a tenant, a model, a backend.
///
/// Each key has a [`Guard`] of its own, fixed or adaptive, and there may be one over all. Memory is bounded: at the cap
/// the key that was idle longest, of a few, makes room for a newcomer. A key that holds or awaits a slot is never
/// dropped. While all that are looked at do, newcomers share one more guard, and so one ceiling, until they have let go
/// of it; none of them has more there, waiting or not, than its own limit.
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

/// What the guard of a key is made of.
pub(super) struct Each<C> {
    pub(super) builder: GuardBuilder<C>,
    /// The limit of a key, where they differ.
    pub(super) limit_of: Option<LimitOf>,
}

/// The limit of a key.
pub(super) type LimitOf = Box<dyn Fn(&[u8]) -> GuardLimit + Send + Sync>;

/// The guard of a key; and where it is the shared one, the word that the key is in it.
type Found<C> = (Arc<Guard<C>>, Option<Guest<C>>);

/// A slot of a key, and one of all where there is such a limit. Ends like a [`Permit`](super::Permit).
#[must_use = "the slot is given back as soon as the permit is dropped"]
pub struct KeyedPermit<C: Clock = BootClock> {
    // In the order in which they are dropped: the slot before the word that the key is in the shared guard.
    own: OwnedPermit<C>,
    total: Option<OwnedPermit<C>>,
    guest: Option<Guest<C>>,
}

/// Which limit let nobody in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyedFull {
    /// The key's own, or the one it shares with other newcomers.
    Key(Full),
    /// The one over all keys.
    Total(Full),
}

impl KeyedGuard {
    /// Everything that can be chosen, over the limit of each key: a number or a [`Ceiling`](super::Ceiling).
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

    /// A slot of the key, of the first class, if there is one now.
    pub fn try_acquire(&self, key: impl AsRef<[u8]>) -> Result<KeyedPermit<C>, KeyedFull> {
        self.try_acquire_as(key, Class::FIRST)
    }

    /// A slot of the key, of a class, if there is one for it now.
    pub fn try_acquire_as(&self, key: impl AsRef<[u8]>, class: Class) -> Result<KeyedPermit<C>, KeyedFull> {
        let (guard, guest) = self.guard(key.as_ref())?;
        let own = guard.try_into_permit(class).map_err(KeyedFull::Key)?;
        let total = self.total.clone().map(|total| total.try_into_permit(class)).transpose();
        Ok(KeyedPermit { own, total: total.map_err(KeyedFull::Total)?, guest })
    }

    /// A slot of the key and then one of all, each now or when it is this ask's turn.
    ///
    /// The future can be dropped at any time, like that of [`Guard::acquire`]. An ask that has its key's slot keeps it
    /// while it waits for one of all, also before one of the same key whose class comes first.
    pub async fn acquire(&self, key: impl AsRef<[u8]>, class: Class) -> Result<KeyedPermit<C>, KeyedFull> {
        let (guard, guest) = self.guard(key.as_ref())?;
        let mut own = guard.acquire_owned(class).await.map_err(KeyedFull::Key)?;
        let mut total = None;
        if let Some(all) = self.total.clone() {
            total = Some(all.acquire_owned(class).await.map_err(KeyedFull::Total)?);
            // The work begins now. Who waited long for a slot of all would else teach the key that its backend is slow.
            own.restart();
        }
        Ok(KeyedPermit { own, total, guest })
    }

    /// The same within `wait`, by tokio's timer. None when it has passed.
    #[cfg(feature = "wait")]
    pub async fn acquire_within(
        &self,
        key: impl AsRef<[u8]>,
        class: Class,
        wait: Duration,
    ) -> Option<Result<KeyedPermit<C>, KeyedFull>> {
        tokio::time::timeout(wait, self.acquire(key, class)).await.ok()
    }

    /// How many of a key may be in flight, and how many are: its own, or those of the guard it shares. None for a key
    /// that holds nothing and has no guard.
    pub fn snapshot(&self, key: impl AsRef<[u8]>) -> Option<(u32, u32)> {
        let fingerprint = self.hash.fingerprint(key.as_ref());
        let mut shard = self.guards.lock(fingerprint);
        let shared = || self.overflow.has(fingerprint).then(|| Arc::clone(&self.overflow.guard));
        shard.find(fingerprint).or_else(shared).map(|guard| guard.snapshot())
    }

    /// The guard over all keys, if there is one.
    pub fn total(&self) -> Option<&Guard<C>> {
        self.total.as_deref()
    }

    /// How many keys have a guard of their own; at most the cap.
    pub fn keys(&self) -> usize {
        self.guards.count()
    }

    /// How many asks are in the guard that newcomers share: above zero, the cap is too small for the load.
    pub fn overflowing(&self) -> usize {
        self.overflow.count()
    }

    /// The key's guard, or the shared one. A key that is in the shared one stays in it: two would be two ceilings.
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

    /// How many a key may have wherever it is: what its own guard could ever let in.
    fn most(&self, key: &[u8]) -> u32 {
        match self.limit_of.as_ref().map(|limit_of| limit_of(key)) {
            Some(GuardLimit::Fixed(limit)) => limit,
            Some(GuardLimit::Adaptive(ceiling)) => ceiling.most(),
            None => u32::MAX,
        }
    }
}

impl<C: Clock> KeyedPermit<C> {
    /// How many of the key may be in flight, and how many are.
    pub(crate) fn snapshot(&self) -> (u32, u32) {
        self.own.snapshot()
    }

    /// See [`OwnedPermit::elapsed`].
    pub fn elapsed(&self) -> Option<Duration> {
        self.own.elapsed()
    }

    /// See [`Permit::success`](super::Permit::success).
    pub fn success(self) {
        self.end(OwnedPermit::success);
    }

    /// See [`Permit::success_after`](super::Permit::success_after).
    pub fn success_after(self, latency: Duration) {
        self.end(|permit| permit.success_after(latency));
    }

    /// See [`Permit::dropped`](super::Permit::dropped).
    pub fn dropped(self) {
        self.end(OwnedPermit::dropped);
    }

    /// See [`Permit::ignored`](super::Permit::ignored).
    pub fn ignored(self) {
        self.end(OwnedPermit::ignored);
    }

    /// Ends both, and says last that the key is no longer in the shared guard.
    fn end(self, how: impl Fn(OwnedPermit<C>)) {
        let Self { own, total, guest } = self;
        how(own);
        total.into_iter().for_each(how);
        drop(guest);
    }
}

impl KeyedFull {
    /// The limit, and how many were in flight.
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

impl<C: Clock> fmt::Debug for KeyedPermit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedPermit").field("shared", &self.guest.is_some()).finish_non_exhaustive()
    }
}

impl<C, H> fmt::Debug for KeyedGuard<C, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedGuard").field("keys", &self.guards.count()).finish_non_exhaustive()
    }
}
