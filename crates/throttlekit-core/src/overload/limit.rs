//! The parameters of a limit that is counted in a sketch.

use core::fmt;
use core::time::Duration;

use super::ShapeError;
use crate::time::nanos;
use crate::{Cost, Decision, Retry, Timestamp};

/// `n` units for each key in each window. Windows are aligned to the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SketchLimit {
    units: u32,
    length: u64,
}

/// Reason why a limit cannot be counted in a sketch.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum SketchError {
    /// The limit is zero, or above [`SketchLimit::UNITS_MAX`].
    Units(u64),
    /// The window is zero or longer than [`SketchLimit::LENGTH_MAX`].
    Length(Duration),
    /// The sketch cannot have that size.
    Shape(ShapeError),
    /// More than [`FloodWindow::HOT_MAX`](super::FloodWindow::HOT_MAX) keys counted individually, or none.
    Hot(usize),
}

impl SketchLimit {
    /// The most units of one key in a window: one bit of a counter is not for its count.
    pub const UNITS_MAX: u32 = (1 << 31) - 1;
    /// The longest window: a year.
    pub const LENGTH_MAX: Duration = Duration::from_secs(366 * 86_400);
    /// The last instant with its own window, in the year 2262. Later the last window continues: it fails closed.
    pub const INSTANT_MAX: Timestamp = Timestamp::from_nanos((1 << 63) - 1);

    /// `units` in each window of `length`.
    pub fn new(units: u64, length: Duration) -> Result<Self, SketchError> {
        let range = 1..=Self::UNITS_MAX;
        let checked = u32::try_from(units).ok().filter(|units| range.contains(units));
        let checked = checked.ok_or(SketchError::Units(units))?;
        if length.is_zero() || length > Self::LENGTH_MAX {
            return Err(SketchError::Length(length));
        }
        Ok(Self { units: checked, length: nanos(length) })
    }

    /// The most units of one key in a window.
    pub fn units(&self) -> u32 {
        self.units
    }

    /// Returns the length of a window.
    pub fn length(&self) -> Duration {
        Duration::from_nanos(self.length)
    }

    /// Returns the end of the window that `now` lies in; at most [`INSTANT_MAX`](Self::INSTANT_MAX).
    pub fn ends_at(&self, now: Timestamp) -> Timestamp {
        let begun = now.as_nanos() - now.as_nanos() % self.length;
        Timestamp::from_nanos(begun.saturating_add(self.length)).min(Self::INSTANT_MAX)
    }

    /// Checks whether a window that ends at `ends_at` is over: never, after [`INSTANT_MAX`](Self::INSTANT_MAX).
    #[inline(always)]
    pub fn is_over(ends_at: Timestamp, now: Timestamp) -> bool {
        now >= ends_at && ends_at < Self::INSTANT_MAX
    }

    /// Returns the count after a request of `cost` by a key with this count, if that is within the limit.
    #[inline(always)]
    pub fn next(&self, used: u32, cost: Cost) -> Option<u32> {
        // A count never exceeds the limit, but a saturated or handed-down one may stand at it.
        let left = self.units.saturating_sub(used);
        if cost <= u64::from(left) { Some(used + cost as u32) } else { None }
    }

    /// The decision that leaves a key at this count, in the window that ends at `ends_at`.
    #[inline(always)]
    pub fn allowed(&self, used: u32, ends_at: Timestamp) -> Decision {
        Decision {
            allowed: true,
            limit: u64::from(self.units),
            remaining: u64::from(self.units.saturating_sub(used)),
            reset_at: ends_at,
            retry_after: Retry::Now,
        }
    }

    /// The decision on a request for which this count leaves too few units.
    #[cold]
    pub fn denied(&self, used: u32, cost: Cost, ends_at: Timestamp, now: Timestamp) -> Decision {
        let never = cost > u64::from(self.units);
        let retry_after = if never { Retry::Never } else { Retry::after(ends_at.since(now)) };
        Decision { allowed: false, retry_after, ..self.allowed(used, ends_at) }
    }
}

impl From<ShapeError> for SketchError {
    fn from(error: ShapeError) -> Self {
        Self::Shape(error)
    }
}

impl fmt::Display for SketchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Units(units) => {
                write!(
                    f,
                    "invalid limit of {units} units in a sketch: expected 1 to {}; count larger units",
                    SketchLimit::UNITS_MAX
                )
            }
            Self::Length(length) => {
                write!(f, "invalid window {length:?} in a sketch: expected 1 ns to 366 days")
            }
            Self::Shape(error) => error.fmt(f),
            Self::Hot(keys) => {
                let most = super::FloodWindow::<super::Plain>::HOT_MAX;
                write!(f, "invalid number of exactly counted keys {keys}: expected 1 to {most}")
            }
        }
    }
}

impl core::error::Error for SketchError {}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn windows_are_half_open_and_aligned() {
        let limit = SketchLimit::new(5, MINUTE).unwrap();
        let at = |ms| Timestamp::from_millis(ms);
        assert_eq!(limit.ends_at(at(0)), at(60_000));
        assert_eq!(limit.ends_at(at(59_999)), at(60_000));
        assert_eq!(limit.ends_at(at(60_000)), at(120_000));
        assert!(
            SketchLimit::is_over(at(60_000), at(60_000)) && !SketchLimit::is_over(at(60_000), at(59_999))
        );
    }

    #[test]
    fn the_last_window_does_not_end() {
        let limit = SketchLimit::new(5, MINUTE).unwrap();
        let end = limit.ends_at(Timestamp::MAX);
        assert_eq!(end, SketchLimit::INSTANT_MAX);
        assert!(!SketchLimit::is_over(end, Timestamp::MAX));
    }

    #[test]
    fn invalid_limits_are_rejected() {
        assert_eq!(SketchLimit::new(0, MINUTE), Err(SketchError::Units(0)));
        assert_eq!(SketchLimit::new(1 << 31, MINUTE), Err(SketchError::Units(1 << 31)));
        assert!(SketchLimit::new(1, Duration::ZERO).is_err() && SketchLimit::new(1, Duration::MAX).is_err());
        assert!(SketchLimit::new(u64::from(SketchLimit::UNITS_MAX), MINUTE).is_ok());
    }

    #[test]
    fn a_full_counter_denies_and_does_not_wrap() {
        let limit = SketchLimit::new(u64::from(SketchLimit::UNITS_MAX), MINUTE).unwrap();
        assert_eq!(limit.next(SketchLimit::UNITS_MAX, 1), None);
        assert_eq!(limit.next(SketchLimit::UNITS_MAX - 1, 1), Some(SketchLimit::UNITS_MAX));
        assert_eq!(limit.next(0, u64::MAX), None);
        assert_eq!(limit.next(SketchLimit::UNITS_MAX, 0), Some(SketchLimit::UNITS_MAX));
    }
}
