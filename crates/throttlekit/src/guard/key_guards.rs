//! The guards of keys: at most `n`; a guard in use is never dropped.

use std::sync::Arc;

use hashbrown::HashTable;

use super::single::Single;
use crate::sync::{Mutex, MutexGuard};

/// Below this many keys one lock is enough; above there are several shards, each with a part of the keys.
const KEYS_FOR_SHARDS: usize = 4_096;
const SHARDS: usize = 16;
/// Number of entries examined for the one that was idle longest.
const LOOKS: usize = 8;
/// Maximum number of entries examined for any idle one, if none of those was idle.
const LOOKS_MAX: usize = 64;

/// Guards by fingerprint.
pub(super) struct KeyGuards<C> {
    shards: Box<[Mutex<Shard<C>>]>,
}

/// A shard of the keys.
pub(super) struct Shard<C> {
    index: HashTable<u32>,
    entries: Vec<Entry<C>>,
    entries_max: usize,
    /// Position at which the search for an idle key continues.
    hand: usize,
    /// Counts lookups: the measure of idle time.
    turn: u64,
}

struct Entry<C> {
    fingerprint: u64,
    guard: Arc<Single<C>>,
    used: u64,
}

impl<C> KeyGuards<C> {
    pub(super) fn new(keys_max: usize) -> Self {
        let shards = if keys_max < KEYS_FOR_SHARDS { 1 } else { SHARDS };
        let entries_max = keys_max.div_ceil(shards).clamp(1, u32::MAX as usize);
        Self { shards: (0..shards).map(|_| Mutex::new(Shard::new(entries_max))).collect() }
    }

    /// Locks the shard of a key.
    pub(super) fn lock(&self, fingerprint: u64) -> MutexGuard<'_, Shard<C>> {
        // The number of shards is a power of two.
        let shard = (fingerprint >> 32) as usize & (self.shards.len() - 1);
        self.shards[shard].lock()
    }

    /// Returns the number of keys with a guard of their own.
    pub(super) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().entries.len()).sum()
    }
}

impl<C> Shard<C> {
    fn new(entries_max: usize) -> Self {
        Self { index: HashTable::new(), entries: Vec::new(), entries_max, hand: 0, turn: 0 }
    }

    /// Returns the key's guard, if it has one.
    pub(super) fn find(&mut self, fingerprint: u64) -> Option<Arc<Single<C>>> {
        let at = *self.index.find(fingerprint, |&at| self.entries[at as usize].fingerprint == fingerprint)?;
        self.turn += 1;
        let entry = &mut self.entries[at as usize];
        entry.used = self.turn;
        Some(Arc::clone(&entry.guard))
    }

    /// Creates a guard for a key without one: in a new entry, or in that of an idle key. `None` if there is neither.
    pub(super) fn give(
        &mut self,
        fingerprint: u64,
        make: impl FnOnce() -> Single<C>,
    ) -> Option<Arc<Single<C>>> {
        let vacant = (self.entries.len() < self.entries_max).then_some(self.entries.len());
        let at = vacant.or_else(|| self.vacate())?;
        self.turn += 1;
        let guard = Arc::new(make());
        let entry = Entry { fingerprint, guard: Arc::clone(&guard), used: self.turn };
        if at == self.entries.len() {
            self.entries.push(entry);
        } else {
            self.entries[at] = entry;
        }
        let entries = &self.entries;
        self.index.insert_unique(fingerprint, at as u32, |&at| entries[at as usize].fingerprint);
        Some(guard)
    }

    /// Evicts the key that was idle longest, of the few examined; otherwise the next idle one.
    fn vacate(&mut self) -> Option<usize> {
        let mut longest: Option<usize> = None;
        for look in 0..LOOKS_MAX.min(self.entries.len()) {
            if look >= LOOKS && longest.is_some() {
                break;
            }
            self.hand = (self.hand + 1) % self.entries.len();
            let older = |at: usize| self.entries[at].used < self.entries[self.hand].used;
            if self.entries[self.hand].is_idle() && !longest.is_some_and(older) {
                longest = Some(self.hand);
            }
        }
        let at = longest?;
        let of_entry = |held: &u32| *held as usize == at;
        if let Ok(entry) = self.index.find_entry(self.entries[at].fingerprint, of_entry) {
            entry.remove();
        }
        Some(at)
    }
}

impl<C> Entry<C> {
    /// Checks that no caller holds a permit of it, waits for one, or is about to request one. Any such caller holds the
    /// guard, and the guard is only handed out under the lock of the shard, which is held.
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.guard) == 1
    }
}
