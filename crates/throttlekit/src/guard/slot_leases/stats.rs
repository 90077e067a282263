//! Statistics of slots on a store.

counters! {
    /// Statistics of a [`SharedGuard`](crate::SharedGuard) with slots on a store, since it was created.
    pub struct SlotStats, counted by Counters {
        /// Requests that were admitted.
        admitted,
        /// Requests that were denied.
        denied,
        /// Calls to the store with heartbeats.
        flights,
        /// Heartbeats in them.
        heartbeats,
        /// Heartbeats for which the store reported that the lease is lost.
        lost,
        /// Slots whose deadline passed while they were held.
        fenced,
        /// Slots that were released.
        released,
        /// Releases without a response of the store; those slots are free when their leases expire.
        lapsed,
        /// Renewers that were started. More than one: an earlier one ended.
        renewers,
    }
    beside {
        /// Slots that are held or requested now.
        held: u64,
        /// True if a renewer is running now: its last round began within a quarter of a lifetime. If slots are held and
        /// there is none, no heartbeats are sent for them.
        renewer_alive: bool,
    }
}
