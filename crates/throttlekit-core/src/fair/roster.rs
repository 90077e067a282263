//! The members that share a budget, and their use of it.

use alloc::vec::Vec;

use super::Weight;
use super::classes::Classes;
use super::current_window::UsedBefore;
use super::least_used::Least;
use super::weight::ROSTER_WEIGHT_MAX;
use crate::Cost;
use crate::rate::UNITS_MAX;

/// Largest number of members in one roster. It keeps sums of weights within 64 bits.
pub const MEMBERS_MAX: usize = 1 << 23;
const _: () = assert!(ROSTER_WEIGHT_MAX.checked_mul(MEMBERS_MAX as u64).is_some());

/// A handle of one member of one [`Roster`]. It is valid until the member leaves or the roster is cleared.
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
/// It computes exactly, floors included:
///
/// * a member's guarantee `g = ⌊w·L/W⌋`, L the limit, less what was used of it before anyone joined, and W the weights
///   of all members;
/// * what is left, `L − Σ used`;
/// * what is reserved for the others, `Σ_{j≠i} max(0, gⱼ − usedⱼ)`.
///
/// For that it does not walk over the members. Members of one weight have one guarantee and are kept together; a change
/// of the limit or of the members moves a class's guarantee only when it is read. So a check costs the same for a
/// hundred members as for a hundred thousand, except for caches; the first [`borrowable`](Self::borrowable) after a
/// change reads each *different* weight once. Only when guarantees have fallen by an eighth since the last time, one
/// plain walk through memory files more members; while members join, that is a constant for each on average.
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
    /// Units used before any member joined. Members share the rest of the limit.
    before: u64,
    used: u128,
    members: Vec<Place>,
    free: Vec<u32>,
    classes: Classes,
    least: Least,
}

/// One member. Small and in one piece: among many, finding and charging one is mostly waiting for its memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) used: u64,
    pub(super) label: u64,
    /// Its class, or [`NONE`](Self::NONE).
    pub(super) class: u32,
    /// `true` if its class has it filed at its use.
    pub(super) filed: bool,
}

impl Place {
    /// The class of an unused slot.
    const NONE: u32 = u32::MAX;

    pub(super) fn is_taken(&self) -> bool {
        self.class != Self::NONE
    }
}

impl Roster {
    /// A budget of `limit` units, at most [`UNITS_MAX`], and no members. Zero is allowed: a budget that is still to be
    /// granted.
    pub fn new(limit: u64) -> Self {
        let limit = limit.min(UNITS_MAX);
        Self { limit, classes: Classes::new(limit), ..Self::default() }
    }

    /// Adds a member that has used nothing. The guarantees of all others fall.
    ///
    /// # Panics
    ///
    /// Beyond [`MEMBERS_MAX`] members. The caller that maps names to members must bound them below that.
    pub fn join(&mut self, weight: Weight) -> Member {
        assert!(self.len() < MEMBERS_MAX, "bound the members below {MEMBERS_MAX}");
        let place = Place { used: 0, label: 0, class: Place::NONE, filed: false };
        let index = if let Some(index) = self.free.pop() {
            self.members[index as usize] = place;
            index
        } else {
            self.members.push(place);
            self.members.len() as u32 - 1
        };
        self.least.join(index, self.members.len());
        self.enrol(index, weight);
        Member(index)
    }

    /// Removes a member and returns what it had used. The handle is free for another.
    pub fn leave(&mut self, member: Member) -> u64 {
        self.dismiss(member.0);
        self.free.push(member.0);
        self.members[member.index()].used
    }

    /// Removes all members and all use: a new window. Handles become invalid; the limit stays.
    pub fn clear(&mut self) {
        self.begin(UsedBefore::Units(0));
    }

    /// The same for a window of which something was used before: new members share what is left of it.
    pub(super) fn begin(&mut self, before: UsedBefore) {
        self.before = match before {
            UsedBefore::Units(used) => used.min(UNITS_MAX),
            UsedBefore::All => self.limit,
        };
        self.used = 0;
        self.members.clear();
        self.free.clear();
        self.classes.clear();
        self.least.forget();
        self.set_limit(self.limit);
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
        self.limit = limit.min(UNITS_MAX);
        self.classes.set_limit(self.limit.saturating_sub(self.before));
    }

