//! A limit whose counts lie in a sketch.

use super::{AtPlaces, CountMin, Memory, Places, Plain, Shape, SketchLimit};
use crate::{Cost, Decision, Timestamp};

/// At most `n` units for each key in each window, over any number of keys, in the memory of one sketch.
///
/// Only what is admitted is counted, and no key is counted too low: a key is never admitted more than the limit. The
/// error is on the other side: a key that shares all its counters with others may be denied early, by more than ε of
/// the units admitted in the window with probability at most δ (guarantee `sketch`).
///
/// The caller keeps track of the window: the instant at which it ends, which only grows.
///
/// ```
/// use core::time::Duration;
/// use throttlekit_core::{Timestamp, overload::{Plain, Shape, SketchLimit, SketchWindow}};
///
/// let limit = SketchLimit::new(2, Duration::from_secs(60))?;
/// let keys = SketchWindow::<Plain>::new(limit, Shape::for_error(0.01, 0.001)?);
/// let noon = Timestamp::from_millis(1_800_000_000_000);
/// let (alice, ends_at) = (0x00A1_1CE0_0A11_CE00, limit.ends_at(noon));
///
/// assert!(keys.check(alice, 2, ends_at, noon).allowed);
/// assert!(!keys.check(alice, 1, ends_at, noon).allowed);
/// # Ok::<(), throttlekit_core::overload::SketchError>(())
/// ```
#[derive(Debug)]
pub struct SketchWindow<M: Memory = Plain> {
    limit: SketchLimit,
    counts: CountMin<M>,
}

impl<M: Memory> SketchWindow<M> {
    /// A limit with nothing counted yet.
    pub fn new(limit: SketchLimit, shape: Shape) -> Self {
        Self { limit, counts: CountMin::new(shape) }
    }

    /// The limit.
    pub fn limit(&self) -> &SketchLimit {
        &self.limit
    }

    /// The sketch's size.
    pub fn shape(&self) -> Shape {
        self.counts.shape()
    }

    /// Returns the key's count, if that denies a request. Others may admit meanwhile: a denial stays right within the
    /// window, as counts only grow.
    #[inline(always)]
    pub fn denies<const ROWS: usize>(&self, places: Places<ROWS>, cost: Cost) -> Option<u32> {
        // A key's count is at most any of its counters: where the first allows, the others need not be read.
        if self.limit.next(self.counts.at_most(places), cost).is_some() {
            return None;
        }
        let used = self.counts.estimate(places);
        if self.limit.next(used, cost).is_none() { Some(used) } else { None }
    }

    /// Returns the decision on a request by the key with this hash, without charging it.
    pub fn decide(&self, hash: u64, cost: Cost, ends_at: Timestamp, now: Timestamp) -> Decision {
        let used = self.counts.estimate_of(hash);
        match self.limit.next(used, cost) {
            Some(next) => self.limit.allowed(next, ends_at),
            None => self.limit.denied(used, cost, ends_at, now),
        }
    }

    /// Decides a request, and charges it if allowed; others may do so meanwhile. Returns `None`, and charges nothing, if
    /// `is_current` returns `false`: the window has ended.
    #[inline(always)]
    pub fn admit<const ROWS: usize>(
        &self,
        places: Places<ROWS>,
        cost: Cost,
        (ends_at, now): (Timestamp, Timestamp),
        is_current: impl FnOnce() -> bool,
    ) -> Option<Decision> {
        let (mut current, mut left) = (true, None);
        let (used, _) = self.counts.update(places, |used| {
            current = is_current();
            left = if current { self.limit.next(used, cost) } else { None };
            left.filter(|_| cost > 0)
        });
        match left {
            _ if !current => None,
            Some(next) => Some(self.limit.allowed(next, ends_at)),
            None => Some(self.limit.denied(used, cost, ends_at, now)),
        }
    }

    /// The same for the key with this hash.
    pub fn check(&self, hash: u64, cost: Cost, ends_at: Timestamp, now: Timestamp) -> Decision {
        self.shape().at_places(hash, Admit { keys: self, cost, ends_at, now })
    }

    /// Begins a window: nothing has been admitted in it. One caller at a time, while `is_current` returns `false` to all
    /// others.
    pub fn begin(&self) {
        self.counts.clear_after_updates();
    }
}

struct Admit<'a, M: Memory> {
    keys: &'a SketchWindow<M>,
    cost: Cost,
    ends_at: Timestamp,
    now: Timestamp,
}

impl<M: Memory> AtPlaces for Admit<'_, M> {
    type Answer = Decision;

    #[inline(always)]
    fn at<const ROWS: usize>(self, places: Places<ROWS>) -> Decision {
        let admitted = self.keys.admit(places, self.cost, (self.ends_at, self.now), || true);
        admitted.expect("the window is current")
    }
}
