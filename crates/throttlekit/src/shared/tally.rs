//! How many answers there were of each kind.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Guarantee;

/// How many answers there were of each kind since the limiter was made, and how many asks ended in an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// [`Guarantee::Exact`].
    pub exact: u64,
    /// [`Guarantee::Bounded`].
    pub bounded: u64,
    /// [`Guarantee::Local`].
    pub local: u64,
    /// [`Guarantee::Open`].
    pub open: u64,
    /// [`Guarantee::Closed`].
    pub closed: u64,
    /// No answer: the store is set up wrongly or a key holds something foreign.
    pub errors: u64,
}

#[derive(Default)]
pub(crate) struct Tallies {
    exact: AtomicU64,
    bounded: AtomicU64,
    local: AtomicU64,
    open: AtomicU64,
    closed: AtomicU64,
    errors: AtomicU64,
}

impl Tallies {
    pub(crate) fn count(&self, guarantee: Guarantee) {
        let counter = match guarantee {
            Guarantee::Exact => &self.exact,
            Guarantee::Bounded(_) => &self.bounded,
            Guarantee::Local => &self.local,
            Guarantee::Open => &self.open,
            Guarantee::Closed => &self.closed,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_error(&self) {
        self.errors.fetch_add(1, Relaxed);
    }

    pub(crate) fn read(&self) -> Tally {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        Tally {
            exact: read(&self.exact),
            bounded: read(&self.bounded),
            local: read(&self.local),
            open: read(&self.open),
            closed: read(&self.closed),
            errors: read(&self.errors),
        }
    }
}
