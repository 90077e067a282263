//! Tokens that calls of a key reserved and did not take, for its next calls.
//!
//! A rate refunds only what has not come back by itself since the charge: after 30 ms nothing of most calls. So the
//! difference between an estimate and the tokens that a call took is not returned to the limits, but reserved less by the
//! next calls. On average a call is charged what it takes, whatever the estimates are.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::keyed::KeyedUpstream;
use crate::sync::AtomicU64;

/// The credit of one key in this process.
pub(super) struct Credit {
    tokens: AtomicU64,
    /// Most that is kept, which calls may then start beyond the ceiling at once.
    max: u64,
}

impl Credit {
    pub(super) fn new(max: u64) -> Self {
        Self { tokens: AtomicU64::new(0), max }
    }

    /// Takes the credit for a call, which is charged at least one token.
    fn take(&self, estimate: u64) -> u64 {
        let most = estimate.saturating_sub(1);
        if most == 0 || self.tokens.load(Relaxed) == 0 {
            return 0;
        }
        let less = |tokens: u64| Some(tokens - tokens.min(most));
        self.tokens.fetch_update(Relaxed, Relaxed, less).map_or(0, |tokens| tokens.min(most))
    }

    /// Adds to the credit. Returns how much fits.
    pub(super) fn add(&self, tokens: u64) -> u64 {
        if tokens == 0 || self.max == 0 {
            return 0;
        }
        let more = |credit: u64| Some(credit.saturating_add(tokens).min(self.max).max(credit));
        let before = self.tokens.fetch_update(Relaxed, Relaxed, more).unwrap_or(self.max);
        tokens.min(self.max.saturating_sub(before))
    }
}

/// Credit that a call has taken. Returns if the call is not made.
pub(super) struct Taken {
    pub(super) keyed: Arc<KeyedUpstream>,
    pub(super) tokens: u64,
}

impl Taken {
    pub(super) fn of(keyed: Arc<KeyedUpstream>, estimate: u64) -> Self {
        let tokens = keyed.credit.take(estimate);
        Self { keyed, tokens }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.keyed.credit.add(self.tokens);
    }
}

/// Returns the tokens to settle for a call that reserved this many beside its credit, and adds to the credit what it did
/// not take.
pub(super) fn settled(credit: &Credit, reserved: u64, taken: u64, actual: u64) -> u64 {
    let unused = reserved.saturating_add(taken).saturating_sub(actual);
    if unused == 0 {
        return actual.saturating_sub(taken);
    }
    reserved.saturating_sub(unused - credit.add(unused))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_tokens_are_those_of_the_next_calls() {
        let credit = Credit::new(1_000);
        assert_eq!(settled(&credit, 600, 0, 500), 600, "the charge stays");
        assert_eq!(credit.take(600), 100);
        assert_eq!(settled(&credit, 500, 100, 500), 500, "charged 500 and 100 before, took 500");
        assert_eq!(credit.take(600), 100);
        assert_eq!(settled(&credit, 500, 100, 900), 800, "more than the estimate is charged");
        assert_eq!(credit.take(600), 0);
    }

    #[test]
    fn what_does_not_fit_is_refunded() {
        let credit = Credit::new(100);
        assert_eq!(settled(&credit, 600, 0, 450), 550);
        assert_eq!(settled(&credit, 600, 0, 450), 450);
        assert_eq!(credit.take(50), 49, "one token is charged");
        assert_eq!(credit.take(1_000), 51);
        let none = Credit::new(0);
        assert_eq!(settled(&none, 600, 0, 450), 450);
        assert_eq!(none.take(600), 0);
    }
}
