//! One budget under nested weights: region → org → team → user.

use hashbrown::HashTable;
use throttlekit_core::fair::{Group, Leaf, MEMBERS_MAX, Tree, TreeDecision, Weight};
use throttlekit_core::{Cost, Timestamp};

use crate::fair::KEYS_MAX_DEFAULT;
use crate::sync::Mutex;
use crate::{Clock, KeyHash, SecretHash, SystemClock, WallClock};

/// Function that returns the weight of a path's last name among its siblings; `None` for a group whose weight is the
/// sum of its active members.
type WeightOf = Box<dyn Fn(&[&str]) -> Option<Weight> + Send + Sync>;

/// One budget per window, shared by the names of a tree, in this process.
///
/// Names join with their first request in a window, and weights are read then: a new one applies from the next window
/// on. A check takes a short lock; its cost depends on the depth of its path, not on the number of names.
///
/// ```
/// use std::time::Duration;
/// use throttlekit::fair::{Tree, Weight};
/// use throttlekit::{Cadence, FairTree};
///
/// // Orgs weigh by contract. Below them everyone is equal, and teams weigh what their active users do.
/// let tokens = FairTree::new(Tree::new(1_000, Cadence::every(Duration::from_secs(60)))?).weights(|path| match *path {
///     ["acme"] => Weight::new(3).ok(),
///     [_org] => Some(Weight::ONE),
///     _ => None,
/// });
///
/// assert!(tokens.check(&["acme", "search", "ann"], 1).decision.allowed);
/// assert!(tokens.check(&["zoo", "keepers", "bob"], 1).decision.allowed);
/// let answer = tokens.check(&["zoo", "keepers", "bob"], 250);
/// assert!(!answer.decision.allowed, "a quarter is the zoo's, and one of it is used");
/// assert_eq!(answer.bound_at, Some(0), "orgs are where it was held up");
/// assert!(tokens.check(&["zoo", "keepers", "bob"], 249).decision.allowed);
/// # Ok::<(), throttlekit::LimitError>(())
/// ```
pub struct FairTree<C = SystemClock, H = SecretHash> {
    places: Mutex<Places>,
    weight_of: WeightOf,
    clock: C,
    hash: H,
}

impl FairTree {
    /// Creates a tree whose groups have the summed weight of their active members, and whose leaves have equal weights.
    pub fn new(tree: Tree) -> Self {
        Self {
            places: Mutex::new(Places::new(tree)),
            weight_of: Box::new(|_| None),
            clock: SystemClock::Wall(WallClock),
            hash: SecretHash::random(),
        }
    }
}

impl<C: Clock, H: KeyHash> FairTree<C, H> {
    /// Sets the weight of a path's last name among its siblings. With `None`, a group has the summed weight of its
    /// active members, and a leaf a weight of one.
    ///
    /// Called under the lock of the tree when a name joins: it must be quick, and must not call this tree, which would
    /// deadlock.
    pub fn weights(self, weight_of: impl Fn(&[&str]) -> Option<Weight> + Send + Sync + 'static) -> Self {
        Self { weight_of: Box::new(weight_of), ..self }
    }

    /// Sets the maximum number of separate names in one window, groups and leaves together. Names beyond it share one
    /// entry with the other new names of their group, so that none gets a fresh budget.
    pub fn names_max(mut self, names: usize) -> Self {
        // Next to each name there may be the entry that new names of its group share.
        self.places.get_mut().names_max = names.clamp(1, MEMBERS_MAX / 2);
        self
    }

    /// Sets the clock, instead of wall-clock time.
    pub fn clock<D: Clock>(self, clock: D) -> FairTree<D, H> {
        FairTree { places: self.places, weight_of: self.weight_of, clock, hash: self.hash }
    }

    /// Sets the name hash. Default: [`SecretHash`]. Use another only if the operator chooses the names.
    pub fn hash<G: KeyHash>(self) -> FairTree<C, G> {
        FairTree { places: self.places, weight_of: self.weight_of, clock: self.clock, hash: G::random() }
    }

