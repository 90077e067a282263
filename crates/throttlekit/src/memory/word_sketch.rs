//! Estimates of words: a Count-Min sketch whose cells are the greatest words of the keys that share them.
//!
//! Words are ordered, and the join of two debts is the greater word. So a key's cells are raised to its word, its
//! estimate is the least of them, and that is never below the key's own word: others only raise cells. A word below the
//! floor counts as none, so nothing is swept.

use std::sync::atomic::Ordering::{AcqRel, Acquire};

use throttlekit_core::rate::estimate::ROWS;

use crate::sync::AtomicU64;

pub(super) struct WordSketch {
    /// One row after the other.
    cells: Box<[AtomicU64]>,
}

impl WordSketch {
    /// Creates a sketch of at most `cells` cells, and at least two in each row.
    pub(super) fn new(cells: usize) -> Self {
        let cells = (cells / ROWS).max(2) * ROWS;
        Self { cells: (0..cells).map(|_| AtomicU64::new(0)).collect() }
    }

    pub(super) const fn bytes(cells: usize) -> usize {
        cells * size_of::<u64>()
    }

    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }

    /// Returns the greatest word the key can have been counted with.
    pub(super) fn least(&self, key: u64) -> u64 {
        places(key, self.cells.len() / ROWS)
            .into_iter()
            .fold(u64::MAX, |least, place| least.min(self.cells[place].load(Acquire)))
    }

    /// Counts a key with this word. One thread at a time per key; different keys concurrently.
    pub(super) fn raise(&self, key: u64, word: u64) {
        for place in places(key, self.cells.len() / ROWS) {
            self.cells[place].fetch_max(word, AcqRel);
        }
    }

    /// A seeded bug: cells are stored, whatever others raised them to meanwhile.
    #[cfg(all(test, loom))]
    pub(super) fn store(&self, key: u64, word: u64) {
        for place in places(key, self.cells.len() / ROWS) {
            if self.cells[place].load(Acquire) < word {
                self.cells[place].store(word, std::sync::atomic::Ordering::Release);
            }
        }
    }

    /// Returns the number of cells that hold a greater word.
    pub(super) fn above(&self, floor: u64) -> usize {
        self.cells.iter().filter(|cell| cell.load(Acquire) > floor).count()
    }
}

/// Returns the cells of a key, one in each row of `width`. Two rows take their column from one 64-bit number: the first
/// off its top, the other off the fraction that is left.
pub(super) fn places(key: u64, width: usize) -> [usize; ROWS] {
    let lanes = [mixed(key ^ 0x5851_F42D_4C95_7F2D), mixed(key.rotate_left(29) ^ 0x1405_7B7E_F767_814F)];
    std::array::from_fn(|row| {
        let first = u128::from(lanes[row / 2]) * width as u128;
        let column =
            if row % 2 == 0 { first >> 64 } else { (u128::from(first as u64) * width as u128) >> 64 };
        row * width + column as usize
    })
}

/// Returns another 64 bits that depend on all of the key: the finisher of SplitMix64.
pub(super) fn mixed(key: u64) -> u64 {
    let key = (key ^ (key >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let key = (key ^ (key >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    key ^ (key >> 31)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn key(index: u64) -> u64 {
        mixed(index + 1)
    }

    #[test]
    fn an_estimate_is_never_below_what_was_counted() {
        let sketch = WordSketch::new(64);
        let words: Vec<u64> = (0..500).map(|index| mixed(index) >> 40).collect();
        for (index, word) in words.iter().enumerate() {
            sketch.raise(key(index as u64), *word);
        }
        assert!(words.iter().enumerate().all(|(index, word)| sketch.least(key(index as u64)) >= *word));
    }

    #[test]
    fn a_key_that_shares_no_row_with_others_owes_nothing() {
        let sketch = WordSketch::new(ROWS * 4_096);
        (0..100).for_each(|index| sketch.raise(key(index), 7));
        let strangers = (1_000..11_000).filter(|index| sketch.least(key(*index)) > 0).count();
        assert!(strangers <= 1, "{strangers} of 10,000 strangers owe; (100/4096)³ of them should");
    }

    /// Rows are independent: two keys share a column in one row in `width`, in two at once in its square.
    #[test]
    fn rows_are_independent() {
        let (width, pairs) = (16, 100_000_u64);
        let (mut ones, mut twos) = (0_u64, 0_u64);
        for pair in 0..pairs {
            let [a, b] = [key(2 * pair), key(2 * pair + 1)].map(|key| places(key, width));
            let agree = a.iter().zip(b).filter(|(a, b)| **a == *b).count() as u64;
            ones += agree;
            twos += agree * agree.saturating_sub(1) / 2;
        }
        let (one, two) = (pairs * 3 / 16, pairs * 3 / 256);
        assert!(ones.abs_diff(one) < one / 20 && twos.abs_diff(two) < two / 10, "{ones} {twos}");
    }
}
