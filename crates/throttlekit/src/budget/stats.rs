//! What a budget has done.

counters! {
    /// What a [`TokenBudget`](super::TokenBudget) has done since it was made.
    pub struct BudgetStats, counted by Counters {
        /// Streams that were admitted.
        opened,
        /// Streams that were denied.
        denied,
        /// Calls to the store that debited.
        debits,
        /// Calls to the store that gave tokens back.
        returns,
        /// Tokens that were set aside.
        tokens_reserved,
        /// Of these, tokens that went back.
        tokens_returned,
        /// Streams that fell silent while tokens were set aside for them.
        silenced,
    }
    beside {
        /// Streams open now.
        open: u64,
    }
}