    /// Decides a request of the leaf at the end of the path, and charges it at every level if allowed. A request of
    /// cost zero charges nothing, and returns the remaining units; but it makes the leaf active.
    ///
    /// A name followed by others is a group; the same name at the end of a path is a separate leaf. A path deeper than
    /// [`DEPTH_MAX`](throttlekit_core::fair::DEPTH_MAX) ends there, in the entry that new names share.
    pub fn check(&self, path: &[&str], cost: Cost) -> TreeDecision {
        let now = self.clock.now();
        let mut places = self.places.lock();
        places.advance(now);
        let leaf = places.find(path, &self.hash, &self.weight_of);
        places.tree.check(leaf, cost)
    }

    /// Returns the units admitted in this window.
    pub fn used(&self) -> u64 {
        let now = self.clock.now();
        let mut places = self.places.lock();
        places.advance(now);
        places.tree.used()
    }
}

debug_fields!([C, H] FairTree<C, H>);

/// A tree and its entries. A name is identified by its group and its fingerprint.
struct Places {
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
    fn new(tree: Tree) -> Self {
        Self { tree, groups: HashTable::new(), leaves: HashTable::new(), names_max: KEYS_MAX_DEFAULT }
    }

    fn advance(&mut self, now: Timestamp) {
        if self.tree.advance(now) {
            self.groups.clear();
            self.leaves.clear();
        }
    }

    /// Returns the leaf at the end of a path, which joins if needed.
    fn find(&mut self, path: &[&str], hash: &impl KeyHash, weight_of: &WeightOf) -> Leaf {
        let mut parent = Group::ROOT;
        let groups = path.len().saturating_sub(1);
        for depth in 0..groups {
            let name = Name { parent, fingerprint: hash.fingerprint(path[depth].as_bytes()) };
            match self.group(name, || weight_of(&path[..=depth])) {
                Some(group) => parent = group,
                None => return self.leaf(Name { parent, fingerprint: NEWCOMERS }, Weight::default),
            }
        }
        let fingerprint = path.last().map_or(NEWCOMERS, |name| hash.fingerprint(name.as_bytes()));
        self.leaf(Name { parent, fingerprint }, || weight_of(path).unwrap_or_default())
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

    use throttlekit_core::rate::Cadence;

    use super::*;
    use crate::ManualClock;

    fn tree(limit: u64) -> FairTree<ManualClock> {
        let minute = Cadence::every(Duration::from_secs(60));
        let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000));
        FairTree::new(Tree::new(limit, minute).unwrap()).clock(clock)
    }

    #[test]
    fn a_flood_of_names_shares_one_place_and_never_passes_the_limit() {
        let tree = tree(1_000).names_max(10);
        for nth in 0..5 {
            assert!(tree.check(&["known", &nth.to_string()], 1).decision.allowed);
        }
        let passed = (0..100_000).filter(|nth| tree.check(&["flood", &format!("{nth}")], 1).decision.allowed);
        // Three of the flood have an entry of their own and send one request. The others are one, the ninth of nine.
        assert_eq!(passed.count(), 3 + 1_000 / 9);
        assert!(tree.check(&["known", "0"], 110).decision.allowed, "what is reserved is still there");
        assert!(tree.used() <= 1_000);
    }

    #[test]
    fn a_name_may_be_a_group_and_someone() {
        let tree = tree(100);
        assert!(tree.check(&["acme"], 1).decision.allowed);
        assert!(tree.check(&["acme", "ann"], 49).decision.allowed);
        assert_eq!(tree.check(&["acme"], 0).decision.remaining, 49);
    }

    #[test]
    fn a_new_window_begins_with_nobody() {
        let tree = tree(100);
        assert!(tree.check(&["a", "b", "c"], 100).decision.allowed);
        assert!(!tree.check(&["a", "b", "c"], 1).decision.allowed);
        tree.clock.advance(Duration::from_secs(60));
        assert!(tree.check(&["x"], 100).decision.allowed);
    }

    #[test]
    fn what_is_nested_too_deep_shares_one_place() {
        let tree = tree(100);
        let path: Vec<String> = (0..40).map(|n| n.to_string()).collect();
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        assert!(tree.check(&path, 60).decision.allowed);
        assert!(!tree.check(&path[..39], 60).decision.allowed);
    }
}