    /// Takes units for a member, whether or not [`admits`](Self::admits) would.
    #[inline]
    pub fn spend(&mut self, member: Member, units: Cost) {
        let place = &mut self.members[member.index()];
        let used = place.used.saturating_add(units).min(UNITS_MAX);
        self.used += u128::from(used - place.used);
        self.classes.shift(place, used);
    }

    /// Refunds units that a member spent and did not use: the state is then as if it had not spent them. Never more
    /// than it has used; and a use that has reached [`UNITS_MAX`] stays, since the excess is unknown.
    pub fn refund(&mut self, member: Member, units: Cost) {
        let places = self.members.len();
        let place = &mut self.members[member.index()];
        let back = if place.used < UNITS_MAX { units.min(place.used) } else { 0 };
        if back > 0 {
            self.used -= u128::from(back);
            self.classes.shift(place, place.used - back);
            self.least.lower(member.0, place.used, places);
        }
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.members.len() - self.free.len()
    }

    /// Checks whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The limit.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the part of the limit that members share.
    pub(super) fn shared(&self) -> u64 {
        self.classes.limit()
    }

    /// The weights of all members together.
    pub fn weights(&self) -> u64 {
        self.classes.weights()
    }

    /// Returns the use of all members, plus what was used before they joined.
    pub fn used(&self) -> u64 {
        u64::try_from(self.used + u128::from(self.before)).unwrap_or(u64::MAX)
    }

    /// Returns the unused units.
    pub fn left(&self) -> u64 {
        self.limit().saturating_sub(self.used())
    }

    /// Returns what a member has used.
    #[inline]
    pub fn used_by(&self, member: Member) -> u64 {
        self.members[member.index()].used
    }

    /// Returns the caller's label of a member; zero until it is [set](Self::set_label). Kept here so that finding a
    /// member by name touches no other memory.
    #[inline]
    pub fn label(&self, member: Member) -> u64 {
        self.members[member.index()].label
    }

    /// Labels a member. The roster does not interpret it.
    pub fn set_label(&mut self, member: Member, label: u64) {
        self.members[member.index()].label = label;
    }

    /// A member's weight; `None` if the handle is unused.
    #[inline]
    pub fn weight(&self, member: Member) -> Option<Weight> {
        let place = &self.members[member.index()];
        place.is_taken().then(|| self.classes.weight(place.class))
    }

    /// Returns the guarantee of a member: `⌊w·L/W⌋`.
    #[inline]
    pub fn guarantee(&mut self, member: Member) -> u64 {
        self.classes.guarantee(self.members[member.index()].class, &mut self.members)
    }

    /// Returns what is reserved for all others: the sum of what each has not used of its guarantee.
    pub fn reserved_for_others(&mut self, member: Member) -> u64 {
        let own = self.guarantee(member).saturating_sub(self.used_by(member));
        self.classes.reserve(&mut self.members) - own
    }

    /// The most one member could take without touching what is reserved for the others. Its own guarantee is part
    /// of it.
    pub fn borrowable(&mut self, member: Member) -> u64 {
        self.left().saturating_sub(self.reserved_for_others(member))
    }

    /// Checks the rule of weighted fair escrow, spending nothing.
    ///
    /// * A cost above what is left is denied.
    /// * Within the guarantee a request is admitted.
    /// * Beyond it only a member that has not passed its guarantee yet, and only if nothing is taken that is reserved
    ///   for others. So no member passes its guarantee by more than one request.
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

    /// The member that has used least, the first of equals.
    ///
    /// To give a new member the slot of another, take this one and keep its use: then no replaced member comes back to
    /// less use than it had.
    pub fn least_used(&mut self) -> Option<Member> {
        self.least.find(&self.members).map(Member)
    }

    /// Counts a member in.
    fn enrol(&mut self, index: u32, weight: Weight) {
        let place = &mut self.members[index as usize];
        self.used += u128::from(place.used);
        let class = self.classes.add(place, weight);
        // So that a class never holds more members by a guarantee than that was made for: their product stays small.
        self.classes.guarantee(class, &mut self.members);
    }

    /// Counts a member out.
    fn dismiss(&mut self, index: u32) {
        let place = &mut self.members[index as usize];
        self.used -= u128::from(place.used);
        self.classes.remove(place);
        place.class = Place::NONE;
    }
}
