//! The guard that new keys share while all entries are in use, and the keys in it.
//!
//! A key that holds or awaits a slot here stays here until it has none; otherwise it would have a second limit.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire};

use super::single::{Full, Single};
use crate::sync::Mutex;

/// The shared guard, and the number of entries of each key in it.
pub(super) struct Overflow<C> {
    pub(super) guard: Arc<Single<C>>,
    /// At most as many keys as the guard admits and queues, plus those with a request in progress.
    guests: Mutex<HashMap<u64, u32>>,
    /// Number of entries of all keys: if zero, no lookup is needed.
    count: AtomicUsize,
}

/// One request of a key, counted here until it is dropped.
pub(super) struct Guest<C> {
    overflow: Arc<Overflow<C>>,
    fingerprint: u64,
}

impl<C> Overflow<C> {
    pub(super) fn new(guard: Single<C>) -> Arc<Self> {
        Arc::new(Self { guard: Arc::new(guard), guests: Mutex::default(), count: AtomicUsize::new(0) })
    }

    /// Checks whether the key has an entry here. Valid under the lock of the key's shard: none is added meanwhile.
    pub(super) fn has(&self, fingerprint: u64) -> bool {
        self.count.load(Acquire) > 0 && self.guests.lock().contains_key(&fingerprint)
    }

    /// Counts a request of the key, unless it has `most` here already. Only under the lock of the key's shard.
    pub(super) fn enter(self: &Arc<Self>, fingerprint: u64, most: u32) -> Result<Guest<C>, Full> {
        let mut guests = self.guests.lock();
        let in_flight = guests.get(&fingerprint).copied().unwrap_or(0);
        if in_flight >= most {
            return Err(Full { limit: most, in_flight });
        }
        guests.insert(fingerprint, in_flight + 1);
        self.count.fetch_add(1, AcqRel);
        Ok(Guest { overflow: Arc::clone(self), fingerprint })
    }

    /// Returns the number of requests that hold, await or request a slot here.
    pub(super) fn count(&self) -> usize {
        self.count.load(Acquire)
    }
}

impl<C> Drop for Guest<C> {
    fn drop(&mut self) {
        let mut guests = self.overflow.guests.lock();
        if let Some(count) = guests.get_mut(&self.fingerprint) {
            *count -= 1;
            if *count == 0 {
                guests.remove(&self.fingerprint);
            }
        }
        drop(guests);
        self.overflow.count.fetch_sub(1, AcqRel);
    }
}
