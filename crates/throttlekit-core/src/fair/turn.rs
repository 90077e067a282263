//! Which window it is.

use core::time::Duration;

use crate::Timestamp;
use crate::rate::{Cadence, Grid, LimitError};

/// The window that a budget is in. It never goes back to an earlier one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    grid: Grid,
    window: u64,
    now: Timestamp,
}

impl Turn {
    pub(super) fn new(cadence: Cadence) -> Result<Self, LimitError> {
        Ok(Self { grid: Grid::of(cadence)?, window: 0, now: Timestamp::EPOCH })
    }

    /// Moves to `now`. True if that lies in a later window.
    pub(super) fn advance(&mut self, now: Timestamp) -> bool {
        self.now = now;
        let window = self.grid.index(now);
        let begins = window > self.window;
        self.window = self.window.max(window);
        begins
    }

    /// How long a window is; a calendar month counts as 31 days.
    pub(super) fn period(&self) -> Duration {
        self.grid.nominal_length()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    /// When the window ends and everything is free again.
    pub(super) fn end(&self) -> Timestamp {
        self.grid.end(self.window)
    }

    /// How long until then.
    pub(super) fn wait(&self) -> Duration {
        self.end().since(self.now)
    }
}
