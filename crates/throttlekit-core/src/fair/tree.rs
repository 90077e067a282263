//! Weights nested up to 16 levels: region → org → team → user, one budget.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::current_window::CurrentWindow;
use super::{Member, Roster, WEIGHT_MAX, Weight};
use crate::rate::{Cadence, LimitError, UNITS_MAX, checked_units};
use crate::{Cost, Decision, Retry, Timestamp};

/// Largest number of levels of a [`Tree`] below its root.
pub const DEPTH_MAX: usize = 16;

/// One budget a window, shared by weights that are nested.
///
/// Every group is a [`Roster`] of its children, and its limit is the group's own guarantee among its siblings. A
/// request walks from the root to its leaf and must be admitted at each level by the rule of [`Roster::admits`]:
///
/// * within a group's guarantee, the level below divides that guarantee;
/// * beyond it, by one request and if nothing is taken from the group's siblings, the level below divides what the
///   group has used with that request, and admits it only if nothing is reserved there for any other. So a group passes
///   its guarantee only when all in it have had theirs.
///
/// Only those that have sent requests in this window count, at every level. What an absent team leaves goes to the
/// other teams of its org first, and to other orgs only when the org is absent as a whole.
///
/// A group's weight is its own, or the sum of the weights of those below it that have sent requests. With sums all the
/// way the tree divides as a flat [`Escrow`](super::Escrow) over the leaves would, except for what whole units leave
/// over: with all leaves backlogged and requests of at most `q`, a leaf at depth `d` is never more than `d·q` above its
/// part `w·L/W`, and always less than `d + q` below it (guarantee `fair-tree`).
///
/// Handles are valid for their window: after [`advance`](Self::advance) has returned that a new one has begun, groups
/// and leaves join again.
///
/// ```
/// use core::time::Duration;
/// use throttlekit_core::Timestamp;
/// use throttlekit_core::fair::{Group, Tree, Weight};
/// use throttlekit_core::rate::Cadence;
///
/// let minute = Cadence::Every { length: Duration::from_secs(60), anchor: Timestamp::EPOCH };
/// let mut tree = Tree::new(100, minute)?;
/// tree.advance(Timestamp::from_millis(1_800_000_000_000));
/// let acme = tree.join_group(Group::ROOT, Some(Weight::ONE)).unwrap();
/// let zoo = tree.join_group(Group::ROOT, Some(Weight::ONE)).unwrap();
/// let (ann, bob) = (tree.join(acme, Weight::ONE), tree.join(acme, Weight::ONE));
/// let cat = tree.join(zoo, Weight::ONE);
///
/// // Half is Acme's: a quarter each for Ann and Bob. The zoo's half is the cat's.
/// assert!(tree.check(ann, 25).decision.allowed);
/// let more = tree.check(ann, 1);
/// assert_eq!((more.decision.allowed, more.bound_at), (false, Some(1)), "held up among Acme's own");
/// assert!(tree.check(bob, 25).decision.allowed);
/// assert_eq!(tree.check(bob, 1).bound_at, Some(0), "held up among the orgs");
/// assert!(tree.check(cat, 50).decision.allowed);
/// # Ok::<(), throttlekit_core::rate::LimitError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tree {
    limit: u64,
    turn: CurrentWindow,
    groups: Vec<Node>,
}

/// A handle of one group of one [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group(u32);

impl Group {
    /// The root group.
    pub const ROOT: Self = Self(0);

    /// A small number, different for each group.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A handle of one leaf of one [`Tree`]: a tenant that sends requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Leaf {
    group: u32,
    member: Member,
}

/// The decision on one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeDecision {
    /// The decision. `remaining` is what the leaf may still take within all guarantees on the path to it, `limit` is
    /// that plus what it has used.
    pub decision: Decision,
    /// Level that denied a request: 0 among the children of the root, 1 among theirs, and so on.
    pub bound_at: Option<usize>,
}

#[derive(Clone, Debug)]
struct Node {
    /// Its slot in its parent's roster; the root has none.
    place: Option<Leaf>,
    depth: usize,
    /// `true` if its weight is the sum of those below.
    sums: bool,
    roster: Roster,
}

impl Tree {
    /// `limit` units in each window of the cadence.
    pub fn new(limit: u64, cadence: Cadence) -> Result<Self, LimitError> {
        let limit = checked_units(limit)?;
        let root = Node { place: None, depth: 0, sums: false, roster: Roster::new(limit) };
        Ok(Self { limit, turn: CurrentWindow::new(cadence)?, groups: vec![root] })
    }

    /// Moves to `now`. True if a new window has begun: then no tenant has joined it yet, and older handles are invalid.
    ///
    /// A clock that steps back into the window before stays in its window. One that steps back further is in the window
    /// that it shows, with as much left as when it was left last; the tenants that send requests share that again.
    pub fn advance(&mut self, now: Timestamp) -> bool {
        let Some(before) = self.turn.advance(now, self.used()) else { return false };
        self.groups.truncate(1);
        self.groups[0].roster.begin(before);
        true
    }

    /// Makes a group active, with its own weight or with the sum of the weights of those below it that are active.
    /// `None` if there would be more than [`DEPTH_MAX`] levels.
    pub fn join_group(&mut self, parent: Group, weight: Option<Weight>) -> Option<Group> {
        let depth = self.groups[parent.index()].depth + 1;
        if depth >= DEPTH_MAX {
            return None;
        }
        // A sum of nothing yet counts as one until somebody joins below.
        let place = self.join(parent, weight.unwrap_or(Weight::ONE));
        let node = Node { place: Some(place), depth, sums: weight.is_none(), roster: Roster::new(0) };
        self.groups.push(node);
        Some(Group(self.groups.len() as u32 - 1))
    }

