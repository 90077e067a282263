//! Count-Min: counts of any number of keys in fixed memory, never too low.

use alloc::boxed::Box;
use core::cell::Cell;
use core::fmt;

use super::Shape;

/// A number in memory that may be shared between threads.
pub trait CounterSlot<T> {
    /// A slot that holds this.
    fn new(value: T) -> Self;
    /// Returns its value.
    fn get(&self) -> T;
    /// Sets its value.
    fn set(&self, value: T);
    /// Adds one in one step, saturating.
    fn add_one(&self);
}

/// A counter up to [`SketchLimit::UNITS_MAX`](super::SketchLimit::UNITS_MAX), which callers may share.
pub trait SharedCounter: CounterSlot<u32> {
    /// Waits until no other caller has claimed the counter, claims it and returns its value. Until
    /// [`release`](Self::release), `get` returns this value.
    fn claim(&self) -> u32;
    /// Sets the value of a claimed counter, and lets the next caller claim it.
    fn release(&self, value: u32);
    /// Raises the value to at least this, in one step.
    fn raise(&self, value: u32);
}

/// Storage of counts: cells of one thread, or machine words that threads share.
pub trait Memory: fmt::Debug {
    /// A counter.
    type Count: SharedCounter + fmt::Debug;
    /// The hash of a key.
    type Word: CounterSlot<u64> + fmt::Debug;
}

/// Memory of one thread.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

impl Memory for Plain {
    type Count = Cell<u32>;
    type Word = Cell<u64>;
}

macro_rules! plain_slot {
    ($number:ty) => {
        impl CounterSlot<$number> for Cell<$number> {
            fn new(value: $number) -> Self {
                Cell::new(value)
            }
            fn get(&self) -> $number {
                Cell::get(self)
            }
            fn set(&self, value: $number) {
                Cell::set(self, value);
            }
            fn add_one(&self) {
                Cell::set(self, Cell::get(self).saturating_add(1));
            }
        }
    };
}
plain_slot!(u32);
plain_slot!(u64);

/// One thread: nobody else can have claimed a counter.
impl SharedCounter for Cell<u32> {
    fn claim(&self) -> u32 {
        self.get()
    }
    fn release(&self, value: u32) {
        Cell::set(self, value);
    }
    fn raise(&self, value: u32) {
        Cell::set(self, self.get().max(value));
    }
}

/// The counters of one key, one in each row.
#[derive(Clone, Copy, Debug)]
pub struct Places<const ROWS: usize>(pub(super) [u32; ROWS]);

/// An operation on the counters of a key.
pub trait AtPlaces {
    /// Result of the operation.
    type Answer;
    /// Runs the operation.
    fn at<const ROWS: usize>(self, places: Places<ROWS>) -> Self::Answer;
}

/// A Count-Min sketch with conservative update: a key's count is the least of its counters, and only counters below the
/// new count are raised.
///
/// Every counter of a key is at least what was counted for it, so its count is never too low. Only one writer may raise
/// at a time; there may be many readers, which see a count that held at some time during the read.
#[derive(Debug)]
pub struct CountMin<M: Memory = Plain> {
    shape: Shape,
    counters: Box<[M::Count]>,
}

impl<M: Memory> CountMin<M> {
    /// Creates an empty sketch.
    pub fn new(shape: Shape) -> Self {
        Self { shape, counters: (0..shape.cells()).map(|_| M::Count::new(0)).collect() }
    }

    /// Its size.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the count in these counters: at least what was counted for the key.
    #[inline(always)]
    pub fn estimate<const ROWS: usize>(&self, places: Places<ROWS>) -> u32 {
        places.0.map(|at| self.counters[at as usize].get()).into_iter().fold(u32::MAX, u32::min)
    }

    /// Returns the counter in the first row: at least the count.
    #[inline(always)]
    pub fn at_most<const ROWS: usize>(&self, places: Places<ROWS>) -> u32 {
        self.counters[places.0[0] as usize].get()
    }

    /// Raises the count in these counters to at least `count`.
    ///
    /// Writes unconditionally: that costs less than an unpredictable branch.
    #[inline(always)]
    pub fn raise<const ROWS: usize>(&self, places: Places<ROWS>, count: u32) {
        for at in places.0 {
            let counter = &self.counters[at as usize];
            counter.set(counter.get().max(count));
        }
    }

