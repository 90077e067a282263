//! The charges and the use of a permit.

use throttlekit_core::concurrency::Ending;

use crate::LimitName;

/// The accounting of one permit: the reservation at admission, the charges beyond it, the units counted.
///
/// Pure. The owner charges what [`beyond`](Self::beyond) returns, and at the end settles the reservation at
/// [`last`](Self::last).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meter {
    set_aside: u64,
    /// Units charged by debits beyond the reservation.
    beyond: u64,
    used: u64,
    /// `true` once anything was counted: before, only the estimate is known.
    counted: bool,
    /// Name of the limit that denied the last chunk.
    pub(super) denied: Option<LimitName>,
}

impl Meter {
    #[inline]
    pub(super) fn new(set_aside: u64) -> Self {
        Self { set_aside, beyond: 0, used: 0, counted: false, denied: None }
    }

    /// Returns the part of a chunk that the reservation does not cover.
    #[inline]
    pub(super) fn beyond(&self, tokens: u64) -> u64 {
        tokens.saturating_sub(self.covered())
    }

    /// Counts a chunk that passed, of which `charged` was charged now.
    #[inline]
    pub(super) fn count(&mut self, tokens: u64, charged: u64) {
        self.used = self.used.saturating_add(tokens);
        self.beyond = self.beyond.saturating_add(charged);
        self.counted = true;
    }

    /// Sets the total, regardless of what was counted before.
    #[inline]
    pub(super) fn count_all(&mut self, actual: u64) {
        (self.used, self.counted) = (actual, true);
    }

    /// Returns the units counted so far.
    #[inline]
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Returns the reserved units that are not used.
    #[inline]
    pub(super) fn covered(&self) -> u64 {
        self.set_aside.saturating_add(self.beyond).saturating_sub(self.used)
    }

    #[inline]
    pub(super) fn set_aside(&self) -> u64 {
        self.set_aside
    }

    /// Returns the amount at which to settle the reservation: the units counted, less those charged already. If nothing
    /// was counted, a success keeps the estimate, and any other outcome used nothing.
    #[inline]
    pub(super) fn last(&self, ending: Ending) -> u64 {
        match ending {
            _ if self.counted => self.used.saturating_sub(self.beyond),
            Ending::Success => self.set_aside,
            Ending::Dropped | Ending::Ignored => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_covers_chunks_until_it_is_used_up() {
        let mut meter = Meter::new(10);
        assert_eq!(meter.beyond(7), 0);
        meter.count(7, 0);
        assert_eq!((meter.covered(), meter.beyond(5)), (3, 2));
        meter.count(5, 2);
        assert_eq!((meter.used(), meter.covered(), meter.beyond(4)), (12, 0, 4));
        assert_eq!(meter.last(Ending::Ignored), 10, "what was counted stays charged, however it ends");
    }

    #[test]
    fn an_uncounted_call_costs_its_estimate_on_success_and_nothing_otherwise() {
        let meter = Meter::new(10);
        assert_eq!(meter.last(Ending::Success), 10);
        assert_eq!([Ending::Dropped, Ending::Ignored].map(|ending| meter.last(ending)), [0, 0]);
    }

    #[test]
    fn a_count_of_all_replaces_what_was_counted_before() {
        let mut meter = Meter::new(10);
        meter.count(12, 2);
        meter.count_all(5);
        assert_eq!(meter.last(Ending::Success), 3, "two of the five were charged beyond");
        meter.count_all(20);
        assert_eq!(meter.last(Ending::Success), 18, "a debt of eight");
    }
}
