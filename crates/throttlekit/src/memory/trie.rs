//! A map that grows without a pause: small hash tables, each with sixteen below it once it is full.
//!
//! A table that grows moves its keys, so none has more than [`BUCKETS_MAX`]. A key that finds its table full goes on to
//! the child table that its fingerprint selects. Before a table grows, and again for every few keys that do not fit, it
//! is swept: keys that owe nothing are dropped.

use hashbrown::HashTable;

use super::budget::Account;

/// Maximum number of buckets of a table, which then holds 896 keys.
const BUCKETS_MAX: usize = 1_024;
const BRANCHES: usize = 16;
/// Bits of a fingerprint that select branches. Tables use the lowest and the highest, shards those above.
const BRANCH_BITS: std::ops::Range<u32> = 12..32;
/// Number of keys that come to a full table per sweep: eight of its keys for each of them.
const NEWCOMERS_PER_SWEEP: u32 = 128;
/// Number of keys inspected for each new one; if one of them owes nothing, the table is swept at once.
const CANDIDATES: usize = 8;

pub(super) struct Node<T> {
    keys: HashTable<(u64, T)>,
    below: Option<Box<[Self; BRANCHES]>>,
    /// Number of keys that found the table full since the last sweep.
    since_sweep: u32,
    /// Bucket that was inspected last.
    hand: usize,
}

impl<T> Default for Node<T> {
    fn default() -> Self {
        Self { keys: HashTable::new(), below: None, since_sweep: 0, hand: 0 }
    }
}

/// Error for a key that does not fit, with its state.
pub(super) struct NoRoom<T>(pub(super) T);

impl<T> Node<T> {
    pub(super) fn find(&self, key: u64) -> Option<&T> {
        let mut branches = branches(key);
        let mut node = self;
        loop {
            if let Some((_, state)) = node.keys.find(key, |(other, _)| *other == key) {
                return Some(state);
            }
            node = &node.below.as_ref()?[branches.next()?];
        }
    }

    pub(super) fn find_mut(&mut self, key: u64) -> Option<&mut T> {
        let mut branches = branches(key);
        let mut node = self;
        // Found first and fetched then: a borrow that is returned cannot be given up.
        while node.keys.find(key, |(other, _)| *other == key).is_none() {
            node = &mut node.below.as_mut()?[branches.next()?];
        }
        node.keys.find_mut(key, |(other, _)| *other == key).map(|(_, state)| state)
    }

    pub(super) fn remove(&mut self, key: u64) -> Option<T> {
        let mut branches = branches(key);
        let mut node = self;
        loop {
            if let Ok(entry) = node.keys.find_entry(key, |(other, _)| *other == key) {
                return Some(entry.remove().0.1);
            }
            node = &mut node.below.as_mut()?[branches.next()?];
        }
    }

    /// Adds a key that is not there. Keys that are `idle` are dropped first, and go to `dropped`.
    pub(super) fn insert(
        &mut self,
        (key, state): (u64, T),
        account: &Account,
        idle: impl Fn(&T) -> bool,
        mut dropped: impl FnMut(u64, T),
    ) -> Result<(), NoRoom<T>> {
        let mut branches = branches(key);
        let mut node = self;
        loop {
            node.sweep_if_due(&idle, &mut dropped, account);
            if node.has_room() || node.grow(account) {
                node.keys.insert_unique(key, (key, state), |(key, _)| *key);
                return Ok(());
            }
            let Some(branch) = branches.next().filter(|_| node.keys.num_buckets() >= BUCKETS_MAX) else {
                return Err(NoRoom(state));
            };
            if node.below.is_none() && !account.take(size_of::<[Self; BRANCHES]>()) {
                return Err(NoRoom(state));
            }
            let fresh = || Box::new(std::array::from_fn(|_| Self::default()));
            node = &mut node.below.get_or_insert_with(fresh)[branch];
        }
    }

    fn has_room(&self) -> bool {
        self.keys.len() < self.keys.capacity()
    }

