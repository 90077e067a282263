//! Estimates of states that are more than a word, kept under a lock.
//!
//! The cells of a key lie in one block of the sketch, so memory is taken a block at a time, as keys need it. If the budget
//! has no more blocks, keys share one that every sketch has.

use throttlekit_core::Timestamp;
use throttlekit_core::rate::State;
use throttlekit_core::rate::estimate::{Estimates, ROWS};

use super::budget::Account;
use super::cache_lines::scale;
use super::key_memory::Collisions;
use super::word_sketch::{mixed, places};

/// Cells of a block where the budget is not too small for it: 4 KiB.
const BLOCK_CELLS: usize = 512;
/// Cells shared by keys for which the budget has no block.
const SHARED_CELLS: usize = 64;

type Block = Option<Box<[u64]>>;

#[derive(Default)]
pub(super) struct Sketch {
    blocks: Box<[Block]>,
    /// Allocated beyond the budget if necessary: what a key owes is never forgotten.
    shared: Block,
    /// Time after which no cell was raised.
    latest: Timestamp,
    /// Charges that were counted here.
    pub(super) estimated: u64,
}

/// Maximum size of a sketch.
#[derive(Clone, Copy)]
pub(super) struct SketchSize {
    blocks: usize,
    cells: usize,
}

impl SketchSize {
    /// Returns the size of one of `sketches` sketches that share these bytes.
    pub(super) fn of(bytes: usize, sketches: usize) -> Self {
        let cells = bytes / size_of::<u64>() / sketches.max(1);
        Self {
            blocks: (cells / BLOCK_CELLS).max(1),
            cells: (cells / ROWS).clamp(2, BLOCK_CELLS / ROWS) * ROWS,
        }
    }
}

impl Sketch {
    /// Returns the estimate of a key, if it may owe something at `now`.
    pub(super) fn state(&self, estimates: &Estimates, key: u64, now: Timestamp) -> Option<State> {
        let latest = self.latest.max(now);
        let own = self.blocks.get(self.place(key)).and_then(Option::as_ref);
        let states = own.into_iter().chain(&self.shared).filter_map(|block| {
            estimates.state(places(key, block.len() / ROWS).map(|cell| block[cell]), now, latest)
        });
        states.reduce(|one, other| estimates.join(one, &other))
    }

    /// Counts a key with this state.
    pub(super) fn raise(
        &mut self,
        (estimates, key, now): (&Estimates, u64, Timestamp),
        state: &State,
        (size, account): (SketchSize, &Account),
    ) {
        if self.blocks.is_empty() {
            self.blocks = std::iter::repeat_with(|| None).take(size.blocks).collect();
        }
        self.latest = self.latest.max(now);
        let place = self.place(key);
        let block = self.block(place, size.cells, account);
        for cell in places(key, block.len() / ROWS) {
            block[cell] = estimates.raise(block[cell], state, now);
        }
    }

    fn block(&mut self, place: usize, cells: usize, account: &Account) -> &mut [u64] {
        let fresh = |cells| vec![0; cells].into_boxed_slice();
        match &mut self.blocks[place] {
            Some(block) => block,
            none if account.take_for_estimates(cells * size_of::<u64>()) => none.insert(fresh(cells)),
            _ => self.shared.get_or_insert_with(|| fresh(cells.min(SHARED_CELLS))),
        }
    }

    /// Returns whether any key that was counted may owe something at `now`.
    #[cfg(feature = "store")]
    pub(super) fn is_alive(&self, estimates: &Estimates, now: Timestamp) -> bool {
        let blocks = self.blocks.iter().chain([&self.shared]).flatten();
        blocks.flat_map(|block| block.iter()).any(|cell| self.cell_is_alive(*cell, estimates, now))
    }

    fn cell_is_alive(&self, cell: u64, estimates: &Estimates, now: Timestamp) -> bool {
        cell != 0 && estimates.state([cell; ROWS], now, self.latest.max(now)).is_some()
    }

    fn place(&self, key: u64) -> usize {
        scale(mixed(key), self.blocks.len())
    }

    pub(super) fn add_to(&self, collisions: &mut Collisions, estimates: &Estimates, now: Timestamp) {
        for block in &self.blocks {
            let cells = block.as_deref().unwrap_or_default();
            let alive = cells.iter().filter(|cell| self.cell_is_alive(**cell, estimates, now)).count();
            collisions.add(alive, cells.len());
        }
    }
}
