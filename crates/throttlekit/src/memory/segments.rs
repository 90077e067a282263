//! Capacity beyond the first table, allocated a segment at a time.
//!
//! A segment has cells for keys and, beside them, a sketch for those that find no cell. The key determines its segment,
//! so segments fill evenly. One is allocated when the first of its keys needs it: 64 KiB, some microseconds. Nothing is
//! ever moved.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use super::budget::{Capacity, ESTIMATES_PART};
use super::cache_lines::{CELLS_PER_LINE, LINE_BYTES, LINES_MIN, Lines, scale};
use super::word_sketch::{WordSketch, mixed};
use crate::sync::AtomicU64;

/// Nine cells for four keys: the expected number of keys then each find a cell, and nearly all in their home line, as a
/// test shows.
const CELLS_PER_4_KEYS: usize = 9;
const SEGMENT_BYTES: usize = 64 << 10;
/// The first table has one sketch cell for this many lines.
const LINES_PER_SKETCH_CELL: usize = 2;

/// Layout of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Lines of the first table.
    pub(super) lines: usize,
    /// Cells of its sketch.
    pub(super) sketch: usize,
    segments: usize,
    segment_lines: usize,
    segment_sketch: usize,
}

impl Layout {
    pub(super) fn of(capacity: Capacity) -> Self {
        // Most of a small budget goes into segments, which have estimates; three quarters are the first table's at most.
        let first_max = capacity.bytes / 4 * 3 / (LINE_BYTES + size_of::<u64>() / LINES_PER_SKETCH_CELL);
        let wanted = capacity.expected_keys.saturating_mul(CELLS_PER_4_KEYS).div_ceil(4 * CELLS_PER_LINE);
        let lines = even(wanted.min(first_max)).max(LINES_MIN);
        let sketch = lines / LINES_PER_SKETCH_CELL;
        let left = capacity.bytes.saturating_sub(lines * LINE_BYTES + WordSketch::bytes(sketch));
        let each = left.min(SEGMENT_BYTES);
        let segment_sketch = each / ESTIMATES_PART / size_of::<u64>();
        let segment_lines = even((each - each / ESTIMATES_PART) / LINE_BYTES);
        Self { lines, sketch, segments: (left / SEGMENT_BYTES).max(1), segment_lines, segment_sketch }
    }

    fn segment_bytes(&self) -> usize {
        self.segment_lines * LINE_BYTES + WordSketch::bytes(self.segment_sketch)
    }

    pub(super) fn first_bytes(&self) -> usize {
        self.lines * LINE_BYTES + WordSketch::bytes(self.sketch)
    }

    /// Cells of the first table and of all segments.
    pub(super) fn cells(&self) -> usize {
        (self.lines + self.segments * self.segment_lines) * CELLS_PER_LINE
    }
}

fn even(lines: usize) -> usize {
    lines & !1
}

pub(super) struct Segments {
    layout: Layout,
    segments: Box<[OnceLock<Segment>]>,
}

pub(super) struct Segment {
    /// None in a budget too small for a table of four lines.
    lines: Option<Lines>,
    pub(super) sketch: WordSketch,
    /// Charges that were counted in the sketch.
    pub(super) estimated: AtomicU64,
}

impl Segments {
    pub(super) fn new(layout: Layout) -> Self {
        Self { layout, segments: (0..layout.segments).map(|_| OnceLock::new()).collect() }
    }

    /// Returns the key's segment, if it was ever needed.
    pub(super) fn get(&self, key: u64) -> Option<&Segment> {
        self.segments[self.place(key)].get()
    }

    /// Returns the key's segment, and allocates it if necessary.
    pub(super) fn get_or_allocate(&self, key: u64) -> &Segment {
        self.segments[self.place(key)].get_or_init(|| Segment::new(&self.layout))
    }

    pub(super) fn allocated(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter_map(OnceLock::get)
    }

    /// Visits all segments, also those that are not allocated.
    pub(super) fn each(&self, see: impl FnMut(Option<&Segment>)) {
        self.segments.iter().map(OnceLock::get).for_each(see);
    }

    /// Returns the bytes of the allocated segments and of the first table.
    pub(super) fn bytes(&self) -> usize {
        self.layout.first_bytes() + self.allocated().count() * self.layout.segment_bytes()
    }

    pub(super) fn cells(&self) -> usize {
        self.layout.cells()
    }

    fn place(&self, key: u64) -> usize {
        scale(mixed(key), self.segments.len())
    }
}

impl Segment {
    fn new(layout: &Layout) -> Self {
        Self {
            lines: (layout.segment_lines >= LINES_MIN).then(|| Lines::new(layout.segment_lines)),
            sketch: WordSketch::new(layout.segment_sketch),
            estimated: AtomicU64::new(0),
        }
    }

    pub(super) fn lines(&self) -> Option<&Lines> {
        self.lines.as_ref()
    }

    /// Counts a key for which there is no cell.
    pub(super) fn count(&self, key: u64, word: u64) {
        self.sketch.raise(key, word);
        self.estimated.fetch_add(1, Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn no_layout_takes_more_than_its_budget() {
        for bytes in (10..30).flat_map(|bits| [1 << bits, (1 << bits) + 12_345]) {
            for expected_keys in [1, 1_000, 1 << 16, 1 << 20, 1 << 30] {
                let layout = Layout::of(Capacity { bytes, expected_keys });
                let all = layout.first_bytes() + layout.segments * layout.segment_bytes();
                assert!(all <= bytes, "{bytes} bytes for {expected_keys} keys: {layout:?} takes {all}");
                assert!((all + SEGMENT_BYTES) * 10 >= bytes * 9, "{bytes} bytes: {layout:?} takes {all}");
            }
        }
    }

    #[test]
    fn a_million_keys_fit_the_default_twice() {
        let layout = Layout::of(Capacity::default());
        assert!(layout.cells() > 2_500_000, "{} cells", layout.cells());
        assert!(layout.first_bytes() < 5 << 19, "{} bytes at once", layout.first_bytes());
    }
}
