//! Counting in windows, fixed, anchored or by the calendar: strict limits, and budgets that the last debit may cross.

use core::time::Duration;

use super::calendar::{Cadence, Grid};
use super::pace::{LimitError, checked_units};
use super::{Mark, Rule, Settle, UNITS_MAX};
use crate::{Cost, Decision, Forecast, Retry, Timestamp};

/// The largest token budget, and the largest debit of one: so a count never goes beyond [`UNITS_MAX`].
pub const BUDGET_MAX: u64 = 1 << 52;
const _: () = assert!(BUDGET_MAX - 1 + BUDGET_MAX == UNITS_MAX);

/// At most `limit` units in each window. Across a boundary that can be twice the limit within one length.
///
/// A [budget](Self::budget) also admits the debit that crosses its edge, and counts it in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub(super) limit: u64,
    pub(super) grid: Grid,
    /// `true` if a request passes while any unit is left, though it costs more.
    pub(super) crosses: bool,
}

/// Units that a key used, and the window. Ordered by window, then by use: later and fuller is greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Count {
    /// The window's number on its limit's grid.
    pub window: u64,
    /// Units used in it.
    pub used: u64,
}

impl Window {
    /// `limit` units in each window of the cadence.
    pub fn new(limit: u64, cadence: Cadence) -> Result<Self, LimitError> {
        Ok(Self { limit: checked_units(limit)?, grid: Grid::of(cadence)?, crosses: false })
    }

    /// A meter of tokens that are known only as they come: a debit passes while fewer than `budget` are used in the
    /// window, and is counted in full.
    ///
    /// So at most `budget + g − 1` are charged in a window where no debit is of more than `g` (guarantee `budget`), and
    /// exactly `budget` where each is of one.
    pub fn budget(budget: u64, cadence: Cadence) -> Result<Self, LimitError> {
        let fits = (1..=BUDGET_MAX).contains(&budget);
        let limit = if fits { budget } else { return Err(LimitError::Budget(budget)) };
        Ok(Self { limit, grid: Grid::of(cadence)?, crosses: true })
    }

    /// The units of a window; of a budget, those at which it is spent.
    pub fn units(&self) -> u64 {
        self.limit
    }

    /// Checks whether it is a [budget](Self::budget).
    pub fn is_budget(&self) -> bool {
        self.crosses
    }

    /// The largest cost of one request.
    pub fn cost_max(&self) -> Cost {
        if self.crosses { BUDGET_MAX } else { self.limit }
    }

    /// Returns how many units must be left for a request to pass.
    #[inline]
    pub(super) fn needs(&self, cost: Cost) -> Cost {
        if self.crosses { cost.min(1) } else { cost }
    }

    /// The same numbers, where nothing passes beyond them.
    pub(super) fn uncrossed(&self) -> Self {
        Self { crosses: false, ..*self }
    }

    /// Checks whether its units never come back.
    pub fn is_total(&self) -> bool {
        self.grid.is_total()
    }

    /// Returns the length of a window; a calendar month counts as 31 days.
    pub fn period(&self) -> Duration {
        self.grid.nominal_length()
    }

    /// Returns the length of the windows, if they all have one length and are aligned to the epoch.
    pub fn aligned_length(&self) -> Option<Duration> {
        match self.grid {
            Grid::Even { length, lead: 0 } => Some(Duration::from_nanos(length)),
            _ => None,
        }
    }

    /// The count in effect at `now`: a window that has begun is never left for an earlier one.
    fn current(&self, state: Count, now: Timestamp) -> Count {
        state.max(Count { window: self.grid.index(now), used: 0 })
    }

    /// The decision that leaves the key at `count`.
    pub(super) fn allowed(&self, count: Count) -> Decision {
        Decision {
            allowed: true,
            limit: self.limit,
            remaining: self.limit.saturating_sub(count.used),
            reset_at: self.grid.end(count.window),
            retry_after: Retry::Now,
        }
    }

    /// The decision on a request for which `count` leaves too few units.
    pub(super) fn denied(&self, count: Count, cost: Cost, now: Timestamp) -> Decision {
        let left = self.allowed(count);
        let wait = left.reset_at.since(now);
        let never = cost > self.cost_max() || self.grid.is_total();
        let retry_after = if never { Retry::Never } else { Retry::after(wait) };
        Decision { allowed: false, retry_after, ..left }
    }
}

impl Rule for Window {
    type State = Count;

    fn decide(&self, state: &Count, cost: Cost, now: Timestamp) -> Decision {
        let count = self.current(*state, now);
        if cost > self.cost_max() || self.needs(cost) > self.limit.saturating_sub(count.used) {
            return self.denied(count, cost, now);
        }
        self.allowed(Count { used: count.used + cost, ..count })
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

    /// Units come back when the window ends, though a debit that crosses the edge would pass before.
    fn forecast(&self, state: &Count, cost: Cost, now: Timestamp) -> Forecast {
        let units = super::forecast(|cost| self.uncrossed().decide(state, cost, now), cost, now);
        if !self.crosses {
            return units;
        }
        let left = if cost > self.cost_max() { 0 } else { self.decide(state, 0, now).remaining };
        Forecast { spendable_now: left.div_ceil(cost.max(1)), ..units }
    }
}

impl Settle for Window {
    fn mark(&self, state: &Count, now: Timestamp) -> Mark {
        Mark(self.current(*state, now).window)
    }

    /// Refunds units to the window they were taken from, while it lasts.
    fn refund(&self, state: &mut Count, mark: Mark, units: Cost, _now: Timestamp) {
        if state.window == mark.0 {
            state.used = state.used.saturating_sub(units);
        }
    }

    fn owe(&self, state: &mut Count, units: Cost, now: Timestamp) {
        *state = self.current(*state, now);
        state.used = state.used.saturating_add(units).min(UNITS_MAX);
    }
}
