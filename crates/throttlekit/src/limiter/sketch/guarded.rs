//! A rule over windows that threads share. Denials only read.

use throttlekit_core::overload::{AtPlaces, FloodWindow, Memory, Places, SketchLimit, SketchWindow};
use throttlekit_core::{Decision, Timestamp};

use super::latch::Latch;
use super::shared::Shared;

/// A rule that counts in windows.
pub(super) trait Counts: Sized {
    fn limit(&self) -> &SketchLimit;
    fn check(keys: &Guarded<Self>, hash: u64, cost: u64, now: Timestamp) -> Decision;
    fn decide(&self, hash: u64, cost: u64, ends_at: Timestamp, now: Timestamp) -> Decision;
    /// Forgets the previous window; one caller at a time.
    fn begin(&self);
}

/// A rule behind its latch.
///
/// A denied request only reads: counts only grow within a window, so a count that denies still does when the decision
/// is returned, as long as the window is the same.
///
/// A request that may be allowed decides again, in one of two ways:
///
/// * A plain sketch claims the key's counter in the first row ([`CountMin::update`]). So two threads never decide on
///   the count of one key, and keys with other counters there do not wait for each other. Who holds the latch to begin
///   a window claims each of these counters once. A thread that claimed its own before has counted in the old window;
///   one that claims it later finds that the window has ended.
/// * With hot keys it holds the latch, since keys replace each other.
///
/// [`CountMin::update`]: throttlekit_core::overload::CountMin::update
#[derive(Debug)]
pub(super) struct Guarded<R> {
    latch: Latch,
    rule: R,
}

impl<R: Counts> Guarded<R> {
    pub(super) fn new(rule: R) -> Self {
        Self { latch: Latch::new(), rule }
    }

    pub(super) fn rule(&self) -> &R {
        &self.rule
    }

    #[inline(always)]
    pub(super) fn check(&self, hash: u64, cost: u64, now: Timestamp) -> Decision {
        R::check(self, hash, cost, now)
    }

    /// Decides a request: `denies` returns the count of the key, if that denies it; `admit` decides and charges.
    #[inline(always)]
    fn answer(
        &self,
        cost: u64,
        now: Timestamp,
        denies: impl FnOnce(&R) -> Option<u32>,
        admit: impl FnOnce(&R, Timestamp) -> Decision,
    ) -> Decision {
        self.denial(cost, now, denies).unwrap_or_else(|| self.alone(now, admit))
    }

    /// Returns the denial, if the counts of the current window deny.
    #[inline(always)]
    fn denial(&self, cost: u64, now: Timestamp, denies: impl FnOnce(&R) -> Option<u32>) -> Option<Decision> {
        let ends_at = self.latch.ends_at();
        if SketchLimit::is_over(ends_at, now) {
            return None;
        }
        let used = denies(&self.rule)?;
        self.latch.is_still(ends_at).then(|| self.rule.limit().denied(used, cost, ends_at, now))
    }

    /// Begins the window of `now`, unless it or a later one has begun.
    #[cold]
    fn begin(&self, now: Timestamp) {
        let mut held = self.latch.hold();
        if SketchLimit::is_over(held.ends_at(), now) {
            held.begin(self.rule.limit().ends_at(now));
            self.rule.begin();
        }
    }

    /// Decides under the latch, in the window of `now` or in a later one that has begun.
    #[inline(always)]
    fn alone(&self, now: Timestamp, admit: impl FnOnce(&R, Timestamp) -> Decision) -> Decision {
        let mut held = self.latch.hold();
        if SketchLimit::is_over(held.ends_at(), now) {
            held.begin(self.rule.limit().ends_at(now));
            self.rule.begin();
        }
        admit(&self.rule, held.ends_at())
    }

    /// Returns what a key has left, without spending: `allowed` reports whether one unit would pass.
    pub(super) fn peek(&self, hash: u64, now: Timestamp) -> Decision {
        let held = self.latch.hold();
        if SketchLimit::is_over(held.ends_at(), now) {
            return self.rule.limit().allowed(0, self.rule.limit().ends_at(now));
        }
        let one = self.rule.decide(hash, 1, held.ends_at(), now);
        Decision { remaining: one.remaining + u64::from(one.allowed), ..one }
    }

    /// Returns whether the counts are of a window that has not ended.
    pub(super) fn is_current(&self, now: Timestamp) -> bool {
        !SketchLimit::is_over(self.latch.ends_at(), now)
    }
}

impl<M: Memory> Counts for SketchWindow<M> {
    fn limit(&self) -> &SketchLimit {
        self.limit()
    }

    #[inline(always)]
    fn check(keys: &Guarded<Self>, hash: u64, cost: u64, now: Timestamp) -> Decision {
        keys.rule.shape().at_places(hash, SketchCheck { keys, cost, now })
    }

    fn decide(&self, hash: u64, cost: u64, ends_at: Timestamp, now: Timestamp) -> Decision {
        self.decide(hash, cost, ends_at, now)
    }

    fn begin(&self) {
        self.begin();
    }
}

/// One check, with the key's counters found once.
struct SketchCheck<'a, M: Memory> {
    keys: &'a Guarded<SketchWindow<M>>,
    cost: u64,
    now: Timestamp,
}

impl<M: Memory> AtPlaces for SketchCheck<'_, M> {
    type Answer = Decision;

    #[inline(always)]
    fn at<const ROWS: usize>(self, places: Places<ROWS>) -> Decision {
        let Self { keys, cost, now } = self;
        loop {
            let ends_at = keys.latch.ends_at();
            if SketchLimit::is_over(ends_at, now) {
                keys.begin(now);
                continue;
            }
            let is_current = || keys.latch.is_still(ends_at);
            if let Some(used) = keys.rule.denies(places, cost) {
                if is_current() {
                    return keys.rule.limit().denied(used, cost, ends_at, now);
                }
            } else if let Some(decision) = keys.rule.admit(places, cost, (ends_at, now), is_current) {
                return decision;
            }
        }
    }
}

impl Counts for FloodWindow<Shared> {
    fn limit(&self) -> &SketchLimit {
        self.limit()
    }

    #[inline(always)]
    fn check(keys: &Guarded<Self>, hash: u64, cost: u64, now: Timestamp) -> Decision {
        let admit = |rule: &Self, ends_at| rule.admit(hash, cost, ends_at, now);
        keys.answer(cost, now, |rule| rule.denies(hash, cost), admit)
    }

    fn decide(&self, hash: u64, cost: u64, ends_at: Timestamp, now: Timestamp) -> Decision {
        self.decide(hash, cost, ends_at, now)
    }

    fn begin(&self) {
        self.begin();
    }
}
