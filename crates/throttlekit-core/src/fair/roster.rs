//! Who shares a budget, and what each has used of it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::class::Class;
use super::least::Least;
use super::{Weight, guarantee};
use crate::Cost;
use crate::rate::UNITS_MAX;

/// The most members one roster holds. With [`WEIGHT_MAX`](super::WEIGHT_MAX) it keeps sums of weights within 64 bits.
pub const MEMBERS_MAX: usize = 1 << 23;

/// The class of a member who is set aside.
const NONE: u32 = u32::MAX;

/// A handle of one member of one [`Roster`]. It is good until the member leaves or the roster is cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member(pub(super) u32);

impl Member {
    /// A small number, different for each member: handles index tables.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The members of one budget: their weights, what each has used, and a limit that may change.
///
/// It answers exactly, floors included, what fairness asks:
///
/// * a member's guarantee `g = ⌊w·L/W⌋`, L the limit and W the weights of all members;
/// * what is left, `L − Σ used`;
/// * what is reserved for the others, `Σ_{j≠i} max(0, gⱼ − usedⱼ)`.
///
/// Nothing walks over the members. Members of one weight have one guarantee and are kept together; a change of the
/// limit or of the members moves a class's guarantee only when that is asked for. So a check costs the same for a
/// hundred members as for a hundred thousand, but for caches; the first [`borrowable`](Self::borrowable) after a
/// change looks once at each *different* weight.
///
/// ```
/// use throttlekit_core::fair::{Roster, Weight};
///
/// let mut team = Roster::new(100);
/// let (ann, bob) = (team.join(Weight::new(3)?), team.join(Weight::ONE));
/// assert_eq!((team.guarantee(ann), team.guarantee(bob)), (75, 25));
///
/// assert!(team.admits(bob, 25));
/// team.spend(bob, 25);
/// assert!(!team.admits(bob, 1), "the rest is reserved for Ann");
/// assert!(team.admits(ann, 75));
/// # Ok::<(), throttlekit_core::fair::WeightError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Roster {
    limit: u64,
    /// Sums over the members that are not set aside.
    weights: u64,
    used: u128,
    members: Vec<Place>,
    free: Vec<u32>,
    classes: Vec<Class>,
    by_weight: BTreeMap<Weight, u32>,
    free_classes: Vec<u32>,
    /// Rises whenever some guarantee may have changed. A class whose stamp is older is out of date.
    stamp: u64,
    /// How many classes are up to date.
    current: usize,
    /// Of all classes together, each by the guarantee it holds.
    reserve: u64,
    least: Least,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    used: u64,
    class: u32,
    taken: bool,
}

impl Roster {
    /// A budget of `limit` units, at most [`UNITS_MAX`], and no members. Zero is allowed: a budget that is still to be
    /// granted.
    pub fn new(limit: u64) -> Self {
        Self { limit: limit.min(UNITS_MAX), stamp: 1, ..Self::default() }
    }

    /// Adds a member that has used nothing. Everyone else's guarantee falls.
    ///
    /// # Panics
    ///
    /// Beyond [`MEMBERS_MAX`] members. Whoever maps names to members bounds them, and below that.
    pub fn join(&mut self, weight: Weight) -> Member {
        assert!(self.len() < MEMBERS_MAX, "bound the members below {MEMBERS_MAX}");
        let place = Place { used: 0, class: NONE, taken: true };
        let index = if let Some(index) = self.free.pop() {
            self.members[index as usize] = place;
            index
        } else {
            self.members.push(place);
            self.members.len() as u32 - 1
        };
        self.least.join(index, 0);
        self.enrol(index, weight);
        Member(index)
    }

    /// Removes a member and hands back what it had used. The handle is free for another.
    pub fn leave(&mut self, member: Member) -> u64 {
        if !self.is_aside(member) {
            self.dismiss(member.0);
        }
        self.least.forget();
        self.free.push(member.0);
        self.members[member.index()].taken = false;
        self.members[member.index()].used
    }

