//! A limit for floods: the busiest keys counted individually, all others in a sketch.

use alloc::vec::Vec;

use super::hot_keys::{HotKey, HotTable, SlotAt};
use super::{CountMin, Memory, Plain, Shape, SketchError, SketchLimit};
use crate::{Cost, Decision, Timestamp};

/// [`SketchWindow`](super::SketchWindow) with a table for the busiest keys.
///
/// In a sketch a busy key fills a counter in every row, and keys that share those with busy keys are denied early. Here
/// a key that is admitted twice as much as the least busy one in its bucket of the table replaces it. It keeps its
/// estimate from the sketch, and is counted individually from then on. The other's count goes back into the sketch,
/// which is raised to it. So no key is ever counted too low, wherever it is counted, and memory is fixed.
///
/// ```text
/// // Sketched => Hot        (admitted twice as much as the least of the eight; its estimate comes along)
/// // Hot      => Sketched   (displaced; the sketch is raised to its count)
/// ```
#[derive(Debug)]
pub struct FloodWindow<M: Memory = Plain> {
    limit: SketchLimit,
    hot: HotTable<M>,
    tail: CountMin<M>,
}

/// Factor by which a key must be busier than the one it replaces. With a small factor, equally busy keys would replace
/// each other on every request.
const BUSIER: u32 = 2;

impl<M: Memory> FloodWindow<M> {
    /// Largest number of keys that are counted individually.
    pub const HOT_MAX: usize = 1 << 16;

    /// Creates a limit with nothing counted yet: a table for at least `hot_keys`, a sketch of this shape for the rest.
    pub fn new(limit: SketchLimit, shape: Shape, hot_keys: usize) -> Result<Self, SketchError> {
        if !(1..=Self::HOT_MAX).contains(&hot_keys) {
            return Err(SketchError::Hot(hot_keys));
        }
        Ok(Self { limit, hot: HotTable::new(hot_keys), tail: CountMin::new(shape) })
    }

    /// The limit.
    pub fn limit(&self) -> &SketchLimit {
        &self.limit
    }

    /// Bytes that the table and the sketch take together.
    pub fn bytes(&self) -> usize {
        self.hot.slots() * HotTable::<M>::BYTES_PER_KEY + self.tail.shape().bytes()
    }

    /// Returns the key's count if a request would be denied now. Others may admit meanwhile.
    #[inline]
    pub fn denies(&self, hash: u64, cost: Cost) -> Option<u32> {
        let name = HotTable::<M>::name(hash);
        let slot = self.hot.find(name);
        let used = self.used(name, slot);
        if self.limit.next(used, cost).is_some() {
            return None;
        }
        if let Some(at) = slot {
            // The slot may have changed owners while it was read: its count was another key's then.
            if !self.hot.is(at, name) {
                return None;
            }
            self.hot.count_denial(at);
        }
        Some(used)
    }

    /// Returns the decision on a request, without charging it.
    pub fn decide(&self, hash: u64, cost: Cost, ends_at: Timestamp, now: Timestamp) -> Decision {
        let name = HotTable::<M>::name(hash);
        let used = self.used(name, self.hot.find(name));
        match self.limit.next(used, cost) {
            Some(next) => self.limit.allowed(next, ends_at),
            None => self.limit.denied(used, cost, ends_at, now),
        }
    }

    /// Decides a request, and charges it if allowed. One caller at a time.
    #[inline]
    pub fn admit(&self, hash: u64, cost: Cost, ends_at: Timestamp, now: Timestamp) -> Decision {
        let name = HotTable::<M>::name(hash);
        let slot = self.hot.find(name);
        let used = self.used(name, slot);
        let Some(next) = self.limit.next(used, cost) else {
            slot.into_iter().for_each(|at| self.hot.count_denial(at));
            return self.limit.denied(used, cost, ends_at, now);
        };
        match slot {
            _ if cost == 0 => {}
            Some(at) => self.hot.set_used(at, next),
            None => self.charge_tail(name, next),
        }
        self.limit.allowed(next, ends_at)
    }

