//! What two tiers have done.

counters! {
    /// What a limiter of two tiers has done since it was made. What the node answers by itself is not counted.
    pub struct TierStats, counted by Counters {
        /// Asks that went to the store one by one.
        strict,
        /// Requests for units.
        leases,
        /// Requests that got no answer.
        failures,
        /// Units lent to this node.
        units_lent,
        /// Of these, units that had died when they arrived.
        units_lapsed,
        /// Of these, units that it gave back.
        units_returned,
        /// Calls to the store that gave units back.
        returns,
    }
}

impl TierStats {
    /// Calls to the store in all.
    pub fn store_calls(&self) -> u64 {
        self.strict + self.leases + self.returns
    }
}
