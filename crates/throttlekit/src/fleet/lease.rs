//! Until when the share of this node may be used, as its threads see it.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use throttlekit_core::Timestamp;

use crate::sync::AtomicU64;

/// Which unbroken row of grants work was let in under.
///
/// Each grant of a row came before the one before it had died, so the others have kept this node's slots all along. When
/// a row has broken they may have given them away, and what was let in under it must not go on under the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row(u64);

/// When the last grant dies, and of which row it is.
///
/// Whoever lets work in reads the row, takes a slot, then asks whether the row [`stands`](Self::stands). The one task that
/// grants puts a new share in force, then begins a row if the last has broken, then moves the end. So a slot that was
/// taken under the share of a broken row is never used under the next: whoever sees the new end sees the new row.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Lease {
    row: AtomicU64,
    dies_nanos: AtomicU64,
}

impl Lease {
    /// Nothing was granted.
    pub(super) fn new() -> Self {
        Self { row: AtomicU64::new(0), dies_nanos: AtomicU64::new(0) }
    }

    #[inline(always)]
    pub(super) fn row(&self) -> Row {
        Row(self.row.load(Acquire))
    }

    #[inline(always)]
    pub(super) fn dies(&self) -> Timestamp {
        Timestamp::from_nanos(self.dies_nanos.load(Acquire))
    }

    /// Whether what was let in under this row may go on at `now`.
    #[inline(always)]
    pub(super) fn stands(&self, row: Row, now: Timestamp) -> bool {
        now < self.dies() && self.row() == row
    }

    /// A grant came that dies then; `broken` if the one before it had died. Its share is in force already.
    pub(super) fn extend(&self, dies: Timestamp, broken: bool) {
        if broken {
            self.row.fetch_add(1, AcqRel);
        }
        self.dies_nanos.store(dies.as_nanos(), Release);
    }
}

#[cfg(all(test, not(loom)))]
mod unit {
    use super::*;

    #[test]
    fn a_row_stands_until_it_dies_and_not_again_under_the_next() {
        let (lease, at) = (Lease::new(), Timestamp::from_millis);
        assert!(!lease.stands(lease.row(), at(0)));
        lease.extend(at(10), true);
        let row = lease.row();
        assert!(lease.stands(row, at(9)) && !lease.stands(row, at(10)));
        lease.extend(at(20), false);
        assert!(lease.stands(row, at(19)));
        lease.extend(at(30), true);
        assert!(!lease.stands(row, at(11)) && lease.stands(lease.row(), at(11)));
    }
}