    /// Removes everyone and all use: a new window. Handles die; the limit stays.
    pub fn clear(&mut self) {
        self.weights = 0;
        self.used = 0;
        self.members.clear();
        self.free.clear();
        self.classes.clear();
        self.by_weight.clear();
        self.free_classes.clear();
        self.current = 0;
        self.reserve = 0;
        self.least.forget();
    }

    /// Gives a member another weight from now on. What it has used stays.
    pub fn set_weight(&mut self, member: Member, weight: Weight) {
        if self.weight(member) != Some(weight) {
            if !self.is_aside(member) {
                self.dismiss(member.0);
            }
            self.enrol(member.0, weight);
        }
    }

    /// Sets a member aside: neither its weight nor its use counts here until [`set_weight`](Self::set_weight) brings
    /// it back. Whoever does this takes what it has used out of the limit.
    pub fn set_aside(&mut self, member: Member) {
        if !self.is_aside(member) {
            self.dismiss(member.0);
        }
    }

    /// Changes the limit. Below what is used already, nothing is left until it rises or the roster is cleared.
    pub fn set_limit(&mut self, limit: u64) {
        let limit = limit.min(UNITS_MAX);
        if limit != self.limit {
            self.limit = limit;
            self.outdate();
        }
    }

    /// Takes units for a member, whether or not [`admits`](Self::admits) would.
    #[inline]
    pub fn spend(&mut self, member: Member, units: Cost) {
        self.set_used(member, self.used_by(member).saturating_add(units).min(UNITS_MAX));
    }

    /// Hands units back to a member, at most what it has used.
    pub fn refund(&mut self, member: Member, units: Cost) {
        self.set_used(member, self.used_by(member).saturating_sub(units));
        self.least.forget();
    }

    fn set_used(&mut self, member: Member, used: u64) {
        let Place { used: before, class, .. } = self.members[member.index()];
        self.members[member.index()].used = used;
        if class != NONE && used != before {
            self.used = self.used - u128::from(before) + u128::from(used);
            self.change(class, |class| {
                class.remove(before);
                class.add(used);
            });
        }
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.members.len() - self.free.len()
    }

    /// Whether there is nobody.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The limit.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The weights of all members together.
    pub fn weights(&self) -> u64 {
        self.weights
    }

    /// What all members have used together.
    pub fn used(&self) -> u64 {
        u64::try_from(self.used).unwrap_or(u64::MAX)
    }

    /// What nobody has used yet.
    pub fn left(&self) -> u64 {
        self.limit.saturating_sub(self.used())
    }

    /// What a member has used.
    #[inline]
    pub fn used_by(&self, member: Member) -> u64 {
        self.members[member.index()].used
    }

    /// A member's weight; none if it is set aside.
    #[inline]
    pub fn weight(&self, member: Member) -> Option<Weight> {
        let class = self.members[member.index()].class;
        (class != NONE).then(|| self.classes[class as usize].weight)
    }

    /// Whether a member is set aside.
    pub fn is_aside(&self, member: Member) -> bool {
        self.members[member.index()].class == NONE
    }

    pub(super) fn is_taken(&self, member: Member) -> bool {
        self.members[member.index()].taken
    }

    /// What a member is promised: `⌊w·L/W⌋`. Nothing while it is set aside.
    #[inline]
    pub fn guarantee(&mut self, member: Member) -> u64 {
        let class = self.members[member.index()].class;
        if class == NONE {
            return 0;
        }
        self.update(class);
        self.classes[class as usize].guarantee
    }

    /// What is reserved for everyone else: the sum of what each has not used of its guarantee.
    pub fn reserved_for_others(&mut self, member: Member) -> u64 {
        let own = self.guarantee(member).saturating_sub(self.used_by(member));
        self.update_all();
        self.reserve - own
    }

    /// The most one member could take without touching what is reserved for the others. Its own guarantee is part
    /// of it.
    pub fn borrowable(&mut self, member: Member) -> u64 {
        self.left().saturating_sub(self.reserved_for_others(member))
    }

