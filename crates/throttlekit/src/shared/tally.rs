//! Counters of answers by guarantee.

use std::sync::atomic::Ordering::Relaxed;

use crate::Guarantee;

counters! {
    /// Number of answers by guarantee since the limiter was created, and of requests that ended in an error.
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
        /// No answer: the store is misconfigured or a key holds foreign data.
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
