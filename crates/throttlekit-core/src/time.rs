//! Time as an integer that callers pass in.

use core::fmt;
use core::ops::Add;
use core::time::Duration;

const NANOS_PER_MICRO: u64 = 1_000;
const NANOS_PER_MILLI: u64 = 1_000_000;

/// An instant: whole nanoseconds since the Unix epoch.
///
/// Reaches the year 2554. Sums saturate there, so an absurd wait becomes a far one and never an early one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(0);
    /// The last instant there is.
    pub const MAX: Self = Self(u64::MAX);

    /// The instant this many nanoseconds after the epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The instant this many microseconds after the epoch: the resolution of a shared store's clock.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(NANOS_PER_MICRO))
    }

    /// The instant this many milliseconds after the epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(NANOS_PER_MILLI))
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds since the epoch.
    pub const fn as_micros(self) -> u64 {
        self.0 / NANOS_PER_MICRO
    }

    /// Milliseconds since the epoch, rounded up: waiting until then is never too early.
    pub const fn as_millis_ceil(self) -> u64 {
        self.0.div_ceil(NANOS_PER_MILLI)
    }

    /// Time since `earlier`, or zero when that lies in the future.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(nanos(wait)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// Whole nanoseconds of a duration, saturating after 584 years.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Milliseconds of a duration, rounded up.
pub(crate) fn millis_ceil(duration: Duration) -> u64 {
    nanos(duration).div_ceil(NANOS_PER_MILLI)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_round_up_so_that_a_waiter_is_never_early() {
        assert_eq!(Timestamp::from_nanos(1_000_000).as_millis_ceil(), 1);
        assert_eq!(Timestamp::from_nanos(1_000_001).as_millis_ceil(), 2);
        assert_eq!(millis_ceil(Duration::from_nanos(1)), 1);
    }

    #[test]
    fn sums_saturate_and_differences_stop_at_zero() {
        let late = Timestamp::MAX + Duration::from_secs(1);
        assert_eq!(late, Timestamp::MAX);
        assert_eq!(Timestamp::EPOCH.since(late), Duration::ZERO);
    }
}
