//! Who has used least: whose place a newcomer takes where there is no other.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::roster::Place;

/// How many entries there may be for each place, and beside, before it pays to begin anew.
const ENTRIES_PER_PLACE: usize = 2;
const ENTRIES_BESIDE: usize = 64;

/// Finds the member with the least use.
///
/// Built when it is first asked for. From then on each member has an entry at its use or below: use that grows is not
/// noted, as an entry that lies behind is raised when it comes up; use that falls leaves another entry.
#[derive(Clone, Debug, Default)]
pub(super) struct Least {
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    is_built: bool,
}

impl Least {
    /// Everyone has left.
    pub(super) fn forget(&mut self) {
        self.heap.clear();
        self.is_built = false;
    }

    /// A member has used this: it has joined, or was handed something back.
    pub(super) fn lower(&mut self, member: u32, used: u64) {
        if self.is_built {
            self.heap.push(Reverse((used, member)));
        }
    }

    /// The member with the least use, the first of equals.
    pub(super) fn find(&mut self, places: &[Place]) -> Option<u32> {
        if !self.is_built || self.heap.len() > ENTRIES_PER_PLACE * places.len() + ENTRIES_BESIDE {
            let taken = places.iter().enumerate().filter(|(_, place)| place.is_taken());
            self.heap = taken.map(|(at, place)| Reverse((place.used, at as u32))).collect::<Vec<_>>().into();
            self.is_built = true;
        }
        loop {
            let mut top = self.heap.peek_mut()?;
            let Reverse((entry, member)) = *top;
            let place = &places[member as usize];
            if !place.is_taken() || entry > place.used {
                // Of one that has left, or has a lower entry.
                drop(top);
                self.heap.pop();
            } else if entry < place.used {
                top.0.0 = place.used;
            } else {
                return Some(member);
            }
        }
    }
}
