//! Who has used least: whose place a newcomer takes where there is no other.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Finds the member with the least use.
///
/// Built when it is first asked for. Keys may lie behind, as use only grows between rebuilds; one that does is raised
/// when it comes up, which the charges since have paid for.
#[derive(Clone, Debug, Default)]
pub(super) struct Least {
    heap: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Least {
    /// Forgets everything: some use has fallen, or everyone has left.
    pub(super) fn forget(&mut self) {
        self.heap.clear();
    }

    /// Takes one more, if it is being kept at all.
    pub(super) fn join(&mut self, member: u32, used: u64) {
        if !self.heap.is_empty() {
            self.heap.push(Reverse((used, member)));
        }
    }

    /// The member with the least use, the first of equals.
    pub(super) fn find(
        &mut self,
        all: impl Iterator<Item = (u64, u32)>,
        used: impl Fn(u32) -> u64,
    ) -> Option<u32> {
        if self.heap.is_empty() {
            self.heap = all.map(Reverse).collect::<Vec<_>>().into();
        }
        loop {
            let mut top = self.heap.peek_mut()?;
            let Reverse((key, member)) = *top;
            if key == used(member) {
                return Some(member);
            }
            top.0.0 = used(member);
        }
    }
}
