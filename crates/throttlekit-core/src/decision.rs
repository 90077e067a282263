//! The decision type, and how decisions combine.

use core::time::Duration;

use crate::Timestamp;
use crate::time::millis_ceil;

/// The decision about one request.
///
/// A denial is a decision, never an error. [`combine`] merges the decisions of several limits into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decision {
    /// `true` if the request may proceed.
    pub allowed: bool,
    /// Largest number of units this limit ever admits at once.
    pub limit: u64,
    /// Units left after this decision. May be above zero on a denial: fewer were left than the request costs.
    pub remaining: u64,
    /// Time at which the whole limit is free again if no further request arrives.
    pub reset_at: Timestamp,
    /// Wait before retrying after a denial, or before starting when a shaper allowed the request.
    pub retry_after: Retry,
}

/// Advice on waiting. Ordered from the shortest wait to the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Retry {
    /// No wait.
    Now,
    /// The same request passes after exactly this duration, if no other request arrives meanwhile.
    After(Duration),
    /// The same request passes when a slot or a reservation is released; no clock determines when.
    OnRelease,
    /// The same request can never pass: it costs more than the limit ever holds.
    Never,
}

impl Retry {
    /// A wait of this length; zero is [`Retry::Now`].
    pub const fn after(wait: Duration) -> Self {
        if wait.is_zero() { Self::Now } else { Self::After(wait) }
    }

    /// The wait, where it is known.
    pub const fn wait(self) -> Option<Duration> {
        match self {
            Self::Now => Some(Duration::ZERO),
            Self::After(wait) => Some(wait),
            Self::OnRelease | Self::Never => None,
        }
    }

    /// The wait in milliseconds, rounded up, where it is known.
    pub fn wait_ms(self) -> Option<u64> {
        self.wait().map(millis_ceil)
    }
}

/// Decision of a limit that never binds: the neutral element of [`combine`].
pub const ALLOW_FULL: Decision = Decision {
    allowed: true,
    limit: u64::MAX,
    remaining: u64::MAX,
    reset_at: Timestamp::EPOCH,
    retry_after: Retry::Now,
};

/// Combines the decisions of two limits that must both allow.
///
/// Associative, commutative and idempotent with identity [`ALLOW_FULL`] (guarantee `algebra`), so the order of the
/// limits, their grouping and a repeated limit do not matter.
///
/// ```
/// use throttlekit_core::{ALLOW_FULL, Decision, combine};
///
/// let one: Decision = [ALLOW_FULL, ALLOW_FULL].into_iter().fold(ALLOW_FULL, combine);
/// assert!(one.allowed);
/// ```
#[inline]
pub fn combine(a: Decision, b: Decision) -> Decision {
    Decision {
        allowed: a.allowed && b.allowed,
        limit: a.limit.min(b.limit),
        remaining: a.remaining.min(b.remaining),
        reset_at: a.reset_at.max(b.reset_at),
        retry_after: a.retry_after.max(b.retry_after),
    }
}

/// Units that a key can spend, now and later, if no other request arrives meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// Number of requests of the given cost that pass right now.
    pub spendable_now: u64,
    /// Time at which one more unit is available; now, if nothing is missing.
    pub next_replenish_at: Timestamp,
    /// Time at which every unit is available again.
    pub full_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_ordered_from_now_to_never() {
        let second = Retry::after(Duration::from_secs(1));
        let minute = Retry::after(Duration::from_secs(60));
        assert!(Retry::Now < second && second < minute && minute < Retry::OnRelease);
        assert!(Retry::OnRelease < Retry::Never);
        assert_eq!(Retry::after(Duration::ZERO), Retry::Now);
    }
}
