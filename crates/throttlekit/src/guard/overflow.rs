//! What newcomers share while every place is held: one guard, and who is in it.
//!
//! A key that holds or awaits a slot here stays here until it has none, or it would have a second ceiling beside this.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire};

use super::{Full, Guard};
use crate::sync::Mutex;

/// The one guard, and how often each key is in it.
pub(super) struct Overflow<C> {
    pub(super) guard: Arc<Guard<C>>,
    /// At most as many keys as the guard lets in and lets wait, beside those that are just asking.
    guests: Mutex<HashMap<u64, u32>>,
    /// How many are in it by all keys: zero where nobody has to look.
    count: AtomicUsize,
}

/// One ask of a key that is counted here until it is dropped.
pub(super) struct Guest<C> {
    overflow: Arc<Overflow<C>>,
    fingerprint: u64,
}

impl<C> Overflow<C> {
    pub(super) fn new(guard: Guard<C>) -> Arc<Self> {
        Arc::new(Self { guard: Arc::new(guard), guests: Mutex::default(), count: AtomicUsize::new(0) })
    }

    /// Whether the key has anything here. Right for who holds the lock of the key's shard: nobody comes meanwhile.
    pub(super) fn has(&self, fingerprint: u64) -> bool {
        self.count.load(Acquire) > 0 && self.guests.lock().contains_key(&fingerprint)
    }

    /// Counts an ask of the key, unless it has `most` here already. Only under the lock of the key's shard.
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

    /// How many hold, await or ask for a slot here.
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
