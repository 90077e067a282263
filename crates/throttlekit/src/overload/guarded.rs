//! A rule over windows that threads share: one counts at a time, and denials only read.

use throttlekit_core::overload::{FloodWindow, Places, SketchLimit, SketchWindow};
use throttlekit_core::{Cost, Decision, Timestamp};

use super::latch::Latch;
use super::shared::Shared;

/// What counts in windows.
pub(super) trait Counts {
    /// Where a key is counted.
    type Place;
    fn limit(&self) -> &SketchLimit;
    fn place(&self, hash: u64) -> Self::Place;
    /// What is counted for a key, if that denies the ask. Reads only what its answer depends on.
    fn denies(&self, place: &Self::Place, cost: Cost) -> Option<u32>;
    fn decide(&self, place: &Self::Place, cost: Cost, ends_at: Timestamp, now: Timestamp) -> Decision;
    /// Decides and charges; one caller at a time.
    fn admit(&self, place: &Self::Place, cost: Cost, ends_at: Timestamp, now: Timestamp) -> Decision;
    /// Forgets the window before; one caller at a time.
    fn begin(&self);
}

/// A rule behind its latch.
///
/// An ask that is denied reads and writes nothing: counts only grow within a window, so a count that denies still does
/// when the answer is given, as long as the window is the same. An ask that may be allowed holds the latch and
/// decides again. So two threads never decide on the same count, and no ask falls between two windows.
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
    pub(super) fn check(&self, hash: u64, cost: Cost, now: Timestamp) -> Decision {
        let place = self.rule.place(hash);
        match self.denial(&place, cost, now) {
            Some(denied) => denied,
            None => self.admit(&place, cost, now),
        }
    }

    /// The answer where counts that stand in the current window deny.
    #[inline(always)]
    fn denial(&self, place: &R::Place, cost: Cost, now: Timestamp) -> Option<Decision> {
        let ends_at = self.latch.open().filter(|ends_at| !SketchLimit::is_over(*ends_at, now))?;
        let used = self.rule.denies(place, cost)?;
        self.latch.is_still(ends_at).then(|| self.rule.limit().denied(used, cost, ends_at, now))
    }

    /// Decides alone, in the window of `now` or in a later one that has begun.
    #[inline(always)]
    fn admit(&self, place: &R::Place, cost: Cost, now: Timestamp) -> Decision {
        let mut held = self.latch.hold();
        if SketchLimit::is_over(held.ends_at(), now) {
            held.begin(self.rule.limit().ends_at(now));
            self.rule.begin();
        }
        self.rule.admit(place, cost, held.ends_at(), now)
    }

    /// What a key has left, spending nothing: `allowed` tells whether one unit would pass.
    pub(super) fn peek(&self, hash: u64, now: Timestamp) -> Decision {
        let held = self.latch.hold();
        if SketchLimit::is_over(held.ends_at(), now) {
            return self.rule.limit().allowed(0, self.rule.limit().ends_at(now));
        }
        let place = self.rule.place(hash);
        let [left, one] = [0, 1].map(|cost| self.rule.decide(&place, cost, held.ends_at(), now));
        Decision { allowed: one.allowed, retry_after: one.retry_after, ..left }
    }

    /// Looks at the rule while nobody counts. Nothing, if its window is over.
    pub(super) fn look<T>(&self, now: Timestamp, look: impl FnOnce(&R) -> T) -> Option<T> {
        let held = self.latch.hold();
        (!SketchLimit::is_over(held.ends_at(), now)).then(|| look(&self.rule))
    }
}

impl Counts for SketchWindow<Shared> {
    type Place = Places;

    fn limit(&self) -> &SketchLimit {
        self.limit()
    }

    #[inline(always)]
    fn place(&self, hash: u64) -> Places {
        self.places(hash)
    }

    #[inline(always)]
    fn denies(&self, place: &Places, cost: Cost) -> Option<u32> {
        self.denies(place, cost)
    }

    fn decide(&self, place: &Places, cost: Cost, ends_at: Timestamp, now: Timestamp) -> Decision {
        self.decide(place, cost, ends_at, now)
    }

    #[inline(always)]
    fn admit(&self, place: &Places, cost: Cost, ends_at: Timestamp, now: Timestamp) -> Decision {
        self.admit(place, cost, ends_at, now)
    }

    fn begin(&self) {
        self.begin();
    }
}

impl Counts for FloodWindow<Shared> {
    type Place = u64;

    fn limit(&self) -> &SketchLimit {
        self.limit()
    }

    #[inline(always)]
    fn place(&self, hash: u64) -> u64 {
        hash
    }

    #[inline(always)]
    fn denies(&self, hash: &u64, cost: Cost) -> Option<u32> {
        self.denies(*hash, cost)
    }

    fn decide(&self, hash: &u64, cost: Cost, ends_at: Timestamp, now: Timestamp) -> Decision {
        self.decide(*hash, cost, ends_at, now)
    }

    #[inline(always)]
    fn admit(&self, hash: &u64, cost: Cost, ends_at: Timestamp, now: Timestamp) -> Decision {
        self.admit(*hash, cost, ends_at, now)
    }

    fn begin(&self) {
        self.begin();
    }
}
