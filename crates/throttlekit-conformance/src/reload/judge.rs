//! What a change of version must leave, judged by the answers before and after it alone.

use std::time::Duration;

use throttlekit_core::rate::Limit;
use throttlekit_core::{Decision, Timestamp};

/// What a key had left under the old version and has left under the new one, at one instant.
pub(super) struct Change<'a> {
    pub(super) limits: [&'a Limit; 2],
    pub(super) before: Decision,
    pub(super) after: Decision,
    pub(super) now: Timestamp,
}

impl Change<'_> {
    /// What is wrong with it, if anything.
    pub(super) fn fault(&self) -> Option<String> {
        let fault = match self.limits {
            [Limit::Gcra(_), Limit::Gcra(_)] => self.fills_at_another_time(),
            // A log remembers as long as it is told to: a shorter one has forgotten.
            [Limit::SlidingLog(_), Limit::SlidingLog(_)] if self.is_shorter() => None,
            _ => self.uses_other_units(),
        };
        fault.map(|fault| format!("{fault}\n  before {:?}\n  after  {:?}", self.before, self.after))
    }

    fn is_shorter(&self) -> bool {
        self.limits[1].period() < self.limits[0].period()
    }

    /// To the microsecond: less than one is counted in ticks, which are not the same in all versions.
    fn fills_at_another_time(&self) -> Option<String> {
        let [was, is] = [self.before, self.after].map(|left| left.reset_at.max(self.now));
        let off = was.max(is).since(was.min(is));
        (off > Duration::from_micros(1)).then(|| "the bucket is not full when it would have been".into())
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
