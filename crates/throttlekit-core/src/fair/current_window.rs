//! The current window, also where the clock does not move forward.
//!
//! A wall clock may read ahead once, by a day, and be right again. So a window that the clock leaves is remembered with
//! what was used in it: whenever the clock is back there, it continues from that. No window is ever used twice. No
//! request waits for an instant that the clock has read by mistake, unless it has done so in nine windows not reached
//! yet.

use core::time::Duration;

use crate::Timestamp;
use crate::rate::{Cadence, Grid, LimitError};

/// Number of remembered windows that the clock has left. Of more, the earliest is forgotten and counts as used up.
const LEFT_MAX: usize = 8;

/// The window that a budget is in.
#[derive(Clone, Copy, Debug)]
pub(super) struct CurrentWindow {
    grid: Grid,
    window: u64,
    now: Timestamp,
    left: Left,
}

/// Units used of a window before it begins, or begins again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UsedBefore {
    Units(u64),
    /// The amount was forgotten; counts as everything.
    All,
}

impl CurrentWindow {
    pub(super) fn new(cadence: Cadence) -> Result<Self, LimitError> {
        let left = Left { windows: [(0, 0); LEFT_MAX], forgotten: None };
        Ok(Self { grid: Grid::of(cadence)?, window: 0, now: Timestamp::EPOCH, left })
    }

    /// Moves to `now`, where `used` units have been used in the window so far. If another window is entered, returns
    /// what was used of it.
    ///
    /// A step back into the window just before stays where it is: clocks are set back by moments around the
    /// end of a window, and that is no reason to begin again.
    #[inline]
    pub(super) fn advance(&mut self, now: Timestamp, used: u64) -> Option<UsedBefore> {
        self.now = now;
        let window = self.grid.index(now);
        if window == self.window || window.checked_add(1) == Some(self.window) {
            return None;
        }
        Some(self.enter(window, used))
    }

    #[cold]
    fn enter(&mut self, window: u64, used: u64) -> UsedBefore {
        let before = self.left.take(window);
        self.left.remember(self.window, used);
        self.window = window;
        before
    }

    /// Returns the length of a window; a calendar month counts as 31 days.
    pub(super) fn period(&self) -> Duration {
        self.grid.nominal_length()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns when the window ends and everything is free again.
    pub(super) fn end(&self) -> Timestamp {
        self.grid.end(self.window)
    }

    /// Returns the time until then.
    pub(super) fn wait(&self) -> Duration {
        self.end().since(self.now)
    }
}

/// Windows that were left, and what was used in each. One in which nothing was used is not kept.
#[derive(Clone, Copy, Debug)]
struct Left {
    windows: [(u64, u64); LEFT_MAX],
    /// The latest that was forgotten. Any up to it may have been used.
    forgotten: Option<u64>,
}

impl Left {
    /// Returns what was used of a window and removes it: the caller that enters it keeps count.
    fn take(&mut self, window: u64) -> UsedBefore {
        let kept = self.windows.iter_mut().find(|(index, used)| *index == window && *used > 0);
        match kept {
            Some((_, used)) => UsedBefore::Units(core::mem::take(used)),
            None if self.forgotten.is_some_and(|forgotten| window <= forgotten) => UsedBefore::All,
            None => UsedBefore::Units(0),
        }
    }

    fn remember(&mut self, window: u64, used: u64) {
        if used == 0 {
            return;
        }
        if let Some(free) = self.windows.iter_mut().find(|(_, used)| *used == 0) {
            *free = (window, used);
            return;
        }
        let mut forgets = window;
        if let Some(earliest) =
            self.windows.iter_mut().min_by_key(|(index, _)| *index).filter(|e| e.0 < window)
        {
            forgets = core::mem::replace(earliest, (window, used)).0;
        }
        self.forgotten = self.forgotten.max(Some(forgets));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const NOTHING: UsedBefore = UsedBefore::Units(0);

    fn turn() -> CurrentWindow {
        CurrentWindow::new(Cadence::every(SECOND)).unwrap()
    }

    fn at(window: u64) -> Timestamp {
        Timestamp::from_millis(window * 1_000)
    }

    #[test]
    fn a_window_that_the_clock_comes_back_to_goes_on_from_what_was_used() {
        let mut turn = turn();
        assert_eq!(turn.advance(at(100), 0), Some(NOTHING));
        assert_eq!(turn.advance(at(5_000), 7), Some(NOTHING));
        assert_eq!(turn.advance(at(100), 9), Some(UsedBefore::Units(7)));
        assert_eq!(turn.advance(at(101), 8), Some(NOTHING));
        assert_eq!(turn.advance(at(5_000), 1), Some(UsedBefore::Units(9)));
        assert_eq!(turn.advance(at(101), 9), Some(UsedBefore::Units(1)));
    }

    #[test]
    fn a_step_back_into_the_window_before_stays() {
        let mut turn = turn();
        turn.advance(at(100), 0);
        assert_eq!(turn.advance(at(99), 3), None);
        assert_eq!((turn.end(), turn.wait()), (at(101), 2 * SECOND));
        assert_eq!(turn.advance(at(98), 3), Some(NOTHING));
    }

    #[test]
    fn eight_windows_ahead_are_remembered_without_extra_waits() {
        let mut turn = turn();
        turn.advance(at(100), 0);
        for wrong in 1..=8 {
            assert_eq!(turn.advance(at(1_000 * wrong), 1), Some(NOTHING));
            assert_eq!(turn.advance(at(100), 2), Some(UsedBefore::Units(1)));
        }
        for right in 101..120 {
            assert_eq!(turn.advance(at(right), 1), Some(NOTHING));
        }
        assert_eq!(
            turn.advance(at(100), 1),
            Some(UsedBefore::All),
            "it was forgotten, and may not be used again"
        );
        assert_eq!(turn.advance(at(8_000), 1), Some(UsedBefore::Units(2)));
    }

    #[test]
    fn a_ninth_keeps_everybody_waiting_for_the_first() {
        let mut turn = turn();
        for wrong in 1..=9 {
            turn.advance(at(1_000 * wrong), u64::from(wrong > 1));
        }
        assert_eq!(turn.advance(at(100), 1), Some(NOTHING));
        assert_eq!(turn.advance(at(101), 1), Some(UsedBefore::All));
        assert_eq!(turn.advance(at(1_000), 0), Some(UsedBefore::All));
        assert_eq!(turn.advance(at(1_001), 0), Some(NOTHING));
    }

    #[test]
    fn windows_that_follow_each_other_are_all_fresh() {
        let mut turn = turn();
        for window in 1..100 {
            assert_eq!(turn.advance(at(window), 5), Some(NOTHING));
        }
    }
}
