//! One key's state in two words, changed by compare-and-swap.
//!
//! Four rules make it safe without versions or locks on the way of a hit:
//!
//! 1. The key changes only while the word is held ([`HELD`]).
//! 2. Whoever hands a cell to another key leaves a word greater than the one found there. So a word never comes
//!    back under another key, and a compare-and-swap prepared for the old owner fails.
//! 3. A reader loads the word, then checks the key: if the key still stands, the word was that key's.
//! 4. A miss is believed only by the thread that holds the key's stripe lock (see `table`).
//!
//! ```text
//! // Empty => Held => Owned
//! // Owned => Owned (charge) | Held
//! // Held  => Owned (same key or the next)
//! ```

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use throttlekit_core::rate::word::{WORD_MAX, WordRule};
use throttlekit_core::{Cost, Decision, Timestamp};

use crate::sync::AtomicU64;

/// The bit of a word that says: someone is about to change this cell.
const HELD: u64 = WORD_MAX + 1;

/// The key of a cell that nobody has used.
pub(super) const EMPTY: u64 = 0;
/// The key of a cell whose owner was reset; its word stays until time has passed it.
pub(super) const ORPHAN: u64 = 1;

pub(crate) struct Cell {
    key: AtomicU64,
    word: AtomicU64,
}

/// Why a cell did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missed {
    /// It is not, or no longer, that key's.
    Gone,
    /// Someone holds it for a moment.
    Busy,
}

impl Cell {
    pub(super) fn empty() -> Self {
        Self { key: AtomicU64::new(EMPTY), word: AtomicU64::new(0) }
    }

    #[inline(always)]
    pub(super) fn key(&self) -> u64 {
        self.key.load(Acquire)
    }

    /// The word as it was last left, and whether someone is holding the cell now.
    #[inline]
    pub(super) fn word(&self) -> (u64, bool) {
        let word = self.word.load(Acquire);
        (word & WORD_MAX, word & HELD != 0)
    }

    /// Answers an ask by `key` and charges it if allowed.
    #[inline(always)]
    pub(super) fn check<R: WordRule>(
        &self,
        key: u64,
        rule: &R,
        cost: Cost,
        floor: u64,
        now: Timestamp,
    ) -> Result<Decision, Missed> {
        let mut word = self.word.load(Acquire);
        loop {
            self.still_of(key, word)?;
            let step = rule.step(word, floor, cost, now);
            if !step.decision.allowed || cost == 0 {
                return Ok(step.decision);
            }
            match self.word.compare_exchange(word, step.next, AcqRel, Acquire) {
                Ok(_) => return Ok(step.decision),
                Err(newer) => word = newer,
            }
        }
    }

    /// Holds the cell for `key`, whatever its word.
    pub(super) fn hold_for(&self, key: u64) -> Result<u64, Missed> {
        let mut word = self.word.load(Acquire);
        loop {
            self.still_of(key, word)?;
            match self.word.compare_exchange(word, word | HELD, AcqRel, Acquire) {
                Ok(_) => return Ok(word),
                Err(newer) => word = newer,
            }
        }
    }

    /// Whether the word just loaded belongs to `key` and is free to change.
    #[inline(always)]
    fn still_of(&self, key: u64, word: u64) -> Result<(), Missed> {
        if self.key.load(Relaxed) != key {
            Err(Missed::Gone)
        } else if word & HELD != 0 {
            Err(Missed::Busy)
        } else {
            Ok(())
        }
    }

    /// Holds the cell if its word is still the one seen.
    #[inline]
    pub(super) fn hold(&self, seen: u64) -> bool {
        self.word.compare_exchange(seen, seen | HELD, AcqRel, Relaxed).is_ok()
    }

    /// Gives a held cell back to its key.
    #[inline]
    pub(super) fn release(&self, word: u64) {
        self.word.store(word, Release);
    }

    /// Gives a held cell to another key. The word must be greater than the one found.
    #[inline]
    pub(super) fn hand_over(&self, key: u64, word: u64) {
        debug_assert!(word > self.word.load(Relaxed) & WORD_MAX, "words grow when a cell changes hands");
        self.key.store(key, Release);
        self.word.store(word, Release);
    }

    /// Takes the cell from `key`, leaving its word for time to pass.
    pub(super) fn orphan(&self, key: u64) -> Result<(), Missed> {
        let word = self.hold_for(key)?;
        self.key.store(ORPHAN, Release);
        self.release(word);
        Ok(())
    }
}
