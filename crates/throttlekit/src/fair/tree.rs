//! One budget under nested weights: region → org → team → user.

use hashbrown::HashTable;
use throttlekit_core::fair::{DEPTH_MAX, Group, Leaf, MEMBERS_MAX, Tree, Weight};
use throttlekit_core::rate::{Budget, LimitError};
use throttlekit_core::{Decision, Timestamp};

use super::FairStats;
use crate::Call;
use crate::hash::{KeyHash, SecretHash};

/// Function that returns the weight of a path's last name among its siblings; `None` for a group whose weight is the
/// sum of its active members.
pub(super) type PathWeightOf = Box<dyn Fn(&[&[u8]]) -> Option<Weight> + Send + Sync>;

/// A name that joins: its fingerprint and its weight.
type Joins<'a> = (&'a SecretHash, &'a PathWeightOf);

/// The names from the root to a leaf. Of a longer path only as many as show that it is too long.
pub(super) struct Path<'a> {
    names: [&'a [u8]; DEPTH_MAX + 1],
    depth: usize,
}

impl<'a> Path<'a> {
    pub(super) fn of(call: &Call<'a>) -> Self {
        Self::collect((0..call.key_count()).map(|index| call.key_at(index)))
    }

    pub(super) fn from(names: &'a [Box<[u8]>]) -> Self {
        Self::collect(names.iter().map(|name| &**name))
    }

    fn collect(all: impl Iterator<Item = &'a [u8]>) -> Self {
        let (mut names, mut depth) = ([&[][..]; DEPTH_MAX + 1], 0);
        for (place, name) in names.iter_mut().zip(all) {
            *place = name;
            depth += 1;
        }
        Self { names, depth }
    }

    pub(super) fn owned(&self) -> Box<[Box<[u8]>]> {
        self.names().iter().map(|&name| name.into()).collect()
    }

    fn names(&self) -> &[&'a [u8]] {
        &self.names[..self.depth]
    }
}

