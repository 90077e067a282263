//! Statistics of leasing.

counters! {
    /// Statistics of leasing since the limiter was created. Decisions of the node itself are not counted.
    #[non_exhaustive]
    pub struct LeaseStats, counted by Counters {
        /// Requests that went to the store one by one.
        strict,
        /// Lease requests.
        leases,
        /// Lease requests without a response.
        failures,
        /// Units lent to this node.
        units_lent,
        /// Of these, units that had expired when they arrived.
        units_lapsed,
        /// Of these, units that it gave back.
        units_returned,
        /// Calls to the store that gave units back.
        returns,
    }
}

impl LeaseStats {
    /// Returns the number of calls to the store in all.
    pub fn store_calls(&self) -> u64 {
        self.strict + self.leases + self.returns
    }
}
