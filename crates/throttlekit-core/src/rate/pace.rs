//! Rates: as users write them, and as exact arithmetic needs them.

use core::fmt;
use core::time::Duration;

use super::{BUDGET_MAX, UNITS_MAX};
use crate::time::nanos;

/// The longest period a rate or window may have: a hundred years.
const PERIOD_MAX: u64 = 100 * 366 * 86_400 * 1_000_000_000;

/// `n` units per period, with a burst.
///
/// A plain description; an invalid one is rejected when it becomes a [`Limit`](super::Limit).
///
/// ```
/// use core::time::Duration;
/// use throttlekit_core::rate::Rate;
///
/// let api = Rate::per_second(100).burst(20);
/// let mail = Rate::every(Duration::from_secs(90));
/// let odd = Rate::per(7, Duration::from_secs(60)); // does not divide evenly, does not drift
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub(crate) units: u64,
    pub(crate) period: Duration,
    pub(crate) burst: Option<u64>,
}

impl Rate {
    /// `units` per `period`. Default burst: `units`; see [`burst`](Self::burst).
    pub const fn per(units: u64, period: Duration) -> Self {
        Self { units, period, burst: None }
    }

    /// `units` a second.
    pub const fn per_second(units: u64) -> Self {
        Self::per(units, Duration::from_secs(1))
    }

    /// `units` a minute.
    pub const fn per_minute(units: u64) -> Self {
        Self::per(units, Duration::from_secs(60))
    }

    /// `units` an hour.
    pub const fn per_hour(units: u64) -> Self {
        Self::per(units, Duration::from_secs(3600))
    }

    /// One unit every `period`, one at a time.
    pub const fn every(period: Duration) -> Self {
        Self::per(1, period)
    }

    /// Sets the number of units that may pass at once after an idle period.
    pub const fn burst(self, units: u64) -> Self {
        Self { burst: Some(units), ..self }
    }
}

/// Reason why a description is not a valid limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// A limit, burst or capacity is zero or above [`UNITS_MAX`].
    Units(u64),
    /// A token budget is zero or above [`BUDGET_MAX`].
    Budget(u64),
    /// A period or window is zero or longer than a hundred years.
    Period(Duration),
    /// A sliding window has no sub-windows, too many, or more than it has nanoseconds.
    Buckets(u32),
    /// A sliding log holds at most this many entries; use a sliding window for more.
    LogTooLong(u64),
    /// A UTC offset lies beyond 14 hours.
    UtcOffset(i32),
    /// A period by months begins on no day of the month.
    MonthStart(u8),
    /// The offsets of a time zone are missing, not in order of time, or further than a day from UTC.
    ZoneTable,
    /// The limit's parameters are too fine or too large for a shared store; names the parameter.
    NotShareable(&'static str),
    /// Limits do not make a valid policy together; states the reason.
    Policy(&'static str),
    /// The rule cannot lend units for that long.
    NotLeasable,
    /// Units with this lifetime expire before they can be spent.
    LeaseTooShort(Duration),
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Units(n) => write!(f, "invalid limit, burst or capacity {n}: expected 1 to {UNITS_MAX}"),
            Self::Budget(n) => write!(f, "invalid token budget {n}: expected 1 to {BUDGET_MAX}"),
            Self::Period(p) => write!(f, "invalid period or window {p:?}: expected 1 ns to 100 years"),
            Self::Buckets(n) => {
                write!(
                    f,
                    "invalid number of buckets {n}: expected 1 to 1000 in a sliding window, each at least 1 \
                     ns"
                )
            }
            Self::LogTooLong(n) => {
                write!(f, "sliding log too long: {n} entries per key, at most 10000; use a sliding window")
            }
            Self::UtcOffset(m) => write!(f, "invalid UTC offset of {m} minutes: expected -840 to 840"),
            Self::MonthStart(day) => write!(f, "invalid day of the month {day}: expected 1 to 31"),
            Self::ZoneTable => f.write_str(
                "invalid time zone table: expected at least one offset, in order of time, each within a day \
                 of UTC",
            ),
            Self::NotShareable(why) => write!(f, "a shared store cannot represent this limit: {why}"),
            Self::Policy(why) => write!(f, "invalid combination of limits: {why}"),
            Self::LeaseTooShort(lives) => write!(
                f,
                "units leased for {lives:?} expire before they can be spent: use a longer hold or window, \
                 or a finer clock"
            ),
            Self::NotLeasable => f.write_str(
                "this limit cannot be leased for that time: windows are leased for their window, smooth \
                 rates for a hold time; use strict mode for shapers, sliding windows and sliding logs",
            ),
        }
    }
}

impl core::error::Error for LimitError {}

/// Allows a value that already is a limit where a description is expected.
impl From<core::convert::Infallible> for LimitError {
    fn from(never: core::convert::Infallible) -> Self {
        match never {}
    }
}

pub(crate) fn checked_units(units: u64) -> Result<u64, LimitError> {
    if (1..=UNITS_MAX).contains(&units) { Ok(units) } else { Err(LimitError::Units(units)) }
}

pub(super) fn checked_period(period: Duration) -> Result<u64, LimitError> {
    let ns = nanos(period);
    if (1..=PERIOD_MAX).contains(&ns) { Ok(ns) } else { Err(LimitError::Period(period)) }
}

/// A rate without rounding: `ticks_per_unit / ticks_per_nano` nanoseconds a unit, in lowest terms.
///
/// In ticks of 1/`ticks_per_nano` ns both a unit and a nanosecond are whole numbers, so 3/s, 7/min and
/// 1,000,001/s are as exact as 10/s, and no remainder is ever dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    pub(super) ticks_per_unit: u64,
    pub(super) ticks_per_nano: u64,
}

impl Pace {
    pub(super) fn of(rate: Rate) -> Result<Self, LimitError> {
        let units = checked_units(rate.units)?;
        let period = checked_period(rate.period)?;
        let common = gcd(period, units);
        Ok(Self { ticks_per_unit: period / common, ticks_per_nano: units / common })
    }
}

pub(super) const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paces_are_exact_and_in_lowest_terms() {
        let pace = |rate| Pace::of(rate).map(|p| (p.ticks_per_unit, p.ticks_per_nano));
        assert_eq!(pace(Rate::per_second(10)), Ok((100_000_000, 1)));
        assert_eq!(pace(Rate::per_second(3)), Ok((1_000_000_000, 3)));
        assert_eq!(pace(Rate::per_minute(7)), Ok((60_000_000_000, 7)));
        assert_eq!(pace(Rate::per_second(1_000_001)), Ok((1_000_000_000, 1_000_001)));
        assert_eq!(pace(Rate::per_second(1_000_000_000)), Ok((1, 1)));
        assert_eq!(pace(Rate::per_second(2_000_000_000)), Ok((1, 2)));
    }

    #[test]
    fn invalid_limits_are_rejected() {
        assert_eq!(Pace::of(Rate::per_second(0)), Err(LimitError::Units(0)));
        assert_eq!(Pace::of(Rate::per(1, Duration::ZERO)), Err(LimitError::Period(Duration::ZERO)));
        assert!(Pace::of(Rate::per(1, Duration::MAX)).is_err());
        assert!(Pace::of(Rate::per_second(UNITS_MAX + 1)).is_err());
    }
}