/// A tree and its entries. A name is identified by its group and its fingerprint.
pub(super) struct Places {
    tree: Tree,
    groups: HashTable<(Name, Group)>,
    leaves: HashTable<(Name, Leaf)>,
    names_max: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Name {
    parent: Group,
    fingerprint: u64,
}

/// Fingerprint of the entry that new names share. A name with this fingerprint shares that entry.
const NEWCOMERS: u64 = 0;

impl Name {
    fn hash(self) -> u64 {
        self.fingerprint ^ (self.parent.index() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

impl Places {
    pub(super) fn new(budget: Budget, names_max: usize) -> Result<Self, LimitError> {
        let tree = Tree::new(budget.units(), budget.cadence())?;
        // Next to each name there may be the entry that new names of its group share.
        let names_max = names_max.clamp(1, MEMBERS_MAX / 2);
        Ok(Self { tree, groups: HashTable::new(), leaves: HashTable::new(), names_max })
    }

    /// Decides a request of the leaf at the end of the path, and charges it at every level if allowed.
    pub(super) fn check(&mut self, path: &Path<'_>, cost: u64, now: Timestamp, joins: Joins<'_>) -> Decision {
        self.advance(now);
        let leaf = self.join(path, joins);
        self.tree.check(leaf, cost).decision
    }

    /// Returns units to the window that ends at `reset_at`, if it is the one at `now` and the leaf has an entry.
    pub(super) fn refund(
        &mut self,
        path: &Path<'_>,
        units: u64,
        (reset_at, now): (Timestamp, Timestamp),
        hash: &SecretHash,
    ) {
        self.advance(now);
        if self.tree.ends_at() != reset_at {
            return;
        }
        if let Some((_, leaf)) = self.find(path, hash) {
            self.tree.refund(leaf, units);
        }
    }

    /// Charges units that a leaf used without a request. An inactive leaf becomes active by it.
    pub(super) fn owe(&mut self, path: &Path<'_>, units: u64, now: Timestamp, joins: Joins<'_>) {
        self.advance(now);
        let leaf = self.join(path, joins);
        self.tree.owe(leaf, units);
    }

    /// Removes a leaf from the window, with its use. The entry that new names share stays.
    pub(super) fn remove(&mut self, path: &Path<'_>, hash: &SecretHash, now: Timestamp) {
        self.advance(now);
        let Some((name, leaf)) = self.find(path, hash) else { return };
        if let Ok(entry) = self.leaves.find_entry(name.hash(), |(known, _)| *known == name) {
            entry.remove();
            self.tree.leave(leaf);
        }
    }

    pub(super) fn stats(&mut self, now: Timestamp) -> FairStats {
        self.advance(now);
        let tenants = self.groups.len() + self.leaves.len();
        FairStats { limit: self.tree.limit(), used: self.tree.used(), tenants, displaced: 0 }
    }

    /// Returns the tree, advanced to `now`.
    pub(super) fn tree(&mut self, now: Timestamp) -> &mut Tree {
        self.advance(now);
        &mut self.tree
    }

    fn advance(&mut self, now: Timestamp) {
        if self.tree.advance(now) {
            self.groups.clear();
            self.leaves.clear();
        }
    }

    /// Returns the leaf at the end of a path, if it has an entry of its own.
    fn find(&self, path: &Path<'_>, hash: &SecretHash) -> Option<(Name, Leaf)> {
        let (last, groups) = path.names().split_last()?;
        let mut parent = Group::ROOT;
        for name in groups {
            let name = Name { parent, fingerprint: hash.fingerprint(name) };
            parent = self.groups.find(name.hash(), |(known, _)| *known == name)?.1;
        }
        let name = Name { parent, fingerprint: hash.fingerprint(last) };
        self.leaves.find(name.hash(), |(known, _)| *known == name).copied()
    }

    /// Returns the leaf at the end of a path, which joins if needed.
    fn join(&mut self, path: &Path<'_>, (hash, weight_of): Joins<'_>) -> Leaf {
        let (names, mut parent) = (path.names(), Group::ROOT);
        let groups = names.len().saturating_sub(1);
        for depth in 0..groups {
            let name = Name { parent, fingerprint: hash.fingerprint(names[depth]) };
            match self.group(name, || weight_of(&names[..=depth])) {
                Some(group) => parent = group,
                None => return self.leaf(Name { parent, fingerprint: NEWCOMERS }, Weight::default),
            }
        }
        let fingerprint = names.last().map_or(NEWCOMERS, |name| hash.fingerprint(name));
        self.leaf(Name { parent, fingerprint }, || weight_of(names).unwrap_or_default())
    }

    /// Returns the group of this name; `None` if there is no capacity for another.
    fn group(&mut self, name: Name, weight: impl FnOnce() -> Option<Weight>) -> Option<Group> {
        if let Some((_, group)) = self.groups.find(name.hash(), |(known, _)| *known == name) {
            return Some(*group);
        }
        if self.is_full() {
            return None;
        }
        let group = self.tree.join_group(name.parent, weight())?;
        self.groups.insert_unique(name.hash(), (name, group), |(known, _)| known.hash());
        Some(group)
    }

    fn leaf(&mut self, name: Name, weight: impl FnOnce() -> Weight) -> Leaf {
        if let Some((_, leaf)) = self.leaves.find(name.hash(), |(known, _)| *known == name) {
            return *leaf;
        }
        if self.is_full() && name.fingerprint != NEWCOMERS {
            return self.leaf(Name { fingerprint: NEWCOMERS, ..name }, Weight::default);
        }
        let leaf = self.tree.join(name.parent, weight());
        self.leaves.insert_unique(name.hash(), (name, leaf), |(known, _)| known.hash());
        leaf
    }

    fn is_full(&self) -> bool {
        self.groups.len() + self.leaves.len() >= self.names_max
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::BuildError;
    use crate::clock::ManualClock;
    use crate::fair::FairLimiter;

    fn tree(limit: u64, names_max: usize) -> FairLimiter<ManualClock> {
        let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000));
        tree_by(clock, limit, names_max)
    }

    fn tree_by(clock: ManualClock, limit: u64, names_max: usize) -> FairLimiter<ManualClock> {
        let builder = FairLimiter::builder(Budget::per_minute(limit)).tree(|_| None);
        builder.tenants_max(names_max).clock(clock).build().unwrap()
    }

    #[test]
    fn a_flood_of_names_shares_one_entry_and_never_exceeds_the_limit() {
        let tree = tree(1_000, 10);
        for nth in 0..5 {
            assert!(tree.check(Call::by("known").and(&[nth.to_string().as_str()])).allowed);
        }
        let allowed = |nth: &u32| tree.check(Call::by("flood").and(&[nth.to_string().as_str()])).allowed;
        let passed = (0..100_000).filter(allowed);
        // Three of the flood have an entry of their own and send one request. The others are one, the ninth of nine.
        assert_eq!(passed.count(), 3 + 1_000 / 9);
        let known = Call::by("known").and(&["0"]);
        assert!(tree.check(known.cost(110)).allowed, "reserved units are still there");
        assert!(tree.stats().used <= 1_000);
    }

    #[test]
    fn a_name_may_be_a_group_and_a_leaf() {
        let tree = tree(100, 10);
        assert!(tree.check("acme").allowed);
        assert!(tree.check(Call::by("acme").and(&["ann"]).cost(49)).allowed);
        assert_eq!(tree.check(("acme", 0)).remaining, 49);
    }

    #[test]
    fn a_new_window_begins_without_members() {
        let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000));
        let tree = tree_by(clock.clone(), 100, 10);
        let deep = Call::by("a").and(&["b", "c"]);
        assert!(tree.check(deep.cost(100)).allowed);
        assert!(!tree.check(deep).allowed);
        clock.advance(Duration::from_secs(60));
        assert!(tree.check(("x", 100)).allowed);
    }