    /// Drops all keys that owe nothing, if the table is full and a sweep is due.
    fn sweep_if_due(
        &mut self,
        idle: impl Fn(&T) -> bool,
        mut dropped: impl FnMut(u64, T),
        account: &Account,
    ) {
        if self.has_room() || self.keys.is_empty() {
            return;
        }
        let due = self.since_sweep == 0 || self.sees_one(&idle);
        self.since_sweep = (self.since_sweep + 1) % NEWCOMERS_PER_SWEEP;
        if due && self.keys.iter().any(|(_, state)| idle(state)) {
            self.keys.extract_if(|(_, state)| idle(state)).for_each(|(key, state)| dropped(key, state));
            // Removed keys leave tombstones, for which a table would grow that has free buckets.
            let keys = std::mem::take(&mut self.keys);
            let before = keys.allocation_size();
            self.keys = HashTable::with_capacity(keys.num_buckets() / 8 * 7);
            keys.into_iter().for_each(|entry| _ = self.keys.insert_unique(entry.0, entry, |(key, _)| *key));
            account.give_back(before.saturating_sub(self.keys.allocation_size()));
        }
    }

    /// Returns whether one of the next few keys matches.
    fn sees_one(&mut self, is: impl Fn(&T) -> bool) -> bool {
        let buckets = self.keys.num_buckets();
        (0..CANDIDATES.min(buckets)).any(|_| {
            self.hand = (self.hand + 1) % buckets;
            self.keys.get_bucket(self.hand).is_some_and(|(_, state)| is(state))
        })
    }

    /// Doubles the table, if the budget and the maximum size allow.
    fn grow(&mut self, account: &Account) -> bool {
        let before = self.keys.allocation_size();
        // The first has eight buckets.
        let more = before.max(8 * (size_of::<(u64, T)>() + 1) + 16);
        if self.keys.num_buckets() >= BUCKETS_MAX || !account.take(more) {
            return false;
        }
        self.keys.reserve(self.keys.len().max(4), |(key, _)| *key);
        let grown = self.keys.allocation_size().saturating_sub(before);
        account.add(grown.saturating_sub(more));
        account.give_back(more.saturating_sub(grown));
        self.since_sweep = 0;
        true
    }

    /// Visits all states.
    pub(super) fn for_each(&self, see: &mut impl FnMut(&T)) {
        self.keys.iter().for_each(|(_, state)| see(state));
        self.below.iter().flat_map(|below| below.iter()).for_each(|node| node.for_each(see));
    }

    /// Returns whether all states match. Stops at the first that does not.
    #[cfg(feature = "store")]
    pub(super) fn all(&self, is: &impl Fn(&T) -> bool) -> bool {
        self.keys.iter().all(|(_, state)| is(state))
            && self.below.iter().flat_map(|below| below.iter()).all(|node| node.all(is))
    }
}

fn branches(key: u64) -> impl Iterator<Item = usize> {
    let bits = BRANCHES.ilog2();
    BRANCH_BITS.step_by(bits as usize).map(move |bit| (key >> bit) as usize % BRANCHES)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::super::budget::Budget;
    use super::super::word_sketch::mixed;
    use super::*;

    fn account(bytes: usize) -> Account {
        Account::new(Arc::new(Budget::new(bytes)))
    }

    #[test]
    fn keys_are_found_changed_and_removed_at_every_depth() {
        let (mut node, account) = (Node::default(), account(1 << 30));
        for key in 0..50_000 {
            assert!(node.insert((mixed(key), key), &account, |_| false, |_, _| {}).is_ok());
        }
        assert!((0..50_000).all(|key| node.find(mixed(key)) == Some(&key)));
        assert!((50_000..60_000).all(|key| node.find(mixed(key)).is_none()));
        (0..50_000).for_each(|key| *node.find_mut(mixed(key)).unwrap() += 1);
        assert!((0..50_000).all(|key| node.remove(mixed(key)) == Some(key + 1)));
        assert!(node.all(&|_| false), "nothing is left");
    }

    #[test]
    fn nothing_is_added_beyond_the_budget_unless_a_key_that_owes_nothing_makes_room() {
        let (mut node, account) = (Node::default(), account(200_000));
        let added = (0..100_000_u64)
            .take_while(|key| node.insert((mixed(*key), *key), &account, |_| false, |_, _| {}).is_ok())
            .count() as u64;
        assert!((2_000..12_000).contains(&added), "{added} keys");
        assert!(account.budget().taken() <= 150_000);
        let mut dropped = Vec::new();
        for key in 0..1_000 {
            let entry = (mixed(1 << 32 | key), 1 << 32 | key);
            let inserted =
                node.insert(entry, &account, |state| *state < added, |_, state| dropped.push(state));
            assert!(inserted.is_ok(), "after {key} more");
        }
        assert!(dropped.len() >= 900 && account.budget().taken() <= 150_000, "{} dropped", dropped.len());
    }
}
