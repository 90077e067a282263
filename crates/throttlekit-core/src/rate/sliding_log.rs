//! A sliding window, exact: every admission is remembered until it leaves.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use super::pace::{LimitError, checked_period, checked_units};
use super::{Mark, Rule, Settle, UNITS_MAX, never};
use crate::{Cost, Decision, Retry, Timestamp};

/// Largest number of units that a key remembers, 16 bytes each at worst.
const LOG_MAX: u64 = 10_000;

/// At most `limit` units in any interval of `length`, exactly. Memory per key grows with the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    pub(super) limit: u64,
    pub(super) length: Duration,
}

/// Admissions of one key, oldest first; those of one instant are merged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Log {
    pub(super) runs: VecDeque<Run>,
    /// The units of all runs, also of those that have left and are not yet dropped.
    units: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Run {
    pub(super) at: Timestamp,
    pub(super) units: u64,
}

impl SlidingLog {
    /// `limit` units (at most 10,000) in any interval of `length`.
    pub fn new(limit: u64, length: Duration) -> Result<Self, LimitError> {
        checked_period(length)?;
        if checked_units(limit)? > LOG_MAX {
            return Err(LimitError::LogTooLong(limit));
        }
        Ok(Self { limit, length })
    }

    /// The most units that ever pass at once.
    pub fn units(&self) -> u64 {
        self.limit
    }

    /// Returns the length of the window.
    pub fn period(&self) -> Duration {
        self.length
    }

    /// The effective instant: never before the newest admission.
    fn current(&self, log: &Log, now: Timestamp) -> Timestamp {
        log.runs.back().map_or(now, |newest| newest.at.max(now))
    }

    fn leaves_at(&self, run: &Run) -> Timestamp {
        run.at + self.length
    }

    /// Returns how many of the oldest runs have left at `now`. A charge drops them, so they are few.
    fn gone(&self, log: &Log, now: Timestamp) -> usize {
        log.runs.partition_point(|run| self.leaves_at(run) <= now)
    }

    fn drop_gone(&self, log: &mut Log, now: Timestamp) {
        for run in log.runs.drain(..self.gone(log, now)) {
            log.units -= run.units;
        }
    }
}

impl Rule for SlidingLog {
    type State = Log;

    fn decide(&self, state: &Log, cost: Cost, now: Timestamp) -> Decision {
        let current = self.current(state, now);
        let gone = self.gone(state, current);
        let used = state.units - state.runs.range(..gone).map(|run| run.units).sum::<u64>();
        // Where nothing is used, a fully refunded admission may still hold the log's time; nothing of it leaves.
        let oldest = state.runs.get(gone).filter(|_| used > 0).map(|run| self.leaves_at(run));
        let fresh = if cost > 0 && cost <= self.limit { current + self.length } else { current };
        let left = self.limit.saturating_sub(used);
        let denied = Decision {
            allowed: false,
            limit: self.limit,
            remaining: left,
            reset_at: oldest.unwrap_or(fresh),
            retry_after: Retry::Never,
        };
        if cost > self.limit {
            return never(denied);
        }
        if cost <= left {
            return Decision { allowed: true, remaining: left - cost, retry_after: Retry::Now, ..denied };
        }
        let mut excess = cost + used - self.limit;
        let enough = state.runs.range(gone..).find(|run| {
            excess = excess.saturating_sub(run.units);
            excess == 0
        });
        let at = enough.map_or(current, |run| self.leaves_at(run));
        Decision { retry_after: Retry::after(at.since(now)), ..denied }
    }

    fn charge(&self, state: &mut Log, cost: Cost, now: Timestamp) {
        if cost == 0 {
            return;
        }
        let now = self.current(state, now);
        self.drop_gone(state, now);
        // A fully refunded one only recorded its instant, which this one is not before.
        if state.runs.back().is_some_and(|newest| newest.units == 0) {
            state.runs.pop_back();
        }
        state.push(Run { at: now, units: cost });
    }

    fn idle_at(&self, state: &Log) -> Timestamp {
        state.runs.back().map_or(Timestamp::EPOCH, |newest| self.leaves_at(newest))
    }

