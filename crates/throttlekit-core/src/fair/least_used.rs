//! The member that has used least, which a new member replaces where there is no free slot.

use alloc::collections::BinaryHeap;
use alloc::collections::binary_heap::PeekMut;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::roster::Place;

/// Number of entries per slot, plus a constant; beyond that they are dropped.
const ENTRIES_PER_PLACE: usize = 2;
const ENTRIES_BESIDE: usize = 64;
/// Stale entries are fixed one by one, up to one for each `n` slots plus a constant.
const PLACES_PER_STEP: usize = 32;

/// Finds the member with the least use.
///
/// Built on first use. From then on each member has an entry at its use or below: growing use is not recorded, as a
/// stale entry is raised when it comes up; a member that joins in a freed slot gets another entry, and so does one that
/// is refunded.
#[derive(Clone, Debug, Default)]
pub(super) struct Least {
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    is_built: bool,
}

impl Least {
    /// Resets: all members have left.
    pub(super) fn forget(&mut self) {
        self.heap.clear();
        self.is_built = false;
    }

    /// Records a member that has joined, in one of `places` slots. It has used nothing.
    pub(super) fn join(&mut self, member: u32, places: usize) {
        self.lower(member, 0, places);
    }

    /// Records that the use of a member, in one of `places` slots, has fallen to `used`: it needs an entry there.
    pub(super) fn lower(&mut self, member: u32, used: u64, places: usize) {
        if self.heap.len() >= ENTRIES_PER_PLACE * places + ENTRIES_BESIDE {
            self.forget();
        }
        if self.is_built {
            self.heap.push(Reverse((used, member)));
        }
    }

    /// The member with the least use, the first of equals.
    ///
    /// Where all members have spent since the last time, one walk over all slots is cheaper than raising all entries.
    pub(super) fn find(&mut self, places: &[Place]) -> Option<u32> {
        let mut steps = if self.is_built { places.len() / PLACES_PER_STEP + ENTRIES_BESIDE } else { 0 };
        while steps > 0 {
            let mut top = self.heap.peek_mut()?;
            let Reverse((entry, member)) = *top;
            let place = &places[member as usize];
            if !place.is_taken() || entry > place.used {
                // Of a member that has left, or has a lower entry.
                PeekMut::pop(top);
            } else if entry < place.used {
                top.0.0 = place.used;
            } else {
                return Some(member);
            }
            steps -= 1;
        }
        self.build(places);
        self.heap.peek().map(|Reverse((_, member))| *member)
    }

    fn build(&mut self, places: &[Place]) {
        let taken = places.iter().enumerate().filter(|(_, place)| place.is_taken());
        self.heap = taken.map(|(at, place)| Reverse((place.used, at as u32))).collect::<Vec<_>>().into();
        self.is_built = true;
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    const TAKEN: Place = Place { used: 0, label: 0, class: 0, filed: false };

    #[test]
    fn joining_and_leaving_for_ever_needs_no_more_memory() {
        let (mut least, places) = (Least::default(), vec![TAKEN; 10]);
        assert_eq!(least.find(&places), Some(0));
        for _ in 0..10_000 {
            least.join(9, places.len());
            assert!(least.heap.len() <= ENTRIES_PER_PLACE * places.len() + ENTRIES_BESIDE);
        }
        assert_eq!(least.find(&places), Some(0));
    }

    #[test]
    fn the_smallest_use_is_found_after_all_have_spent() {
        let (mut least, mut places) = (Least::default(), vec![TAKEN; 10_000]);
        assert_eq!(least.find(&places), Some(0));
        for (at, place) in places.iter_mut().enumerate() {
            place.used = 10 + (at as u64 * 7_919) % 10_000;
        }
        places[0].class = u32::MAX;
        let next = (1..places.len()).min_by_key(|&at| places[at].used);
        assert_eq!(least.find(&places), next.map(|at| at as u32));
    }
}