    #[inline(always)]
    fn used(&self, name: u64, slot: Option<SlotAt>) -> u32 {
        match slot {
            Some(at) => self.hot.used(at),
            None => self.tail.estimate_of(name),
        }
    }

    /// Counts a key that is not in the table: there from now on if it is busier than one of those, else in the sketch.
    fn charge_tail(&self, name: u64, next: u32) {
        let coldest = self.hot.coldest(name);
        let displaced = self.hot.used(coldest);
        if next / BUSIER < displaced {
            return self.tail.raise_of(name, next);
        }
        if let Some(owner) = self.hot.owner(coldest) {
            self.tail.raise_of(owner, displaced);
        }
        self.hot.hand_over(coldest, name, next);
    }

    /// Begins a window: nothing has been admitted in it. One caller at a time.
    pub fn begin(&self) {
        self.tail.clear();
        self.hot.clear();
    }

    /// Up to `count` of the keys in the table, the busiest of this window first.
    pub fn busiest(&self, count: usize) -> Vec<HotKey> {
        self.hot.busiest(count)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use core::time::Duration;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const MINUTE: Duration = Duration::from_secs(60);
    const NOON: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn flood(units: u64, width: u32, hot: usize) -> (FloodWindow, Timestamp) {
        let limit = SketchLimit::new(units, MINUTE).unwrap();
        (FloodWindow::new(limit, Shape::new(width, 3).unwrap(), hot).unwrap(), limit.ends_at(NOON))
    }

    fn hash(key: u64) -> u64 {
        key.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    proptest! {
        #[test]
        fn sketch_no_key_is_admitted_more_than_its_limit_wherever_it_is_counted(
            asks in proptest::collection::vec((0_u64..60, 1_u64..4), 1..600), width in 1_u32..40
        ) {
            let (keys, ends_at) = flood(10, width, 8);
            let mut admitted = HashMap::new();
            for (key, cost) in asks {
                if keys.admit(hash(key), cost, ends_at, NOON).allowed {
                    *admitted.entry(key).or_insert(0) += cost;
                }
                prop_assert!(*admitted.get(&key).unwrap_or(&0) <= 10);
                prop_assert!(keys.used(hash(key).max(1), keys.hot.find(hash(key).max(1)))
                    >= *admitted.get(&key).unwrap_or(&0) as u32);
            }
        }
    }

    #[test]
    fn busy_keys_do_not_weigh_on_others() {
        // Sixteen rows of one column: in the sketch alone, all keys would share one count.
        let (keys, ends_at) = flood(100, 1, 8);
        for _ in 0..100 {
            for busy in 1..=4 {
                assert!(keys.admit(hash(busy), 1, ends_at, NOON).allowed);
            }
        }
        assert!(!keys.admit(hash(1), 1, ends_at, NOON).allowed);
        let quiet = keys.admit(hash(99), 1, ends_at, NOON);
        assert_eq!((quiet.allowed, quiet.remaining), (true, 99));
    }

    #[test]
    fn the_busiest_keys_are_reported_with_their_denials() {
        let (keys, ends_at) = flood(3, 64, 8);
        for (key, asks) in [(1, 9), (2, 5), (3, 1)] {
            (0..asks).for_each(|_| _ = keys.admit(hash(key), 1, ends_at, NOON));
        }
        let told: Vec<_> =
            keys.busiest(2).into_iter().map(|hot| (hot.fingerprint, hot.admitted, hot.denied)).collect();
        assert_eq!(told, [(hash(1), 3, 6), (hash(2), 3, 2)]);
        keys.begin();
        assert_eq!(keys.busiest(2), []);
        assert_eq!(keys.admit(hash(1), 1, ends_at, NOON).remaining, 2);
    }

    #[test]
    fn a_key_without_bits_is_counted_as_any_other() {
        let (keys, ends_at) = flood(2, 64, 8);
        assert!(keys.admit(0, 2, ends_at, NOON).allowed && !keys.admit(0, 1, ends_at, NOON).allowed);
        // Eight keys that used as much cannot displace it, and what they leave is no second budget.
        (1..200).for_each(|key| _ = keys.admit(hash(key), 2, ends_at, NOON));
        assert!(!keys.admit(0, 1, ends_at, NOON).allowed);
    }
}
