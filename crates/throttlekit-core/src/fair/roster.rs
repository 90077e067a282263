//! Who shares a budget, and what each has used of it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::class::Class;
use super::least::Least;
use super::weight::ROSTER_WEIGHT_MAX;
use super::{Weight, guarantee};
use crate::Cost;
use crate::rate::UNITS_MAX;

/// The most members one roster holds. It keeps sums of weights within 64 bits.
pub const MEMBERS_MAX: usize = 1 << 23;
const _: () = assert!(ROSTER_WEIGHT_MAX.checked_mul(MEMBERS_MAX as u64).is_some());

/// The class of a place that nobody has.
const NONE: u32 = u32::MAX;

/// By how much a guarantee must have risen before its members are filed from a higher use on. By much, so that a limit
/// that swings does not bring on a walk each time.
const REFILE_RISE: u64 = 4;

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
/// change looks once at each *different* weight. There is one walk, a plain one through memory: when guarantees have
/// fallen by an eighth since the last. While members join that is a constant each on average.
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
    /// The limit and the weights by which it was last settled from which use on members are filed.
    filed_by: (u64, u64),
    least: Least,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    used: u64,
    label: u64,
    class: u32,
    /// Whether its class has it filed at its use.
    filed: bool,
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
        let place = Place { used: 0, label: 0, class: NONE, filed: false };
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
        self.dismiss(member.0);
        self.least.forget();
        self.free.push(member.0);
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
        self.filed_by = (0, 0);
        self.least.forget();
    }

    /// Gives a member another weight from now on. What it has used stays.
    pub fn set_weight(&mut self, member: Member, weight: Weight) {
        if self.weight(member) != Some(weight) {
            self.dismiss(member.0);
            self.enrol(member.0, weight);
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
        let place = &mut self.members[member.index()];
        let (before, was_filed) = (place.used, place.filed);
        place.used = used;
        if used != before {
            place.filed |= used >= self.classes[place.class as usize].file_from;
            let (class, filed) = (place.class, place.filed);
            self.used = self.used - u128::from(before) + u128::from(used);
            self.change(class, |class| {
                class.remove(before, was_filed);
                class.add(used, filed);
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

    /// What its holder knows a member by; zero until it is [set](Self::set_label). Kept here so that finding a member by
    /// name touches no other memory.
    #[inline]
    pub fn label(&self, member: Member) -> u64 {
        self.members[member.index()].label
    }

    /// Labels a member. It means nothing here.
    pub fn set_label(&mut self, member: Member, label: u64) {
        self.members[member.index()].label = label;
    }

    /// A member's weight; none if the handle is nobody's.
    #[inline]
    pub fn weight(&self, member: Member) -> Option<Weight> {
        self.is_taken(member).then(|| self.classes[self.members[member.index()].class as usize].weight)
    }

    pub(super) fn is_taken(&self, member: Member) -> bool {
        self.members[member.index()].class != NONE
    }

    /// What a member is promised: `⌊w·L/W⌋`.
    #[inline]
    pub fn guarantee(&mut self, member: Member) -> u64 {
        let class = self.members[member.index()].class;
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

    /// The member that has used least, the first of equals. Whoever must give a newcomer the place
    /// of another takes this one and leaves its use where it is: then nobody who lost a place comes back to less use
    /// than it had.
    pub fn least_used(&mut self) -> Option<Member> {
        let members = &self.members;
        let all = members.iter().enumerate().filter(|(_, place)| place.class != NONE);
        let found = self.least.find(all.map(|(index, place)| (place.used, index as u32)), |member| {
            members[member as usize].used
        });
        found.map(Member)
    }

    /// Counts a member in.
    fn enrol(&mut self, index: u32, weight: Weight) {
        let class = self.class_of(weight);
        let place = &mut self.members[index as usize];
        place.class = class;
        place.filed = place.used >= self.classes[class as usize].file_from;
        let Place { used, filed, .. } = *place;
        self.change(class, |class| class.add(used, filed));
        self.weights += weight.get();
        self.used += u128::from(used);
        self.outdate();
        // So that a class never holds more members by a guarantee than that was made for: their product stays small.
        self.update(class);
    }

    /// Counts a member out.
    fn dismiss(&mut self, index: u32) {
        let Place { used, class, filed, .. } = self.members[index as usize];
        self.members[index as usize].class = NONE;
        self.change(class, |class| class.remove(used, filed));
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
        let fresh = Class::new(weight, lowest_filed(weight, self.filed_by));
        let class = if let Some(class) = self.free_classes.pop() {
            self.classes[class as usize] = fresh;
            class
        } else {
            self.classes.push(fresh);
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
        if self.classes[class as usize].stamp != self.stamp {
            self.update_outdated(class);
        }
    }

    fn update_outdated(&mut self, class: u32) {
        let Class { weight, members, file_from, .. } = self.classes[class as usize];
        let promised = if members == 0 { file_from } else { guarantee(weight, self.weights, self.limit) };
        if promised < file_from {
            self.file_from_lower();
        }
        let now = self.stamp;
        self.change(class, |class| {
            class.set_guarantee(promised);
            class.stamp = now;
        });
        self.current += 1;
        if promised / REFILE_RISE > file_from {
            // Who is filed at a lower use stays so.
            self.filed_by = (self.limit, self.weights);
            self.classes[class as usize].file_from = lowest_filed(weight, self.filed_by);
        }
    }

    fn update_all(&mut self) {
        if self.current < self.classes.len() {
            (0..self.classes.len() as u32).for_each(|class| self.update(class));
        }
    }

    /// Files members at lower uses too, as guarantees have fallen: the one walk over all members.
    fn file_from_lower(&mut self) {
        self.filed_by = (self.limit, self.weights);
        for class in &mut self.classes {
            class.file_from = class.file_from.min(lowest_filed(class.weight, self.filed_by));
        }
        for place in self.members.iter_mut().filter(|place| place.class != NONE && !place.filed) {
            let class = &mut self.classes[place.class as usize];
            if place.used >= class.file_from {
                place.filed = true;
                class.file(place.used);
            }
        }
    }
}

/// From which use on members of a weight are filed: seven eighths of what a limit and a sum of weights promise them.
fn lowest_filed(weight: Weight, (limit, weights): (u64, u64)) -> u64 {
    let promised = u128::from(weight.get()) * u128::from(limit) / u128::from(weights.max(1));
    (promised * 7 / 8) as u64
}
