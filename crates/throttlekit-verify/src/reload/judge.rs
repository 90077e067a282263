//! Checks of a change of version for a sliding window or log, by the responses before and after it alone.

use throttlekit_core::Decision;
use throttlekit_core::rate::Limit;

/// The units left to a key under the old version and under the new one, at one instant.
pub(super) struct Change<'a> {
    pub(super) limits: [&'a Limit; 2],
    pub(super) before: Decision,
    pub(super) after: Decision,
}

impl Change<'_> {
    /// Returns the violation, if any.
    pub(super) fn fault(&self) -> Option<String> {
        let fault = match self.limits {
            // A log remembers for its configured time: a shorter one has forgotten.
            [Limit::SlidingLog(_), Limit::SlidingLog(_)] if self.is_shorter() => None,
            [Limit::SlidingLog(_) | Limit::SlidingWindow(_), _] => self.uses_other_units(),
            // The oracle counts these.
            _ => None,
        };
        fault.map(|fault| format!("{fault}\n  before {:?}\n  after  {:?}", self.before, self.after))
    }

    fn is_shorter(&self) -> bool {
        self.limits[1].period() < self.limits[0].period()
    }

    /// Checks that a key with units left has the same use as before, and one with none no less. Returns the
    /// violation, if any.
    fn uses_other_units(&self) -> Option<String> {
        let used = self.before.limit - self.before.remaining;
        let left = self.after.limit.saturating_sub(used);
        let is_known = self.before.remaining > 0 && !self.forgot_more();
        let wrong = self.after.remaining > left || (is_known && self.after.remaining < left);
        wrong.then(|| format!("{used} were used, so {left} are left, not {}", self.after.remaining))
    }

    /// Returns `true` if the new log may have forgotten more. A longer log may count entries again that the
    /// shorter one no longer did, if they are still stored.
    fn forgot_more(&self) -> bool {
        matches!(self.limits[1], Limit::SlidingLog(_)) && !self.is_shorter()
    }
}
