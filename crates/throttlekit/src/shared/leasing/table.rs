//! Keys with state on this node: a fixed number, found without a lock.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, OnceLock};

use throttlekit_core::Timestamp;

use super::key_state::KeySlot;
use crate::sync::Mutex;

/// Slots a key may be in. Their fingerprints fill one cache line.
const WAYS: usize = 8;
/// The fingerprint of no key.
const NOBODY: u64 = 0;

/// Slots by fingerprint. A key that finds no slot is checked strictly.
pub(super) struct Table {
    sets: Box<[Set]>,
}

#[derive(Default)]
#[repr(align(64))]
struct Set {
    owners: [AtomicU64; WAYS],
    slots: [OnceLock<Arc<KeySlot>>; WAYS],
    /// Held while a slot is given to a key.
    giving: Mutex<()>,
}

/// Slot where a key was found. It may have passed to another since.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    owner: &'a AtomicU64,
    pub(super) slot: &'a Arc<KeySlot>,
    fingerprint: u64,
}

impl Place<'_> {
    /// Returns whether the slot is still that key's.
    #[inline(always)]
    pub(super) fn is_mine(&self) -> bool {
        self.owner.load(Acquire) == self.fingerprint
    }

    pub(super) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

impl Table {
    pub(super) fn new(keys_max: usize) -> Self {
        let sets = keys_max.div_ceil(WAYS).next_power_of_two();
        Self { sets: (0..sets).map(|_| Set::default()).collect() }
    }

    #[inline]
    pub(super) fn find(&self, fingerprint: u64) -> Option<Place<'_>> {
        let (set, fingerprint) = (self.set(fingerprint), somebody(fingerprint));
        let way = set.owners.iter().position(|owner| owner.load(Acquire) == fingerprint)?;
        let slot = set.slots[way].get()?;
        Some(Place { owner: &set.owners[way], slot, fingerprint })
    }

    /// Returns the key's slot, or one that is given to it: an empty one, or that of a key which holds nothing.
    pub(super) fn find_or_give(
        &self,
        fingerprint: u64,
        now: Timestamp,
        make: impl Fn() -> KeySlot,
    ) -> Option<Place<'_>> {
        if let Some(place) = self.find(fingerprint) {
            return Some(place);
        }
        let set = self.set(fingerprint);
        let _giving = set.giving.lock();
        if let Some(place) = self.find(fingerprint) {
            return Some(place);
        }
        let way = set.vacant().or_else(|| set.vacate(now))?;
        let slot = set.slots[way].get_or_init(|| Arc::new(make()));
        let fingerprint = somebody(fingerprint);
        set.owners[way].store(fingerprint, Release);
        Some(Place { owner: &set.owners[way], slot, fingerprint })
    }

    /// Returns every key that has a slot.
    pub(super) fn places(&self) -> impl Iterator<Item = Place<'_>> {
        self.sets.iter().flat_map(|set| {
            set.owners.iter().zip(&set.slots).filter_map(|(owner, slot)| {
                let fingerprint = owner.load(Acquire);
                Some(Place { owner, slot: slot.get().filter(|_| fingerprint != NOBODY)?, fingerprint })
            })
        })
    }

    #[inline(always)]
    fn set(&self, fingerprint: u64) -> &Set {
        // The number of sets is a power of two.
        &self.sets[(fingerprint >> 32) as usize & (self.sets.len() - 1)]
    }
}

impl Set {
    fn vacant(&self) -> Option<usize> {
        self.owners.iter().position(|owner| owner.load(Acquire) == NOBODY)
    }

    /// Frees the slot of the key that was used longest ago, of those that hold nothing.
    fn vacate(&self, now: Timestamp) -> Option<usize> {
        let idle = |way: usize| Some((self.slots[way].get()?.idle_since(now)?, way));
        let mut ways: Vec<_> = (0..WAYS).filter_map(idle).collect();
        ways.sort_unstable();
        ways.into_iter().map(|(_, way)| way).find(|&way| {
            let disown = || self.owners[way].store(NOBODY, Release);
            self.slots[way].get().is_some_and(|slot| slot.clear(now, disown))
        })
    }
}

#[inline(always)]
fn somebody(fingerprint: u64) -> u64 {
    fingerprint.max(NOBODY + 1)
}
