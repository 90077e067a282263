//! States of any size, in a sharded map under small locks.
//!
//! For the rules whose state is more than a word. Each shard holds its part of the cap. A full shard first
//! recycles a key that has nothing left to answer for; failing that it drops the key that will be done soonest,
//! and joins that key's debt into the state from which every unknown key of the shard starts. So no key that
//! was being limited comes back to a fresh budget.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use throttlekit_core::rate::{Limit, Mark, Rule, Settle, State};
use throttlekit_core::{Cost, Decision, Timestamp};

/// How many keys a full shard looks at to find the one to drop.
const CANDIDATES: usize = 64;
const KEYS_PER_SHARD: usize = 1_024;
/// Beyond a billion keys shards grow, and a check may meet one that does.
const SHARDS_MAX: usize = 1 << 20;
/// What a key starts from where nobody owes anything.
static FRESH: State = State::Fresh;

pub(crate) struct WideMap {
    limit: Limit,
    shards: Box<[Mutex<Shard>]>,
    keys_max_per_shard: usize,
}

#[derive(Default)]
struct Shard {
    keys: HashTable<(u64, State)>,
    /// The join of the states of all keys this shard had to drop.
    lost: State,
    /// Where the search for a key to drop goes on.
    hand: usize,
}

/// One key's state while its shard is locked. Nothing is written unless `charge` is called.
pub(crate) struct Locked<'a> {
    map: &'a WideMap,
    shard: MutexGuard<'a, Shard>,
    fingerprint: u64,
}

impl WideMap {
    pub(crate) fn new(limit: Limit, keys_max: usize) -> Self {
        let shards = (keys_max / KEYS_PER_SHARD).clamp(1, SHARDS_MAX).next_power_of_two();
        Self {
            limit,
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            keys_max_per_shard: with_slack(keys_max.div_ceil(shards)),
        }
    }

    pub(crate) fn lock(&self, fingerprint: u64) -> Locked<'_> {
        // The map inside a shard takes its place and its tag from both ends of the fingerprint.
        let index = (fingerprint >> 32) as usize & (self.shards.len() - 1);
        // A panic cannot leave a shard half written: rules are pure and the map is changed after they return.
        let shard = self.shards[index].lock().unwrap_or_else(PoisonError::into_inner);
        Locked { map: self, shard, fingerprint }
    }

    pub(crate) fn remove(&self, fingerprint: u64) {
        let mut locked = self.lock(fingerprint);
        if let Ok(entry) = locked.shard.keys.find_entry(fingerprint, |(key, _)| *key == fingerprint) {
            entry.remove();
        }
    }

    /// How many keys owe something at `now`. Looks at every key.
    pub(crate) fn live(&self, now: Timestamp) -> usize {
        let owing = |shard: &Mutex<Shard>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.keys.iter().filter(|(_, state)| self.limit.idle_at(state) > now).count()
        };
        self.shards.iter().map(owing).sum()
    }
}

/// Room for a shard's part of the keys and for chance: six standard deviations of how many come its way.
fn with_slack(keys: usize) -> usize {
    keys + 6 * keys.isqrt() + 8
}

impl Locked<'_> {
    pub(crate) fn state(&self, now: Timestamp) -> &State {
        let known = self.shard.keys.find(self.fingerprint, |(key, _)| *key == self.fingerprint);
        known.map_or_else(|| self.shard.start(&self.map.limit, now), |(_, state)| state)
    }

    pub(crate) fn check(&mut self, cost: Cost, now: Timestamp) -> Decision {
        let decision = self.map.limit.decide(self.state(now), cost, now);
        if decision.allowed && cost > 0 {
            self.charge(cost, now);
        }
        decision
    }

    pub(crate) fn charge(&mut self, cost: Cost, now: Timestamp) {
        self.change(now, |limit, state| limit.charge(state, cost, now));
    }

    /// Hands back units of a charge that left `mark`; none to a key that is not known.
    pub(crate) fn refund(&mut self, mark: Mark, units: Cost, now: Timestamp) {
        let limit = self.map.limit;
        let known = self.shard.keys.find_mut(self.fingerprint, |(key, _)| *key == self.fingerprint);
        if let Some((_, state)) = known {
            limit.refund(state, mark, units, now);
        }
    }

    /// Changes the key's state, making room for it where it has none.
    pub(crate) fn change(&mut self, now: Timestamp, by: impl FnOnce(&Limit, &mut State)) {
        let limit = self.map.limit;
        if let Some((_, state)) =
            self.shard.keys.find_mut(self.fingerprint, |(key, _)| *key == self.fingerprint)
        {
            return by(&limit, state);
        }
        let mut state = self.shard.start(&limit, now).clone();
        by(&limit, &mut state);
        if self.shard.keys.len() >= self.map.keys_max_per_shard {
            self.shard.drop_one(&limit, now);
        }
        if let Entry::Vacant(vacant) =
            self.shard.keys.entry(self.fingerprint, |(key, _)| *key == self.fingerprint, |(key, _)| *key)
        {
            vacant.insert((self.fingerprint, state));
        }
    }
}

impl Shard {
    /// The state from which a key unknown here starts. Debts that are paid are kept, should the clock step back,
    /// but not carried on.
    fn start(&self, limit: &Limit, now: Timestamp) -> &State {
        if limit.idle_at(&self.lost) <= now { &FRESH } else { &self.lost }
    }

    /// Makes room for one key.
    fn drop_one(&mut self, limit: &Limit, now: Timestamp) {
        let mut soonest: Option<(Timestamp, u64)> = None;
        for _ in 0..CANDIDATES {
            let Some((fingerprint, idle_at)) = self.next_key(limit) else { continue };
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
            limit.join(&mut self.lost, &state);
        }
    }

    /// The next key in the table's own order, going round.
    fn next_key(&mut self, limit: &Limit) -> Option<(u64, Timestamp)> {
        let buckets = self.keys.num_buckets();
        for _ in 0..buckets {
            self.hand = (self.hand + 1) % buckets;
            if let Some((fingerprint, state)) = self.keys.get_bucket(self.hand) {
                return Some((*fingerprint, limit.idle_at(state)));
            }
        }
        None
    }
}
