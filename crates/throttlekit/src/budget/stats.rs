//! Counters of a budget.

counters! {
    /// Counters of a [`TokenBudget`](super::TokenBudget) since it was created.
    pub struct BudgetStats, counted by Counters {
        /// Streams that were admitted.
        opened,
        /// Streams that were denied.
        denied,
        /// Calls to the store that debited.
        debits,
        /// Calls to the store that returned tokens.
        returns,
        /// Tokens that were reserved.
        tokens_reserved,
        /// Of these, tokens that were returned.
        tokens_returned,
        /// Streams that became idle while tokens were reserved for them.
        silenced,
    }
    beside {
        /// Streams open now.
        open: u64,
    }
}