    /// Decides and counts while others do so for their keys: `next` returns the new count of a key with this count, or
    /// `None` to leave it. Returns both.
    ///
    /// The counter in the first row is claimed meanwhile. All callers for one key claim the same, so none of them
    /// decides on a count that another is about to raise. Those for other keys may raise the other counters of this
    /// key at the same time, in one step each: a counter only grows, so it stays at least at the count of each key.
    #[inline(always)]
    pub fn update<const ROWS: usize>(
        &self,
        places: Places<ROWS>,
        next: impl FnOnce(u32) -> Option<u32>,
    ) -> (u32, Option<u32>) {
        let counters = places.0.map(|at| &self.counters[at as usize]);
        let first = counters[0].claim();
        let mut counts = counters.map(CounterSlot::get);
        counts[0] = first;
        let used = counts.into_iter().fold(u32::MAX, u32::min);
        let raised = next(used);
        if let Some(count) = raised {
            // One loop over those that are below: a branch for each row would be unpredictable.
            let bits = (1..ROWS).fold(0_u32, |bits, row| bits | (u32::from(counts[row] < count) << row));
            let mut below = bits;
            while below != 0 {
                counters[below.trailing_zeros() as usize % ROWS].raise(count);
                below &= below - 1;
            }
        }
        counters[0].release(raised.map_or(first, |count| count.max(first)));
        (used, raised)
    }

    /// Forgets every count, after all callers that are in [`update`](Self::update). Those that come later must not
    /// raise any count until this returns.
    pub fn clear_after_updates(&self) {
        let (first, others) = self.counters.split_at(self.shape.width() as usize);
        for counter in first {
            let _ = counter.claim();
            counter.release(0);
        }
        others.iter().for_each(|counter| counter.set(0));
    }

    /// The count of the key with this hash.
    #[inline]
    pub fn estimate_of(&self, hash: u64) -> u32 {
        self.shape.at_places(hash, Estimate(self))
    }

    /// Raises the count of the key with this hash to at least `count`.
    #[inline]
    pub fn raise_of(&self, hash: u64, count: u32) {
        self.shape.at_places(hash, Raise(self, count));
    }

    /// Forgets every count.
    pub fn clear(&self) {
        self.counters.iter().for_each(|counter| counter.set(0));
    }
}

struct Estimate<'a, M: Memory>(&'a CountMin<M>);
struct Raise<'a, M: Memory>(&'a CountMin<M>, u32);

impl<M: Memory> AtPlaces for Estimate<'_, M> {
    type Answer = u32;

    #[inline(always)]
    fn at<const ROWS: usize>(self, places: Places<ROWS>) -> u32 {
        self.0.estimate(places)
    }
}

impl<M: Memory> AtPlaces for Raise<'_, M> {
    type Answer = ();

    #[inline(always)]
    fn at<const ROWS: usize>(self, places: Places<ROWS>) {
        self.0.raise(places, self.1);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn sketch_a_count_is_never_too_low(
            asks in proptest::collection::vec((0_u64..40, 1_u32..5), 1..300), width in 1_u32..20, depth in 1_u32..5
        ) {
            let sketch = CountMin::<Plain>::new(Shape::new(width, depth).unwrap());
            let mut truth = HashMap::new();
            for (key, units) in asks {
                let hash = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                sketch.raise_of(hash, sketch.estimate_of(hash) + units);
                *truth.entry(key).or_insert(0) += units;
                prop_assert!(sketch.estimate_of(hash) >= truth[&key]);
            }
        }
    }

    #[test]
    fn sketch_keys_with_a_counter_of_their_own_are_counted_exactly() {
        let sketch = CountMin::<Plain>::new(Shape::new(1_000, 8).unwrap());
        let hash = |key: u64| key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for key in 1..=50 {
            sketch.raise_of(hash(key), key as u32);
        }
        assert!((1..=50).all(|key| sketch.estimate_of(hash(key)) == key as u32));
        sketch.clear();
        assert_eq!(sketch.estimate_of(hash(7)), 0);
    }
}
