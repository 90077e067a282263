//! Statistics of a shared limiter.

use super::Tally;
use super::leasing::LeaseStats;

/// Statistics of a [`SharedLimiter`](crate::SharedLimiter) since it was created. Decisions from leased units are not
/// counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedLimiterStats {
    /// Answers by guarantee, and errors.
    pub answers: Tally,
    /// Statistics of leasing; zero in the strict mode.
    pub leasing: LeaseStats,
}
