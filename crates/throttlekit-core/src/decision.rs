//! The one answer, and how answers combine.

use core::time::Duration;

use crate::Timestamp;
use crate::time::millis_ceil;

/// The answer to one ask.
///
/// A denial is an answer, never an error. [`combine`] folds the answers of several limits into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decision {
    /// Whether the ask may proceed.
    pub allowed: bool,
    /// The most units this limit ever lets through at once.
    pub limit: u64,
    /// Units left after this answer. May be above zero on a denial: they were fewer than the ask's cost.
    pub remaining: u64,
    /// When the whole limit is free again if nobody asks meanwhile.
    pub reset_at: Timestamp,
    /// How long to wait: before asking again after a denial, before starting when a shaper allowed the ask.
    pub retry_after: Retry,
}

/// What a caller should do about waiting. Ordered from the shortest wait to the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Retry {
    /// No wait.
    Now,
    /// The same ask passes after exactly this long, if nobody else asks meanwhile.
    After(Duration),
    /// The same ask passes when someone gives back a slot or what is set aside; no clock tells when.
    OnRelease,
    /// The same ask can never pass: it costs more than the limit ever holds.
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

/// The answer of a limit that never binds: the neutral element of [`combine`].
pub const ALLOW_FULL: Decision = Decision {
    allowed: true,
    limit: u64::MAX,
    remaining: u64::MAX,
    reset_at: Timestamp::EPOCH,
    retry_after: Retry::Now,
};

/// One answer for two limits that must both allow.
///
/// Associative, commutative and idempotent with identity [`ALLOW_FULL`] (law `algebra`), so the order of the
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

/// What a key could spend, now and later, if nobody else asks meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// How many asks of the given cost pass right now.
    pub spendable_now: u64,
    /// When one more unit is there; now, if nothing is missing.
    pub next_replenish_at: Timestamp,
    /// When every unit is back.
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
