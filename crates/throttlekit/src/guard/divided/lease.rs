//! Expiry of this node's share, as its threads see it.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use throttlekit_core::Timestamp;

use crate::sync::AtomicU64;

/// The unbroken sequence of grants under which work was admitted.
///
/// Each grant of a row arrived before the previous one expired, so the others have kept this node's slots reserved all
/// along. When a row has broken they may have reassigned them, and work that was admitted under it must not continue
/// under the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row(u64);

/// Expiry of the last grant, and its row.
///
/// An admission reads the row, takes a slot, then checks whether the row [`stands`](Self::stands). The one task that
/// receives grants applies a new share, then begins a row if the last has broken, then moves the expiry. So a slot that
/// was taken under the share of a broken row is never used under the next: a thread that sees the new expiry sees the
/// new row.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Lease {
    row: AtomicU64,
    dies_nanos: AtomicU64,
}

impl Lease {
    /// Creates a lease without a grant.
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

    /// Checks whether work that was admitted under this row may continue at `now`.
    #[inline(always)]
    pub(super) fn stands(&self, row: Row, now: Timestamp) -> bool {
        now < self.dies() && self.row() == row
    }

    /// Records a grant that expires at `dies`; `broken` if the previous one had expired. Its share is already applied.
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
    fn a_row_is_valid_until_its_expiry_and_not_under_the_next_lease() {
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
