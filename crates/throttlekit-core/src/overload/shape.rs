//! The size of a sketch, and the counters that belong to a key.

use core::fmt;

use super::count_min::{AtPlaces, Places};

/// Rows and columns of a sketch.
///
/// With `width ≥ e/ε` and `depth ≥ ln(1/δ)` a key is counted too high by more than ε·N with probability at most δ,
/// where N is the sum of all counts. It is never counted too low.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    width: u32,
    depth: u32,
    /// Number of rows that take their column from one 64-bit number.
    rows_per_lane: u32,
}

/// Reason why a sketch cannot have that size.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum ShapeError {
    /// ε or δ is not between 0 and 1.
    Error(f64),
    /// No columns, no rows, or more than [`Shape::DEPTH_MAX`] rows.
    Rows(u32, u32),
    /// More than [`Shape::CELLS_MAX`] counters.
    Cells(u64),
}

/// Bits of a 64-bit block that no row may use up: a column is then at most 2⁻¹⁶ more likely than another.
const LANE_BITS_SPARE: u32 = 16;

impl Shape {
    /// The most rows: δ down to 10⁻⁷.
    pub const DEPTH_MAX: usize = 16;
    /// The most counters: 16 MiB of them.
    pub const CELLS_MAX: u64 = 1 << 22;

    /// The smallest shape that errs by more than `epsilon` of all units with probability at most `delta`.
    ///
    /// ```
    /// use throttlekit_core::overload::Shape;
    ///
    /// let shape = Shape::for_error(0.01, 0.001)?;
    /// assert_eq!((shape.width(), shape.depth(), shape.bytes()), (272, 7, 7_616));
    /// # Ok::<(), throttlekit_core::overload::ShapeError>(())
    /// ```
    pub fn for_error(epsilon: f64, delta: f64) -> Result<Self, ShapeError> {
        for part in [epsilon, delta] {
            if !(part > 0.0 && part < 1.0) {
                return Err(ShapeError::Error(part));
            }
        }
        let width = libm::ceil(core::f64::consts::E / epsilon);
        let depth = libm::ceil(libm::log(1.0 / delta));
        if width > Self::CELLS_MAX as f64 {
            return Err(ShapeError::Cells(width as u64));
        }
        Self::new(width as u32, depth as u32)
    }

    /// Creates a shape of `width` columns and `depth` rows.
    pub fn new(width: u32, depth: u32) -> Result<Self, ShapeError> {
        if width == 0 || depth == 0 || depth as usize > Self::DEPTH_MAX {
            return Err(ShapeError::Rows(width, depth));
        }
        let cells = u64::from(width) * u64::from(depth);
        if cells > Self::CELLS_MAX {
            return Err(ShapeError::Cells(cells));
        }
        let bits = (u32::BITS - (width - 1).leading_zeros()).max(1);
        Ok(Self { width, depth, rows_per_lane: (u64::BITS - LANE_BITS_SPARE) / bits })
    }

    /// Columns.
    pub fn width(self) -> u32 {
        self.width
    }

    /// Rows.
    pub fn depth(self) -> u32 {
        self.depth
    }

    /// Counters.
    pub fn cells(self) -> usize {
        self.width as usize * self.depth as usize
    }

    /// Bytes that the counters take.
    pub fn bytes(self) -> usize {
        self.cells() * size_of::<u32>()
    }

    /// Runs `work` on the counters of the key with this hash, one in each row. Their number is known at compile time.
    ///
    /// Kept in registers, counters are found, read and written in half the time that a loop over memory takes.
    #[inline(always)]
    pub fn at_places<W: AtPlaces>(self, hash: u64, work: W) -> W::Answer {
        macro_rules! by_depth {
            ($($rows:literal)*) => {
                match self.depth {
                    $($rows => work.at(self.places::<$rows>(hash)),)*
                    _ => work.at(self.places::<{ Self::DEPTH_MAX }>(hash)),
                }
            };
        }
        by_depth!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    }

    /// The same, one after the other.
    pub(super) fn each_place(self, hash: u64) -> impl Iterator<Item = usize> {
        let mut columns = Columns::new(self, hash);
        (0..self.depth).map(move |_| columns.next_place() as usize)
    }

    #[inline(always)]
    fn places<const ROWS: usize>(self, hash: u64) -> Places<ROWS> {
        debug_assert_eq!(self.depth as usize, ROWS);
        let (mut columns, mut places) = (Columns::new(self, hash), [0; ROWS]);
        places.iter_mut().for_each(|place| *place = columns.next_place());
        Places(places)
    }
}

