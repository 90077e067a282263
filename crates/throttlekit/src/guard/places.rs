//! Which keys have a guard of their own: at most so many, and none that is held is ever dropped.

use std::sync::Arc;

use hashbrown::HashTable;

use super::Guard;
use crate::sync::{Mutex, MutexGuard};

/// Below this many keys one lock is enough; above there are several, each for a part of the keys.
const KEYS_FOR_SHARDS: usize = 4_096;
const SHARDS: usize = 16;
/// How many places are looked at for the one that was idle longest.
const LOOKS: usize = 8;
/// How many are looked at in all, for any that is idle, where none of those was.
const LOOKS_MAX: usize = 64;

/// Guards by fingerprint.
pub(super) struct Places<C> {
    shards: Box<[Mutex<Shard<C>>]>,
}

/// A part of the keys.
pub(super) struct Shard<C> {
    index: HashTable<u32>,
    places: Vec<Place<C>>,
    places_max: usize,
    /// Where the search for an idle key goes on.
    hand: usize,
    /// Counts lookups: what idleness is measured by.
    turn: u64,
}

struct Place<C> {
    fingerprint: u64,
    guard: Arc<Guard<C>>,
    used: u64,
}

impl<C> Places<C> {
    pub(super) fn new(keys_max: usize) -> Self {
        let shards = if keys_max < KEYS_FOR_SHARDS { 1 } else { SHARDS };
        let places_max = keys_max.div_ceil(shards).clamp(1, u32::MAX as usize);
        Self { shards: (0..shards).map(|_| Mutex::new(Shard::new(places_max))).collect() }
    }

    /// The part that a key belongs to.
    pub(super) fn lock(&self, fingerprint: u64) -> MutexGuard<'_, Shard<C>> {
        // As many as a power of two.
        let shard = (fingerprint >> 32) as usize & (self.shards.len() - 1);
        self.shards[shard].lock()
    }

    /// How many keys have a guard of their own.
    pub(super) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().places.len()).sum()
    }
}

impl<C> Shard<C> {
    fn new(places_max: usize) -> Self {
        Self { index: HashTable::new(), places: Vec::new(), places_max, hand: 0, turn: 0 }
    }

    /// The key's guard, if it has one.
    pub(super) fn find(&mut self, fingerprint: u64) -> Option<Arc<Guard<C>>> {
        let at = *self.index.find(fingerprint, |&at| self.places[at as usize].fingerprint == fingerprint)?;
        self.turn += 1;
        let place = &mut self.places[at as usize];
        place.used = self.turn;
        Some(Arc::clone(&place.guard))
    }

    /// Gives a key that has none a guard: in a new place, or in that of an idle key. None where there is neither.
    pub(super) fn give(
        &mut self,
        fingerprint: u64,
        make: impl FnOnce() -> Guard<C>,
    ) -> Option<Arc<Guard<C>>> {
        let vacant = (self.places.len() < self.places_max).then_some(self.places.len());
        let at = vacant.or_else(|| self.vacate())?;
        self.turn += 1;
        let guard = Arc::new(make());
        let place = Place { fingerprint, guard: Arc::clone(&guard), used: self.turn };
        if at == self.places.len() {
            self.places.push(place);
        } else {
            self.places[at] = place;
        }
        let places = &self.places;
        self.index.insert_unique(fingerprint, at as u32, |&at| places[at as usize].fingerprint);
        Some(guard)
    }

    /// Takes the place of the key that was idle longest, of the few that are looked at; else of the next that is idle.
    fn vacate(&mut self) -> Option<usize> {
        let mut longest: Option<usize> = None;
        for look in 0..LOOKS_MAX.min(self.places.len()) {
            if look >= LOOKS && longest.is_some() {
                break;
            }
            self.hand = (self.hand + 1) % self.places.len();
            let older = |at: usize| self.places[at].used < self.places[self.hand].used;
            if self.places[self.hand].is_idle() && !longest.is_some_and(older) {
                longest = Some(self.hand);
            }
        }
        let at = longest?;
        let of_place = |held: &u32| *held as usize == at;
        if let Ok(entry) = self.index.find_entry(self.places[at].fingerprint, of_place) {
            entry.remove();
        }
        Some(at)
    }
}

impl<C> Place<C> {
    /// Nobody holds a permit of it, waits for one, or is about to ask. Whoever does has the guard, and only the lock of
    /// the shard, which is held, lets anybody have it.
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.guard) == 1
    }
}
