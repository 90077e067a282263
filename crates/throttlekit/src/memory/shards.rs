//! Keys whose state is more than a word, under small locks and within a budget of bytes.
//!
//! States are kept as long as there is memory for them. A key that finds none is counted in its shard's sketch, where
//! its estimate is never below what it owes, and stays there until that is over: what is kept of a key is exact. A
//! state that outgrows the budget goes to the sketch as well.

use std::borrow::Cow;
use std::sync::Arc;

use throttlekit_core::Timestamp;
use throttlekit_core::rate::State;
use throttlekit_core::rate::estimate::Estimates;

use super::budget::{Account, Budget};
use super::key_memory::{Collisions, KeyMemory};
use super::sketch::{Sketch, SketchSize};
use super::trie::{NoRoom, Node};
use crate::sync::{Mutex, MutexGuard};

/// Bytes that the allocator needs beside a state's own.
const ALLOCATION_BYTES: usize = 16;
/// Bytes of the budget per shard, up to [`SHARDS_MAX`].
const BYTES_PER_SHARD: usize = 256 << 10;
const SHARDS_MAX: usize = 64;

pub(crate) struct Shards<T> {
    shards: Box<[Mutex<Shard<T>>]>,
    account: Account,
    sketch: SketchSize,
}

/// Interpretation of a kept state by the current rule.
pub(crate) trait Owing<T> {
    /// Returns the time from which on it owes nothing.
    fn idle_at(&self, kept: &T) -> Timestamp;

    /// Returns the bytes that it takes outside of itself.
    fn heap_bytes(&self, kept: &T) -> usize;

    fn estimates(&self) -> Estimates;

    /// Returns the kept state, as it is estimated.
    fn state<'a>(&self, kept: &'a T, now: Timestamp) -> Cow<'a, State>;

    /// Returns an estimate, as it would be kept.
    fn kept(&self, state: State, now: Timestamp) -> T;
}

struct Shard<T> {
    keys: Node<T>,
    sketch: Sketch,
}

impl<T> Default for Shard<T> {
    fn default() -> Self {
        Self { keys: Node::default(), sketch: Sketch::default() }
    }
}

/// One key while its shard is locked. Nothing is written unless `change` is called.
pub(crate) struct LockedKey<'a, T> {
    shard: MutexGuard<'a, Shard<T>>,
    shards: &'a Shards<T>,
    key: u64,
}

impl<T> Shards<T> {
    /// Creates keys that share a budget with others. At most `shards_max` shards.
    pub(crate) fn new(budget: Arc<Budget>, shards_max: usize) -> Self {
        let shards =
            (budget.most() / BYTES_PER_SHARD).clamp(1, shards_max.min(SHARDS_MAX)).next_power_of_two();
        let account = Account::new(budget);
        account.add(shards * size_of::<Mutex<Shard<T>>>());
        let sketch = SketchSize::of(account.estimates_max(), shards);
        Self { shards: (0..shards).map(|_| Mutex::default()).collect(), account, sketch }
    }

    /// Creates keys with a budget of their own.
    pub(crate) fn alone(bytes: usize) -> Self {
        Self::new(Arc::new(Budget::new(bytes)), SHARDS_MAX)
    }

    pub(crate) fn lock(&self, key: u64) -> LockedKey<'_, T> {
        // The tables inside a shard use other bits.
        let index = (key >> 32) as usize & (self.shards.len() - 1);
        LockedKey { shard: self.shards[index].lock(), shards: self, key }
    }

    pub(crate) fn remove(&self, key: u64, owing: &impl Owing<T>) {
        if let Some(kept) = self.lock(key).shard.keys.remove(key) {
            self.account.give_back(bytes(owing, &kept));
        }
    }

    /// Returns the number of keys that are kept and owe something at `now`. Scans every key.
    pub(crate) fn live(&self, owing: &impl Owing<T>, now: Timestamp) -> usize {
        let mut live = 0;
        self.shards.iter().for_each(|shard| {
            shard.lock().keys.for_each(&mut |kept| live += usize::from(owing.idle_at(kept) > now));
        });
        live
    }

    /// Returns whether no key owes anything at `now`, nor any that is estimated. Stops at the first that does.
    #[cfg(feature = "store")]
    pub(crate) fn is_idle(&self, owing: &impl Owing<T>, now: Timestamp) -> bool {
        let estimates = owing.estimates();
        self.shards.iter().map(Mutex::lock).all(|shard| {
            shard.keys.all(&|kept| owing.idle_at(kept) <= now) && !shard.sketch.is_alive(&estimates, now)
        })
    }

    /// Returns how full it is at `now`. Scans every key.
    pub(crate) fn memory(&self, owing: &impl Owing<T>, now: Timestamp) -> KeyMemory {
        let (estimates, mut collisions, mut estimated) = (owing.estimates(), Collisions::default(), 0);
        for shard in self.shards.iter().map(Mutex::lock) {
            shard.sketch.add_to(&mut collisions, &estimates, now);
            estimated += shard.sketch.estimated;
        }
        let (live_keys, budget) = (self.live(owing, now), self.account.budget());
        KeyMemory {
            budget_bytes: budget.most(),
            used_bytes: budget.taken(),
            live_keys,
            keys_max: live_keys.max(1) * budget.most() / budget.taken().max(1),
            estimated,
            strangers_short_ppm: collisions.ppm(),
        }
    }
}