/// Derives columns from a hash.
///
/// Each row takes a column off the top of a 64-bit block and leaves the fraction for the next row, as one reads digits
/// in base `width`. So the columns of one block are as independent as the bits of the hash, whatever the width. When a
/// block is short of bits the next begins, mixed again from the whole hash.
struct Columns {
    shape: Shape,
    hash: u64,
    lane: u64,
    lanes: u64,
    left: u32,
    row_begins: u32,
}

impl Columns {
    #[inline(always)]
    fn new(shape: Shape, hash: u64) -> Self {
        Self { shape, hash, lane: hash, lanes: 0, left: shape.rows_per_lane, row_begins: 0 }
    }

    #[inline(always)]
    fn next_place(&mut self) -> u32 {
        if self.left == 0 {
            self.lanes += 1;
            self.lane = next_lane(self.hash, self.lanes);
            self.left = self.shape.rows_per_lane;
        }
        self.left -= 1;
        let product = u128::from(self.lane) * u128::from(self.shape.width);
        self.lane = product as u64;
        let place = self.row_begins + (product >> 64) as u32;
        self.row_begins += self.shape.width;
        place
    }
}

/// Another 64 bits that depend on all of the hash: the finisher of SplitMix64.
#[inline]
fn next_lane(hash: u64, lanes: u64) -> u64 {
    let mut z = hash.wrapping_add(lanes.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(part) => {
                write!(f, "invalid ε or δ {part}: expected a number between 0 and 1, such as 0.01 and 0.001")
            }
            Self::Rows(width, depth) => write!(
                f,
                "invalid sketch of {width} columns and {depth} rows: expected at least one of each and at \
                 most {} rows",
                Shape::DEPTH_MAX
            ),
            Self::Cells(cells) => {
                write!(
                    f,
                    "too many counters in a sketch: {cells}, at most {}; use a larger ε",
                    Shape::CELLS_MAX
                )
            }
        }
    }
}

impl core::error::Error for ShapeError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    struct Listed;

    impl AtPlaces for Listed {
        type Answer = Vec<usize>;

        fn at<const ROWS: usize>(self, places: Places<ROWS>) -> Vec<usize> {
            places.0.iter().map(|at| *at as usize).collect()
        }
    }

    #[test]
    fn sizes_follow_from_the_error_that_is_allowed() {
        let shape = |epsilon, delta| Shape::for_error(epsilon, delta).map(|s| (s.width(), s.depth()));
        assert_eq!(shape(0.01, 0.001), Ok((272, 7)));
        assert_eq!(shape(0.001, 0.000_1), Ok((2_719, 10)));
        assert_eq!(shape(0.5, 0.9), Ok((6, 1)));
        assert!(shape(0.0, 0.1).is_err() && shape(0.1, 1.0).is_err() && shape(f64::NAN, 0.1).is_err());
        assert!(shape(1e-300, 0.1).is_err() && shape(0.1, 1e-300).is_err());
        assert!(Shape::new(0, 1).is_err() && Shape::new(1, 17).is_err() && Shape::new(1 << 22, 2).is_err());
    }

    #[test]
    fn keys_that_share_a_column_in_some_rows_do_not_share_the_others_more_often() {
        // Over many pairs of hashes, how often rows agree: once in `width`, and for two rows once in its square.
        for (width, depth) in [(16, 6), (17, 6), (2, 16)] {
            let shape = Shape::new(width, depth).unwrap();
            let pairs = 200_000_u64;
            let (mut ones, mut twos) = (0_u64, 0_u64);
            for pair in 0..pairs {
                let [a, b] = [1, 2].map(|lane| shape.each_place(next_lane(pair, lane)));
                let agree = a.zip(b).filter(|(a, b)| a == b).count() as u64;
                ones += agree;
                twos += agree * agree.saturating_sub(1) / 2;
            }
            let (width, depth) = (u64::from(width), u64::from(depth));
            let (one, two) = (pairs * depth / width, pairs * depth * (depth - 1) / 2 / (width * width));
            assert!(ones.abs_diff(one) < one / 20, "{ones} of {one} single agreements at width {width}");
            assert!(twos.abs_diff(two) < two / 10, "{twos} of {two} double agreements at width {width}");
        }
    }

    proptest! {
        #[test]
        fn every_row_has_one_counter_of_the_key(hash: u64, width in 1_u32..5_000, depth in 1_u32..=16) {
            let shape = Shape::new(width, depth).unwrap();
            for (row, place) in shape.each_place(hash).enumerate() {
                prop_assert_eq!(place / width as usize, row);
            }
            prop_assert_eq!(shape.at_places(hash, Listed), shape.each_place(hash).collect::<Vec<_>>());
        }
    }
}