    /// The k-th newest unit of the join is the later of both k-th newest units. Takes as long as `other` is:
    /// a full store joins short logs into a long one all the time.
    fn join(&self, state: &mut Log, other: &Log) {
        let mut joined = Vec::new();
        let mut theirs = other.runs.iter().rev().copied();
        let (mut a, mut b) = (None, theirs.next());
        while let Some(their) = b {
            a = a.or_else(|| state.pop());
            let my = a.unwrap_or(their);
            let units = my.units.min(their.units);
            joined.push(Run { at: my.at.max(their.at), units });
            a = rest(a, units);
            b = rest(b, units).or_else(|| theirs.next());
        }
        a.into_iter().chain(joined.into_iter().rev()).for_each(|run| state.push(run));
    }
}

impl Settle for SlidingLog {
    fn mark(&self, state: &Log, now: Timestamp) -> Mark {
        Mark(self.current(state, now).as_nanos())
    }

    /// Refunds units to the admissions of that instant, while they are remembered.
    fn refund(&self, state: &mut Log, mark: Mark, units: Cost, _now: Timestamp) {
        let Ok(index) = state.runs.binary_search_by_key(&mark.0, |run| run.at.as_nanos()) else { return };
        let back = units.min(state.runs[index].units);
        state.units -= back;
        state.runs[index].units -= back;
        // Nothing left of it: it goes, unless its instant is the newest, which holds the log's time.
        if state.runs[index].units == 0 && index + 1 < state.runs.len() {
            state.runs.remove(index);
        }
    }

    /// A debt that has left frees capacity for another.
    fn owe(&self, state: &mut Log, units: Cost, now: Timestamp) {
        let now = self.current(state, now);
        self.drop_gone(state, now);
        self.charge(state, units.min(UNITS_MAX - state.units.min(UNITS_MAX)), now);
    }
}

impl Log {
    /// Units of one instant.
    pub(super) fn of(at: Timestamp, units: u64) -> Self {
        Self { runs: [Run { at, units }].into(), units }
    }

    /// The newest instant in nanoseconds, and the units of all that have not been dropped.
    pub(super) fn newest_and_units(&self) -> (u64, u64) {
        (self.runs.back().map_or(0, |newest| newest.at.as_nanos()), self.units)
    }

    /// Heap memory in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        self.runs.capacity() * size_of::<Run>()
    }

    fn pop(&mut self) -> Option<Run> {
        let newest = self.runs.pop_back()?;
        self.units -= newest.units;
        Some(newest)
    }

    pub(super) fn push(&mut self, run: Run) {
        self.units += run.units;
        match self.runs.back_mut() {
            Some(newest) if newest.at == run.at => newest.units += run.units,
            _ => self.runs.push_back(run),
        }
    }
}

fn rest(run: Option<Run>, taken: u64) -> Option<Run> {
    run.map(|run| Run { units: run.units.saturating_sub(taken), ..run }).filter(|run| run.units > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_that_was_handed_back_is_not_waited_for() {
        let rule = SlidingLog::new(5, Duration::from_secs(1)).unwrap();
        let (mut log, now) = (Log::default(), Timestamp::from_millis(1_000));
        let mark = rule.mark(&log, now);
        rule.charge(&mut log, 3, now);
        rule.refund(&mut log, mark, 3, now);
        for cost in [0, 1, 5, 6] {
            assert_eq!(rule.decide(&log, cost, now), rule.decide(&Log::default(), cost, now));
        }
    }

    #[test]
    fn the_largest_debt_is_owed_again_once_it_has_left() {
        let rule = SlidingLog::new(5, Duration::from_secs(1)).unwrap();
        let mut log = Log::default();
        for second in 1..4 {
            let now = Timestamp::from_millis(second * 1_000);
            assert!(rule.decide(&log, 5, now).allowed, "all is paid");
            rule.owe(&mut log, UNITS_MAX, now);
            assert!(!rule.decide(&log, 1, now).allowed);
        }
    }
}
