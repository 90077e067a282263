//! Counting in windows: fixed, anchored or by the calendar.

use core::time::Duration;

use super::calendar::{Cadence, Grid};
use super::pace::{LimitError, checked_units};
use super::{Rule, never};
use crate::{Cost, Decision, Retry, Timestamp};

/// At most `limit` units in each window. Across a boundary that can be twice the limit within one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub(super) limit: u64,
    pub(super) grid: Grid,
}

/// How many units a key used in which window. Ordered by window, then by use: later and fuller is greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count {
    /// The window's number on its limit's grid.
    pub window: u64,
    /// Units used in it.
    pub used: u64,
}

impl Window {
    /// `limit` units in each window of the cadence.
    pub fn new(limit: u64, cadence: Cadence) -> Result<Self, LimitError> {
        Ok(Self { limit: checked_units(limit)?, grid: Grid::of(cadence)? })
    }

    /// The most units that ever pass at once.
    pub fn units(&self) -> u64 {
        self.limit
    }

    /// How long a window is; a calendar month counts as 31 days.
    pub fn period(&self) -> Duration {
        self.grid.nominal_length()
    }

    /// The count that holds at `now`: a window that has begun is never left for an earlier one.
    fn current(&self, state: Count, now: Timestamp) -> Count {
        state.max(Count { window: self.grid.index(now), used: 0 })
    }

    /// The answer for `cost` more units on top of `count`, the count that holds at `now`.
    pub(super) fn answer(&self, count: Count, cost: Cost, now: Timestamp) -> Decision {
        let left = self.limit.saturating_sub(count.used);
        let end = self.grid.end(count.window);
        let denied = Decision {
            allowed: false,
            limit: self.limit,
            remaining: left,
            reset_at: end,
            retry_after: Retry::after(end.since(now)),
        };
        if cost > self.limit {
            never(denied)
        } else if cost > left {
            denied
        } else {
            Decision { allowed: true, remaining: left - cost, retry_after: Retry::Now, ..denied }
        }
    }
}

impl Rule for Window {
    type State = Count;

    fn decide(&self, state: &Count, cost: Cost, now: Timestamp) -> Decision {
        self.answer(self.current(*state, now), cost, now)
    }

    fn charge(&self, state: &mut Count, cost: Cost, now: Timestamp) {
        if cost == 0 {
            return;
        }
        *state = self.current(*state, now);
        state.used += cost;
    }

    fn idle_at(&self, state: &Count) -> Timestamp {
        if state.used == 0 { Timestamp::EPOCH } else { self.grid.end(state.window) }
    }

    fn join(&self, state: &mut Count, other: &Count) {
        *state = (*state).max(*other);
    }
}
