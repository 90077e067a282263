//! A sketch that can be added to others, to count across many nodes.

use alloc::boxed::Box;
use alloc::vec;
use core::fmt;

use super::Shape;

/// A Count-Min sketch with plain update: every counter of a key grows by what is counted.
///
/// It is linear. The sum of two sketches is the sketch of both streams, counter for counter, so nodes can exchange
/// sketches and each can estimate a key's total over all nodes. Counts are never too low, and too high by more than ε
/// of the [`total`](Self::total) with probability at most δ. Counters saturate.
///
/// Sketches can be added only if they have the same shape and count by the same hash. `print` identifies the hash: a
/// number derived from its secret that does not reveal it.
///
/// ```
/// use throttlekit_core::overload::{LinearSketch, Shape};
///
/// let shape = Shape::for_error(0.01, 0.001)?;
/// let (mut here, mut there) = (LinearSketch::new(shape, 7), LinearSketch::new(shape, 7));
/// here.observe(0xA11CE, 60);
/// there.observe(0xA11CE, 60);
/// here.merge(&LinearSketch::from_bytes(&there.to_bytes())?)?;
/// assert_eq!((here.estimate(0xA11CE), here.total()), (120, 120));
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinearSketch {
    pub(super) shape: Shape,
    pub(super) print: u64,
    pub(super) total: u64,
    pub(super) counters: Box<[u32]>,
}

/// Result of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Merged {
    /// The sketch is now that of both streams, counter for counter.
    Exact,
    /// Some counters saturated, or the total did: the true counts are at least that.
    Saturated {
        /// Counters that are saturated at 2³²−1, in this merge or before.
        counters: usize,
    },
}

/// Reason why two sketches cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MergeError {
    /// They have different sizes: width and depth of each.
    Shape([u32; 2], [u32; 2]),
    /// They count by different hashes.
    Seed,
}

impl LinearSketch {
    /// Creates an empty sketch.
    pub fn new(shape: Shape, print: u64) -> Self {
        Self { shape, print, total: 0, counters: vec![0; shape.cells()].into() }
    }

    /// Its size.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// All units counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Counts units for the key with this hash.
    pub fn observe(&mut self, hash: u64, units: u64) {
        let more = u32::try_from(units).unwrap_or(u32::MAX);
        for at in self.shape.each_place(hash) {
            self.counters[at] = self.counters[at].saturating_add(more);
        }
        self.total = self.total.saturating_add(units);
    }

    /// Returns an upper bound of what was counted for the key with this hash.
    pub fn estimate(&self, hash: u64) -> u32 {
        self.shape.each_place(hash).fold(u32::MAX, |least, at| least.min(self.counters[at]))
    }

    /// Adds what another sketch counted.
    pub fn merge(&mut self, other: &Self) -> Result<Merged, MergeError> {
        if self.shape != other.shape {
            let of = |shape: Shape| [shape.width(), shape.depth()];
            return Err(MergeError::Shape(of(self.shape), of(other.shape)));
        }
        if self.print != other.print {
            return Err(MergeError::Seed);
        }
        let mut full = 0;
        for (mine, more) in self.counters.iter_mut().zip(&other.counters) {
            // One that is saturated may have been counted beyond its maximum before.
            *mine = mine.saturating_add(*more);
            full += usize::from(*mine == u32::MAX);
        }
        let total_full = self.total.checked_add(other.total).is_none();
        self.total = self.total.saturating_add(other.total);
        Ok(if full == 0 && !total_full { Merged::Exact } else { Merged::Saturated { counters: full } })
    }

    /// Forgets everything counted.
    pub fn clear(&mut self) {
        self.counters.fill(0);
        self.total = 0;
    }
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape([width, depth], [other_width, other_depth]) => write!(
                f,
                "cannot merge sketches of {width}×{depth} and {other_width}×{other_depth}: use the same ε \
                 and δ on all nodes"
            ),
            Self::Seed => {
                f.write_str("cannot merge sketches with different seeds: use the same seed on all nodes")
            }
        }
    }
}

impl core::error::Error for MergeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sketches_of_another_shape_or_seed_do_not_add_up() {
        let shape = Shape::new(8, 2).unwrap();
        let mut sketch = LinearSketch::new(shape, 1);
        assert_eq!(sketch.merge(&LinearSketch::new(shape, 2)), Err(MergeError::Seed));
        let wider = LinearSketch::new(Shape::new(9, 2).unwrap(), 1);
        assert_eq!(sketch.merge(&wider), Err(MergeError::Shape([8, 2], [9, 2])));
    }

    #[test]
    fn counters_saturate_and_a_merge_reports_it() {
        let shape = Shape::new(8, 2).unwrap();
        let mut sketch = LinearSketch::new(shape, 1);
        sketch.observe(3, u64::from(u32::MAX) - 2);
        let mut other = LinearSketch::new(shape, 1);
        other.observe(3, 1);
        assert_eq!(sketch.merge(&other), Ok(Merged::Exact));
        assert_eq!(sketch.merge(&other), Ok(Merged::Saturated { counters: 2 }));
        let mut late = LinearSketch::new(shape, 1);
        assert_eq!(late.merge(&sketch), Ok(Merged::Saturated { counters: 2 }), "it ended before");
        sketch.observe(3, u64::MAX);
        assert_eq!((sketch.estimate(3), sketch.total()), (u32::MAX, u64::MAX));
    }
}