    #[test]
    fn paths_that_are_too_deep_share_one_entry() {
        let tree = tree(100, 100);
        let path: Vec<String> = (0..40).map(|n| n.to_string()).collect();
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let deep = |depth: usize| Call::by(path[0]).and(&path[1..depth]).cost(60);
        assert!(tree.check(deep(40)).allowed);
        assert!(!tree.check(deep(39)).allowed);
    }

    #[test]
    fn a_settled_leaf_is_as_if_it_had_requested_the_actual_cost() {
        let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000));
        let tree = tree_by(clock.clone(), 100, 10);
        let [ann, bob] = [&["ann"], &["bob"]].map(|name| Call::by("acme").and(name));
        let (_, receipt) = tree.charge(ann.cost(60));
        assert!(!tree.check(bob.cost(50)).allowed);
        tree.settle(receipt.unwrap(), 10);
        assert_eq!(tree.stats().used, 10);
        assert!(tree.check(bob.cost(50)).allowed && tree.check(ann.cost(40)).allowed);

        let (_, unasked) = tree.charge(Call::by("zoo").cost(0));
        tree.settle(unasked.unwrap(), 70);
        assert_eq!(tree.stats().used, 170);
        assert!([ann, bob, Call::by("zoo")].iter().all(|leaf| !tree.peek(*leaf).allowed));

        let (_, late) = tree.charge(bob.cost(0));
        clock.advance(Duration::from_secs(60));
        tree.settle(late.unwrap(), 30);
        assert_eq!(tree.stats().used, 30, "it is owed in the window in which it is known");
    }

    #[test]
    fn a_reset_returns_the_use_of_a_leaf_at_every_level() {
        let tree = tree(100, 10);
        let ann = Call::by("acme").and(&["ann"]);
        assert!(tree.check(ann.cost(60)).allowed && tree.check(("zoo", 40)).allowed);
        tree.reset(Call::by("acme").and(&["nobody"]));
        tree.reset(ann);
        assert_eq!((tree.stats().used, tree.stats().tenants), (40, 2));
        assert!(tree.check(ann.cost(50)).allowed);
        tree.set_limit(200);
        assert_eq!((tree.stats().limit, tree.peek("zoo").remaining), (200, 60));
    }

    #[test]
    fn a_tree_has_no_other_rule() {
        let builder = FairLimiter::builder(Budget::per_minute(1)).tree(|_| None).without_borrowing();
        assert!(matches!(builder.build(), Err(BuildError::OutOfRange { setting: "rule", .. })));
    }
}
