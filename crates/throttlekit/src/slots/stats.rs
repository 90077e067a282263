//! What slots have done.

counters! {
    /// What a [`SharedSlots`](super::SharedSlots) has done since it was made.
    pub struct SlotStats, counted by Counters {
        /// Asks that were admitted.
        admitted,
        /// Asks that were denied.
        denied,
        /// Calls to the store that beat.
        flights,
        /// Beats in them.
        beats,
        /// Beats that were told that the lease is lost.
        lost,
        /// Slots whose deadline passed while they were held.
        fenced,
        /// Slots that were given back.
        released,
        /// Releases that the store did not answer; those come back when their leases are over.
        lapsed,
        /// Keepers that were started. More than one: an earlier one ended.
        keepers,
    }
    beside {
        /// Slots that are held or asked for now.
        held: u64,
        /// Whether there is a renewer now that is driven: its last round began within a quarter of a life. Where slots are
        /// held and there is none, nobody beats for them.
        keeper_alive: bool,
    }
}