    /// The rule of weighted fair escrow, spending nothing.
    ///
    /// * What is not left is denied.
    /// * Within the guarantee an ask is admitted.
    /// * Beyond it only a member that has not passed its guarantee yet, and only if nothing is taken that is
    ///   reserved for others. So nobody passes its guarantee by more than one ask.
    #[inline]
    pub fn admits(&mut self, member: Member, cost: Cost) -> bool {
        if cost > self.left() {
            return false;
        }
        let (guarantee, used) = (self.guarantee(member), self.used_by(member));
        if used.checked_add(cost).is_some_and(|used| used <= guarantee) {
            return true;
        }
        used <= guarantee && cost <= self.borrowable(member)
    }

    /// The largest cost that [`admits`](Self::admits) would admit now.
    pub fn admissible(&mut self, member: Member) -> u64 {
        let (guarantee, used) = (self.guarantee(member), self.used_by(member));
        if used > guarantee {
            return 0;
        }
        (guarantee - used).min(self.left()).max(self.borrowable(member))
    }

    /// The member that has used least, set aside or not; the first of equals. Whoever must give a newcomer the place
    /// of another takes this one and leaves its use where it is: then nobody who lost a place comes back to less use
    /// than it had.
    pub fn least_used(&mut self) -> Option<Member> {
        let members = &self.members;
        let all = members.iter().enumerate().filter(|(_, place)| place.taken);
        let found = self.least.find(all.map(|(index, place)| (place.used, index as u32)), |member| {
            members[member as usize].used
        });
        found.map(Member)
    }

    /// Counts a member in.
    fn enrol(&mut self, index: u32, weight: Weight) {
        let used = self.members[index as usize].used;
        let class = self.class_of(weight);
        self.members[index as usize].class = class;
        self.change(class, |class| class.add(used));
        self.weights += weight.get();
        self.used += u128::from(used);
        self.outdate();
        // So that a class never holds more members by a guarantee than that was made for: their product stays small.
        self.update(class);
    }

    /// Counts a member out.
    fn dismiss(&mut self, index: u32) {
        let Place { used, class, .. } = self.members[index as usize];
        self.members[index as usize].class = NONE;
        self.change(class, |class| class.remove(used));
        let Class { weight, members, .. } = self.classes[class as usize];
        self.weights -= weight.get();
        self.used -= u128::from(used);
        if members == 0 {
            self.by_weight.remove(&weight);
            self.free_classes.push(class);
        }
        self.outdate();
    }

    fn class_of(&mut self, weight: Weight) -> u32 {
        if let Some(&class) = self.by_weight.get(&weight) {
            return class;
        }
        let class = if let Some(class) = self.free_classes.pop() {
            self.classes[class as usize] = Class::new(weight);
            class
        } else {
            self.classes.push(Class::new(weight));
            self.classes.len() as u32 - 1
        };
        self.by_weight.insert(weight, class);
        class
    }

    /// Changes a class, and the reserve of all with it.
    #[inline]
    fn change(&mut self, class: u32, by: impl FnOnce(&mut Class)) {
        let class = &mut self.classes[class as usize];
        let before = class.reserve();
        by(class);
        self.reserve = self.reserve - before + class.reserve();
    }

    /// From now on every guarantee has to be computed again.
    fn outdate(&mut self) {
        self.stamp += 1;
        self.current = 0;
    }

    /// Brings one class up to date.
    #[inline]
    fn update(&mut self, class: u32) {
        let Class { weight, stamp, members, .. } = self.classes[class as usize];
        if stamp == self.stamp {
            return;
        }
        let promised = if members == 0 { 0 } else { guarantee(weight, self.weights, self.limit) };
        let now = self.stamp;
        self.change(class, |class| {
            class.set_guarantee(promised);
            class.stamp = now;
        });
        self.current += 1;
    }

    fn update_all(&mut self) {
        if self.current < self.classes.len() {
            (0..self.classes.len() as u32).for_each(|class| self.update(class));
        }
    }
}
