//! A block of cells in cache lines, and the sixteen of them in which a key may live.

use std::hint::select_unpredictable;

use super::cell::Cell;

pub(super) const CELLS_PER_LINE: usize = 4;
pub(super) const LINE_BYTES: usize = size_of::<Line>();
/// Two pairs, so that the first two lines are not the last two.
pub(super) const LINES_MIN: usize = 4;
/// A new key goes to its second pair of lines when the first has fewer free cells than this.
const FREE_MIN_AT_HOME: usize = 2;

/// One cache line.
#[repr(align(64))]
pub(super) struct Line([Cell; CELLS_PER_LINE]);

/// An even number of lines, so that each has a neighbor. A key lives in its home line, the neighbor of that, a second
/// line elsewhere, or its neighbor.
pub(super) struct Lines(Box<[Line]>);

/// A cell whose owner has no usage left, or that has no owner.
pub(super) struct Free<'a> {
    pub(super) cell: &'a Cell,
    pub(super) seen: u64,
}

impl Lines {
    pub(super) fn new(lines: usize) -> Self {
        debug_assert!(lines >= LINES_MIN && lines.is_multiple_of(2));
        Self((0..lines).map(Line::empty).collect())
    }

    pub(super) fn as_slice(&self) -> &[Line] {
        &self.0
    }

    /// Returns the cell in the home line that is the key's if any there is.
    #[inline(always)]
    pub(super) fn likely(&self, key: u64) -> &Cell {
        self.0[self.home(key)].likely(key)
    }

    pub(super) fn find(&self, key: u64) -> Option<&Cell> {
        self.pair(self.home(key)).chain(self.pair(self.second(key))).find(|cell| cell.key() == key)
    }

    /// Returns a free cell for a new key, in the home line unless that is crowded.
    pub(super) fn free(&self, key: u64, floor: u64) -> Option<Free<'_>> {
        let (home, second) = (self.home(key), self.second(key));
        let free = |line| self.free_in(line, floor);
        let free_at_home = free(home).count();
        let crowded = free_at_home < FREE_MIN_AT_HOME && free(second).count() > free_at_home;
        let (first, then) = if crowded { (second, home) } else { (home, second) };
        let unused = free(first).find(|free| free.seen == 0);
        unused.or_else(|| free(first).chain(free(then)).next())
    }

    fn free_in(&self, line: usize, floor: u64) -> impl Iterator<Item = Free<'_>> {
        self.pair(line).filter_map(move |cell| match cell.word() {
            (seen, false) if seen < floor || seen == 0 => Some(Free { cell, seen }),
            _ => None,
        })
    }

    /// Returns the number of cells that hold a word above the floor.
    pub(super) fn live(&self, floor: u64) -> usize {
        self.0.iter().flat_map(|line| &line.0).filter(|cell| cell.word().0 > floor).count()
    }

    /// Returns the lines beside the home line in which a key may live.
    pub(super) fn others(&self, key: u64) -> [usize; 3] {
        [self.home(key) ^ 1, self.second(key), self.second(key) ^ 1]
    }

    /// Returns the cells of a line and of its neighbor.
    fn pair(&self, line: usize) -> impl Iterator<Item = &Cell> {
        self.0[line].0.iter().chain(&self.0[line ^ 1].0)
    }

    /// Returns the line in which a key is looked up, and added, first.
    #[inline(always)]
    pub(super) fn home(&self, key: u64) -> usize {
        scale(key, self.0.len())
    }

    fn second(&self, key: u64) -> usize {
        scale(key.rotate_left(32), self.0.len())
    }
}

impl Line {
    /// Returns the cell that is the key's if any of this line is. Takes no branch on the index, which is unpredictable.
    #[inline(always)]
    pub(super) fn likely(&self, key: u64) -> &Cell {
        let [a, b, c, d] = &self.0;
        let cell = select_unpredictable(b.key() == key, b, a);
        let cell = select_unpredictable(c.key() == key, c, cell);
        select_unpredictable(d.key() == key, d, cell)
    }

    /// Creates an unused line. Keys of all zeros and of all ones are looked up only in the first two and the last two
    /// lines, so in each line one of them can represent no owner.
    fn empty(line: usize) -> Self {
        let nobody = if line < 2 { u64::MAX } else { 0 };
        Self(std::array::from_fn(|_| Cell::empty(nobody)))
    }
}

/// Spreads 64 random bits over `0..len`.
#[inline(always)]
pub(super) fn scale(bits: u64, len: usize) -> usize {
    ((u128::from(bits) * len as u128) >> 64) as usize
}
