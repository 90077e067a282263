//! Budgets, as users write them.

use core::time::Duration;

use super::{Cadence, Limit, LimitError};
use crate::Timestamp;

/// A number of units in each window of time: a minute, an hour, a calendar day or month.
///
/// As a limit it is a hard quota: a request passes only if all of its cost is left. As a token budget
/// ([`tokens`](Self::tokens)), which streams debit as they go, the debit that crosses the edge passes and counts in full.
///
/// ```
/// use throttlekit_core::rate::{Budget, Limit};
///
/// let daily = Limit::try_from(Budget::per_day(10_000))?;
/// assert_eq!(daily.units(), 10_000);
/// # Ok::<(), throttlekit_core::rate::LimitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    units: u64,
    cadence: Cadence,
}

impl Budget {
    /// `units` in each window of this cadence.
    pub const fn new(units: u64, cadence: Cadence) -> Self {
        Self { units, cadence }
    }

    /// `units` in each window of this length, aligned to the epoch.
    pub const fn per(units: u64, window: Duration) -> Self {
        Self::new(units, Cadence::Every { length: window, anchor: Timestamp::EPOCH })
    }

    /// `units` a minute.
    pub const fn per_minute(units: u64) -> Self {
        Self::per(units, Duration::from_secs(60))
    }

    /// `units` an hour.
    pub const fn per_hour(units: u64) -> Self {
        Self::per(units, Duration::from_secs(3600))
    }

    /// `units` a calendar day, UTC.
    pub const fn per_day(units: u64) -> Self {
        Self::new(units, Cadence::Day { utc_offset_minutes: 0 })
    }

    /// `units` a calendar month, UTC.
    pub const fn per_month(units: u64) -> Self {
        Self::new(units, Cadence::Month { utc_offset_minutes: 0 })
    }

    /// `units` in all: they never come back.
    pub const fn total(units: u64) -> Self {
        Self::new(units, Cadence::TOTAL)
    }

    /// Returns the token budget: the debit that crosses the edge passes and counts in full.
    pub fn tokens(self) -> Result<Limit, LimitError> {
        Limit::budget(self.units, self.cadence)
    }

    /// Returns the number of units in each window.
    pub const fn units(&self) -> u64 {
        self.units
    }

    /// Returns the windows.
    pub const fn cadence(&self) -> Cadence {
        self.cadence
    }
}

/// A hard quota: a request passes only if all of its cost is left.
impl TryFrom<Budget> for Limit {
    type Error = LimitError;

    fn try_from(budget: Budget) -> Result<Self, LimitError> {
        Self::quota(budget.units, budget.cadence)
    }
}
