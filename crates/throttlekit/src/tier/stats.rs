//! What two tiers have done.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a limiter of two tiers has done since it was made. What the node answers by itself is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierStats {
    /// Asks that went to the store one by one.
    pub strict: u64,
    /// Requests for units.
    pub leases: u64,
    /// Requests that got no answer.
    pub failures: u64,
    /// Units lent to this node.
    pub units_lent: u64,
    /// Of these, units that had died when they arrived.
    pub units_lapsed: u64,
    /// Of these, units that it gave back.
    pub units_returned: u64,
    /// Calls to the store that gave units back.
    pub returns: u64,
}

impl TierStats {
    /// Calls to the store in all.
    pub fn store_calls(&self) -> u64 {
        self.strict + self.leases + self.returns
    }
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) strict: AtomicU64,
    pub(super) leases: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) units_lent: AtomicU64,
    pub(super) units_lapsed: AtomicU64,
    pub(super) units_returned: AtomicU64,
    pub(super) returns: AtomicU64,
}

impl Counters {
    pub(super) fn read(&self) -> TierStats {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        TierStats {
            strict: read(&self.strict),
            leases: read(&self.leases),
            failures: read(&self.failures),
            units_lent: read(&self.units_lent),
            units_lapsed: read(&self.units_lapsed),
            units_returned: read(&self.units_returned),
            returns: read(&self.returns),
        }
    }
}
