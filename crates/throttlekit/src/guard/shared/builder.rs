//! Builder of a shared guard.

use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::lease::Margin;

use super::divided_builder::DividedGuardBuilder;
use super::handle::SharedGuard;
use crate::clock::{BootClock, LeaseClock};
use crate::concurrency::OneLimit;
use crate::guard::slot_leases::{SLOTS_MAX_HERE, Setup, SlotLeases};
use crate::store::{KeySpace, LIVES_MAX, LIVES_MIN, SlotStore};
use crate::{BuildError, Concurrency};

/// Longer than a failover of the store takes: to detect, to elect, to reconnect.
const LEASE: Duration = Duration::from_secs(30);
/// Prefix of keys in stores.
const PREFIX: &str = "tk";
const _: () = assert!(LIVES_MIN.as_millis() == 10 && LIVES_MAX.as_secs() == 24 * 3_600, "`LEASE_EXPECTED`");
const LEASE_EXPECTED: &str = "10 ms to 24 h, and at least twice the clock error";

/// Builder of a [`SharedGuard`] with slots on a store, or of a [divided](Self::divided) one.
///
/// ```
/// use std::time::Duration;
/// use throttlekit::{Concurrency, SharedGuard, store::MemoryStore};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let store = MemoryStore::new(); // in production a RedisStore or a PostgresStore
/// let gpu = SharedGuard::builder(store, "gpu", Concurrency::per_key(2)).lease(Duration::from_secs(60)).build()?;
/// let backend = SharedGuard::builder(MemoryStore::new(), "backend", 100).divided().build()?;
/// # let _ = (gpu, backend);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SharedGuardBuilder<S, C = BootClock> {
    pub(super) store: S,
    pub(super) name: String,
    pub(super) limit: Concurrency,
    pub(super) prefix: String,
    pub(super) lease: Option<Duration>,
    pub(super) clock_error: Margin,
    permits_max: usize,
    clock: C,
}

impl<S> SharedGuardBuilder<S> {
    pub(super) fn new(store: S, name: &str, limit: Concurrency) -> Self {
        Self {
            store,
            name: name.to_owned(),
            limit,
            prefix: PREFIX.to_owned(),
            lease: None,
            clock_error: Margin::default(),
            permits_max: SLOTS_MAX_HERE,
            clock: BootClock,
        }
    }

    /// Divides the limit over the nodes: each admits its share without a call to the store. Needed for adaptive limits.
    /// Name, prefix, lease and clock error carry over.
    pub fn divided(self) -> DividedGuardBuilder<S> {
        DividedGuardBuilder::new(self)
    }
}

impl<S, C> SharedGuardBuilder<S, C> {
    /// Sets the lifetime of a lease without a heartbeat: after this time the slot of a process that died is free again,
    /// and after this time without the store every holder has to stop. Default: 30 seconds.
    ///
    /// It has to outlive a failover of the store. Leases of two seconds all expire while a Redis cluster fails over, as
    /// that takes longer.
    ///
    /// All processes that share a limit need the same lifetime. A store that may have forgotten leases rejects each
    /// process for the lifetime of that process's own leases; forgotten leases live for the lifetime that their holders
    /// requested. So to lower it, change all processes, and wait out the old lifetime before a failover is safe again.
    pub fn lease(self, lease: Duration) -> Self {
        Self { lease: Some(lease), ..self }
    }

    /// Sets the maximum number of slots that this process holds at a time, over all keys; one more is denied until
    /// another is released. Default: 12,288, which is the maximum.
    pub fn permits_max(self, permits: usize) -> Self {
        Self { permits_max: permits.min(SLOTS_MAX_HERE), ..self }
    }

    /// Sets the maximum error of the clocks of store and process.
    pub fn clock_error(self, margin: Margin) -> Self {
        Self { clock_error: margin, ..self }
    }

    /// Sets the prefix of keys in the store. Default: `tk`.
    pub fn prefix(self, prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), ..self }
    }

    /// Sets the clock for the deadlines of holders. Default: [`BootClock`].
    pub fn clock<D: LeaseClock>(self, clock: D) -> SharedGuardBuilder<S, D> {
        let Self { store, name, limit, prefix, lease, clock_error, permits_max, .. } = self;
        SharedGuardBuilder { store, name, limit, prefix, lease, clock_error, permits_max, clock }
    }
}

impl<S: SlotStore, C: LeaseClock + 'static> SharedGuardBuilder<S, C> {
    /// Builds a guard with slots on the store. Fails if the limit is not fixed, or if the lease is too short or too
    /// long.
    pub fn build(self) -> Result<SharedGuard, BuildError> {
        let (limit, per_key) = (fixed(&self.limit)?, self.limit.is_per_key());
        let lease = self.lease.unwrap_or(LEASE);
        let margin = self.clock_error.behind(self.clock.behind_max());
        let usable = margin.deadline(Timestamp::EPOCH, lease).since(Timestamp::EPOCH);
        if !(LIVES_MIN..=LIVES_MAX).contains(&lease) || usable < lease / 2 {
            return Err(BuildError::OutOfRange { setting: "lease", expected: LEASE_EXPECTED });
        }
        let slots = SlotLeases::new(Setup {
            store: self.store,
            keys: KeySpace::slots(&self.prefix, &self.name),
            most: limit,
            lives: lease,
            margin,
            slots_max: self.permits_max,
            clock: self.clock,
        });
        Ok(SharedGuard::slots(Arc::new(slots), per_key))
    }
}

/// Returns the limit of slots on a store.
fn fixed(limit: &Concurrency) -> Result<u32, BuildError> {
    if limit.limit_of_all()?.is_some() {
        return Err(BuildError::NotShareable(
            "slots are counted in total or per key, not both: use two guards",
        ));
    }
    match limit.limit()? {
        OneLimit::Fixed(limit) => Ok(limit),
        OneLimit::Adaptive(_) => Err(BuildError::NotShareable("an adaptive limit must be `divided`")),
    }
}