    /// Makes a leaf active.
    pub fn join(&mut self, parent: Group, weight: Weight) -> Leaf {
        let member = self.groups[parent.index()].roster.join(weight);
        self.sum_up(parent.0);
        Leaf { group: parent.0, member }
    }

    /// Decides a request, and charges it at every level if allowed. A cost of zero changes nothing: it reports what is
    /// left.
    pub fn check(&mut self, leaf: Leaf, cost: Cost) -> TreeDecision {
        let (path, levels) = self.path(leaf);
        let path = &path[..levels];
        let bound_at = if cost == 0 { None } else { self.bound(path, cost) };
        if bound_at.is_none() {
            for place in path {
                self.groups[place.group as usize].roster.spend(place.member, cost);
            }
        }
        TreeDecision { decision: self.worded(path, cost, bound_at.is_none()), bound_at }
    }

    /// Refunds units that a leaf was charged in this window and did not use, at every level. Never more than it has
    /// used.
    pub fn refund(&mut self, leaf: Leaf, units: Cost) {
        let used = self.used_by(leaf);
        let (path, levels) = self.path(leaf);
        self.groups[leaf.group as usize].roster.refund(leaf.member, units);
        let back = used - self.used_by(leaf);
        for place in &path[1..levels] {
            self.groups[place.group as usize].roster.refund(place.member, back);
        }
    }

    /// Charges units that a leaf has used and did not request, at every level, also beyond guarantees and beyond what
    /// is left.
    pub fn owe(&mut self, leaf: Leaf, units: Cost) {
        let (path, levels) = self.path(leaf);
        for place in &path[..levels] {
            self.groups[place.group as usize].roster.spend(place.member, units);
        }
    }

    /// Removes a leaf from the window, and its use with it. Its groups stay active.
    pub fn leave(&mut self, leaf: Leaf) {
        self.refund(leaf, Cost::MAX);
        self.groups[leaf.group as usize].roster.leave(leaf.member);
        self.sum_up(leaf.group);
    }

    /// Changes the limit, of this window and all that follow. Below what is used already, nothing is left.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit.min(UNITS_MAX);
        self.groups[0].roster.set_limit(self.limit);
    }

    /// The limit.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns when the window ends and everything is free again.
    pub fn ends_at(&self) -> Timestamp {
        self.turn.end()
    }

    /// Returns the length of a window; a calendar month counts as 31 days.
    pub fn period(&self) -> Duration {
        self.turn.period()
    }

    /// Returns the units admitted in this window.
    pub fn used(&self) -> u64 {
        self.groups[0].roster.used()
    }

    /// Returns what a leaf has used.
    pub fn used_by(&self, leaf: Leaf) -> u64 {
        self.groups[leaf.group as usize].roster.used_by(leaf.member)
    }

    /// Returns the members of a group and their weights.
    pub fn roster(&self, group: Group) -> &Roster {
        &self.groups[group.index()].roster
    }

    /// Returns the slots from a leaf up to the child of the root, and their number.
    fn path(&self, leaf: Leaf) -> ([Leaf; DEPTH_MAX], usize) {
        let (mut path, mut levels) = ([leaf; DEPTH_MAX], 1);
        while let Some(place) = self.groups[path[levels - 1].group as usize].place {
            path[levels] = place;
            levels += 1;
        }
        (path, levels)
    }

    /// Returns the level that denies a request of `cost`, if any does.
    fn bound(&mut self, path: &[Leaf], cost: Cost) -> Option<usize> {
        let (mut limit, mut beyond) = (self.limit, false);
        for (level, place) in path.iter().rev().enumerate() {
            let roster = &mut self.groups[place.group as usize].roster;
            roster.set_limit(limit);
            // Use beyond a group's guarantee is for the request that crosses it, once no member of it lacks anything.
            if !roster.admits(place.member, cost) || (beyond && cost > roster.borrowable(place.member)) {
                return Some(level);
            }
            let after = roster.used_by(place.member) + cost;
            let guarantee = roster.guarantee(place.member);
            beyond = after > guarantee;
            limit = guarantee.max(after);
        }
        None
    }

    fn worded(&mut self, path: &[Leaf], cost: Cost, allowed: bool) -> Decision {
        let (mut limit, mut remaining) = (self.limit, u64::MAX);
        for place in path.iter().rev() {
            let roster = &mut self.groups[place.group as usize].roster;
            roster.set_limit(limit);
            limit = roster.guarantee(place.member);
            remaining = remaining.min(limit.saturating_sub(roster.used_by(place.member))).min(roster.left());
        }
        let retry_after = match (allowed, cost > self.limit) {
            (true, _) => Retry::Now,
            (false, true) => Retry::Never,
            (false, false) => Retry::after(self.turn.wait()),
        };
        let limit = self.used_by(path[0]) + remaining;
        Decision { allowed, limit, remaining, reset_at: self.turn.end(), retry_after }
    }

    /// Carries a change of weights up to the first group that has a weight of its own.
    fn sum_up(&mut self, group: u32) {
        let Node { place: Some(place), sums: true, roster, .. } = &self.groups[group as usize] else {
            return;
        };
        let (place, weights) = (*place, roster.weights().clamp(1, WEIGHT_MAX));
        if let Ok(weight) = Weight::new(weights) {
            self.groups[place.group as usize].roster.set_weight(place.member, weight);
        }
        self.sum_up(place.group);
    }
}
