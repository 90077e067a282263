//! What is kept of keys, in a sharded map under small locks.
//!
//! Each shard holds its part of the cap. A full shard first recycles a key that has nothing left to answer for; failing
//! that it drops the key that will be done soonest, and joins that key's debt into the state from which every unknown
//! key of the shard starts. So no key that was being limited comes back to a fresh budget.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use throttlekit_core::Timestamp;

/// How many keys a full shard looks at to find the one to drop.
const CANDIDATES: usize = 64;
const KEYS_PER_SHARD: usize = 1_024;
/// Beyond a billion keys shards grow, and a check may meet one that does.
const SHARDS_MAX: usize = 1 << 20;

pub(crate) struct Shards<T> {
    shards: Box<[Mutex<Shard<T>>]>,
    keys_max_per_shard: usize,
}

/// What a key owes, by the rule that is asked.
pub(crate) trait Debts<T> {
    /// From when on it owes nothing.
    fn idle_at(&self, state: &T) -> Timestamp;

    /// Makes `state` owe at least as much as both do at `now`.
    fn join(&self, state: &mut T, other: &T, now: Timestamp);
}

struct Shard<T> {
    keys: HashTable<(u64, T)>,
    /// The join of the states of all keys this shard had to drop.
    lost: T,
    /// Where the search for a key to drop goes on.
    hand: usize,
}

impl<T: Default> Default for Shard<T> {
    fn default() -> Self {
        Self { keys: HashTable::new(), lost: T::default(), hand: 0 }
    }
}

/// One key while its shard is locked. Nothing is written unless `change` is called.
pub(crate) struct LockedKey<'a, T> {
    shard: MutexGuard<'a, Shard<T>>,
    keys_max: usize,
    fingerprint: u64,
}

impl<T: Default> Shards<T> {
    pub(crate) fn new(keys_max: usize) -> Self {
        let shards = (keys_max / KEYS_PER_SHARD).clamp(1, SHARDS_MAX).next_power_of_two();
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            keys_max_per_shard: with_slack(keys_max.div_ceil(shards)),
        }
    }

    pub(crate) fn lock(&self, fingerprint: u64) -> LockedKey<'_, T> {
        // The map inside a shard takes its place and its tag from both ends of the fingerprint.
        let index = (fingerprint >> 32) as usize & (self.shards.len() - 1);
        // A panic cannot leave a shard half written: rules are pure and the map is changed after they return.
        let shard = self.shards[index].lock().unwrap_or_else(PoisonError::into_inner);
        LockedKey { shard, keys_max: self.keys_max_per_shard, fingerprint }
    }

    pub(crate) fn remove(&self, fingerprint: u64) {
        let mut locked = self.lock(fingerprint);
        if let Ok(entry) = locked.shard.keys.find_entry(fingerprint, |(key, _)| *key == fingerprint) {
            entry.remove();
        }
    }

    /// How many keys owe something at `now`. Looks at every key.
    pub(crate) fn live(&self, debts: &impl Debts<T>, now: Timestamp) -> usize {
        let owing = |shard: &Mutex<Shard<T>>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.keys.iter().filter(|(_, state)| debts.idle_at(state) > now).count()
        };
        self.shards.iter().map(owing).sum()
    }

    /// Whether no key owes anything at `now`, nor any that was dropped. Looks until it finds one.
    #[cfg(feature = "store")]
    pub(crate) fn is_idle(&self, debts: &impl Debts<T>, now: Timestamp) -> bool {
        self.shards.iter().all(|shard| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let mut states = shard.keys.iter().map(|(_, state)| state).chain([&shard.lost]);
            states.all(|state| debts.idle_at(state) <= now)
        })
    }
}

/// Room for a shard's part of the keys and for chance: six standard deviations of how many come its way.
fn with_slack(keys: usize) -> usize {
    keys + 6 * keys.isqrt() + 8
}

impl<T: Clone + Default> LockedKey<'_, T> {
    /// What is kept, or what a key starts from where some were dropped. Nothing is a key that owes nothing.
    #[inline]
    pub(crate) fn state(&self, debts: &impl Debts<T>, now: Timestamp) -> Option<&T> {
        let known = self.shard.keys.find(self.fingerprint, |(key, _)| *key == self.fingerprint);
        known.map(|(_, state)| state).or_else(|| self.shard.start(debts, now))
    }

    /// What is kept of a key that is known.
    #[inline]
    pub(crate) fn known(&mut self) -> Option<&mut T> {
        let known = self.shard.keys.find_mut(self.fingerprint, |(key, _)| *key == self.fingerprint);
        known.map(|(_, state)| state)
    }

    /// Changes what is kept, making room for it where nothing is.
    pub(crate) fn change(&mut self, debts: &impl Debts<T>, now: Timestamp, by: impl FnOnce(&mut T)) {
        if let Some(state) = self.known() {
            return by(state);
        }
        let mut state = self.shard.start(debts, now).cloned().unwrap_or_default();
        by(&mut state);
        if self.shard.keys.len() >= self.keys_max {
            self.shard.drop_one(debts, now);
        }
        if let Entry::Vacant(vacant) =
            self.shard.keys.entry(self.fingerprint, |(key, _)| *key == self.fingerprint, |(key, _)| *key)
        {
            vacant.insert((self.fingerprint, state));
        }
    }
}

impl<T> Shard<T> {
    /// The state from which a key unknown here starts. Debts that are paid are kept, should the clock step back,
    /// but not carried on.
    fn start(&self, debts: &impl Debts<T>, now: Timestamp) -> Option<&T> {
        (debts.idle_at(&self.lost) > now).then_some(&self.lost)
    }

    /// Makes room for one key.
    fn drop_one(&mut self, debts: &impl Debts<T>, now: Timestamp) {
        let mut soonest: Option<(Timestamp, u64)> = None;
        for _ in 0..CANDIDATES {
            let Some((fingerprint, idle_at)) = self.next_key(debts) else { continue };
            if soonest.is_none_or(|(at, _)| idle_at < at) {
                soonest = Some((idle_at, fingerprint));
            }
            if idle_at <= now {
                break;
            }
        }
        let Some((_, victim)) = soonest else { return };
        if let Ok(entry) = self.keys.find_entry(victim, |(key, _)| *key == victim) {
            let ((_, state), _) = entry.remove();
            debts.join(&mut self.lost, &state, now);
        }
    }

    /// The next key in the table's own order, going round.
    fn next_key(&mut self, debts: &impl Debts<T>) -> Option<(u64, Timestamp)> {
        let buckets = self.keys.num_buckets();
        for _ in 0..buckets {
            self.hand = (self.hand + 1) % buckets;
            if let Some((fingerprint, state)) = self.keys.get_bucket(self.hand) {
                return Some((*fingerprint, debts.idle_at(state)));
            }
        }
        None
    }
}