/// Returns the bytes that a state takes beside its table entry.
fn bytes<T>(owing: &impl Owing<T>, kept: &T) -> usize {
    match owing.heap_bytes(kept) {
        0 => 0,
        bytes => bytes + ALLOCATION_BYTES,
    }
}

impl<T: Clone + Default> LockedKey<'_, T> {
    /// Returns the kept state, or the estimate of a key that is not kept. `None` is a key that owes nothing.
    #[inline]
    pub(crate) fn state(&self, owing: &impl Owing<T>, now: Timestamp) -> Option<Cow<'_, T>> {
        match self.shard.keys.find(self.key) {
            Some(kept) => Some(Cow::Borrowed(kept)),
            None => self.estimate(owing, now).map(|state| Cow::Owned(owing.kept(state, now))),
        }
    }

    /// Returns an upper bound of what a key that is not kept may owe at `now`.
    fn estimate(&self, owing: &impl Owing<T>, now: Timestamp) -> Option<State> {
        self.shard.sketch.state(&owing.estimates(), self.key, now)
    }

    /// Returns whether the key's state is an estimate. It is not for a key that was neither kept nor counted before.
    pub(crate) fn is_estimated(&self, owing: &impl Owing<T>, now: Timestamp) -> bool {
        self.shard.keys.find(self.key).is_none() && self.estimate(owing, now).is_some()
    }

    /// Returns the kept state of a key.
    #[inline]
    pub(crate) fn known(&mut self) -> Option<&mut T> {
        self.shard.keys.find_mut(self.key)
    }

    /// Changes the kept state, or the estimate if there is no memory for one.
    pub(crate) fn change(&mut self, owing: &impl Owing<T>, now: Timestamp, by: impl FnOnce(&mut T)) {
        if let Some(kept) = self.known() {
            let before = bytes(owing, kept);
            by(kept);
            let after = bytes(owing, kept);
            return self.resized(owing, now, before, after);
        }
        if let Some(estimate) = self.estimate(owing, now) {
            let mut kept = owing.kept(estimate, now);
            by(&mut kept);
            return self.count(owing, now, self.key, &kept);
        }
        let mut kept = T::default();
        by(&mut kept);
        self.add(owing, now, kept);
    }

    fn add(&mut self, owing: &impl Owing<T>, now: Timestamp, kept: T) {
        let (account, bytes_taken) = (&self.shards.account, bytes(owing, &kept));
        let mut dropped = Vec::new();
        let idle = |kept: &T| owing.idle_at(kept) <= now;
        let added =
            self.shard.keys.insert((self.key, kept), account, idle, |key, kept| dropped.push((key, kept)));
        for (key, kept) in &dropped {
            account.give_back(bytes(owing, kept));
            self.remember(owing, now, *key, kept);
        }
        match added {
            Ok(()) => self.resized(owing, now, 0, bytes_taken),
            Err(NoRoom(kept)) => self.count(owing, now, self.key, &kept),
        }
    }

    /// Moves a state that grew beyond the budget to the estimates.
    fn resized(&mut self, owing: &impl Owing<T>, now: Timestamp, before: usize, after: usize) {
        let account = &self.shards.account;
        if after <= before {
            return account.give_back(before - after);
        }
        if !account.add(after - before)
            && let Some(kept) = self.shard.keys.remove(self.key)
        {
            account.give_back(after);
            self.count(owing, now, self.key, &kept);
        }
    }

    fn count(&mut self, owing: &impl Owing<T>, now: Timestamp, key: u64, kept: &T) {
        self.shard.sketch.estimated += 1;
        self.remember(owing, now, key, kept);
    }

    fn remember(&mut self, owing: &impl Owing<T>, now: Timestamp, key: u64, kept: &T) {
        let state = owing.state(kept, now);
        if *state != State::Fresh {
            let (size, account) = (self.shards.sketch, &self.shards.account);
            self.shard.sketch.raise((&owing.estimates(), key, now), &state, (size, account));
        }
    }
}
