//! What a change of version must leave of a sliding window or log, judged by the answers before and after it alone.

use throttlekit_core::Decision;
use throttlekit_core::rate::Limit;

/// What a key had left under the old version and has left under the new one, at one instant.
pub(super) struct Change<'a> {
    pub(super) limits: [&'a Limit; 2],
    pub(super) before: Decision,
    pub(super) after: Decision,
}

impl Change<'_> {
    /// What is wrong with it, if anything.
    pub(super) fn fault(&self) -> Option<String> {
        let fault = match self.limits {
            // A log remembers as long as it is told to: a shorter one has forgotten.
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

    /// Of a key with some left, as many are used as before; of one with none, at least as many as there were.
    fn uses_other_units(&self) -> Option<String> {
        let used = self.before.limit - self.before.remaining;
        let left = self.after.limit.saturating_sub(used);
        let is_known = self.before.remaining > 0 && !self.forgot_more();
        let wrong = self.after.remaining > left || (is_known && self.after.remaining < left);
        wrong.then(|| format!("{used} were used, so {left} are left, not {}", self.after.remaining))
    }

    /// A longer log may count again what the shorter one no longer did, if it is still written down.
    fn forgot_more(&self) -> bool {
        matches!(self.limits[1], Limit::SlidingLog(_)) && !self.is_shorter()
    }
}
