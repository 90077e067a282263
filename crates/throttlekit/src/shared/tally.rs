//! How many answers there were of each kind.

use std::sync::atomic::Ordering::Relaxed;

use crate::Guarantee;

counters! {
    /// How many answers there were of each kind since the limiter was made, and how many asks ended in an error.
    pub struct Tally, counted by Tallies {
        /// [`Guarantee::Exact`].
        exact,
        /// [`Guarantee::Bounded`].
        bounded,
        /// [`Guarantee::Local`].
        local,
        /// [`Guarantee::Open`].
        open,
        /// [`Guarantee::Closed`].
        closed,
        /// No answer: the store is set up wrongly or a key holds something foreign.
        errors,
    }
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
}
