//! What a budget has done.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a [`TokenBudget`](super::TokenBudget) has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetStats {
    /// Streams open now.
    pub open: u64,
    /// Streams that were admitted.
    pub opened: u64,
    /// Streams that were denied.
    pub denied: u64,
    /// Calls to the store that debited.
    pub debits: u64,
    /// Calls to the store that gave tokens back.
    pub returns: u64,
    /// Tokens that were set aside.
    pub tokens_reserved: u64,
    /// Of these, tokens that went back.
    pub tokens_returned: u64,
    /// Streams that fell silent while tokens were set aside for them.
    pub silenced: u64,
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) opened: AtomicU64,
    pub(super) denied: AtomicU64,
    pub(super) debits: AtomicU64,
    pub(super) returns: AtomicU64,
    pub(super) tokens_reserved: AtomicU64,
    pub(super) tokens_returned: AtomicU64,
    pub(super) silenced: AtomicU64,
}

impl Counters {
    pub(super) fn read(&self, open: usize) -> BudgetStats {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        BudgetStats {
            open: open as u64,
            opened: read(&self.opened),
            denied: read(&self.denied),
            debits: read(&self.debits),
            returns: read(&self.returns),
            tokens_reserved: read(&self.tokens_reserved),
            tokens_returned: read(&self.tokens_returned),
            silenced: read(&self.silenced),
        }
    }
}
