//! What a permit has been charged, and what it has used.

use throttlekit_core::Cost;
use throttlekit_core::concurrency::Ending;

/// The books of one permit: what was set aside when it was admitted, what was charged beyond that, what was counted.
///
/// Pure. Whoever holds it charges what [`beyond`](Self::beyond) says, and at the end settles what was set aside at
/// [`last`](Self::last).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meter {
    set_aside: Cost,
    /// Charged by debits that what was set aside did not cover.
    beyond: Cost,
    used: Cost,
    /// Whether anything was ever counted: else an estimate is all there is.
    counted: bool,
}

impl Meter {
    #[inline]
    pub(super) fn new(set_aside: Cost) -> Self {
        Self { set_aside, beyond: 0, used: 0, counted: false }
    }

    /// How much of a chunk is not covered by what was set aside.
    #[inline]
    pub(super) fn beyond(&self, tokens: Cost) -> Cost {
        tokens.saturating_sub(self.covered())
    }

    /// A chunk has passed, of which so much was charged now.
    #[inline]
    pub(super) fn count(&mut self, tokens: Cost, charged: Cost) {
        self.used = self.used.saturating_add(tokens);
        self.beyond = self.beyond.saturating_add(charged);
        self.counted = true;
    }

    /// All of it was this much, whatever was counted before.
    #[inline]
    pub(super) fn count_all(&mut self, actual: Cost) {
        (self.used, self.counted) = (actual, true);
    }

    /// What was counted so far.
    #[inline]
    pub(super) fn used(&self) -> Cost {
        self.used
    }

    /// What is set aside and not used.
    #[inline]
    pub(super) fn covered(&self) -> Cost {
        self.set_aside.saturating_add(self.beyond).saturating_sub(self.used)
    }

    #[inline]
    pub(super) fn set_aside(&self) -> Cost {
        self.set_aside
    }

    /// What was set aside is to be settled at this: what was counted, less what was charged for already. Where nothing was
    /// counted, a success leaves the estimate as it is, and anything else used nothing.
    #[inline]
    pub(super) fn last(&self, ending: Ending) -> Cost {
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
    fn what_was_not_counted_is_the_estimate_if_it_went_well_and_nothing_if_not() {
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
