//! One key's state in two words, changed by compare-and-swap.
//!
//! Four rules make it safe without versions or locks on the way of a hit:
//!
//! 1. The key changes only while the word is held ([`HELD`]).
//! 2. A thread that hands a cell to another key leaves a word greater than the one found there. So a word never comes
//!    back under another key, and a compare-and-swap prepared for the old owner fails. Only a reset and a refund lower
//!    words: a thread that sleeps between its load and its swap through one of them, a takeover and the new owner's way
//!    up to the very word it loaded charges its one request to the new owner. After a reset nothing is admitted that
//!    should not be. After a refund the old owner is spared that request: at most one for each thread that sleeps so,
//!    and none where words only come back within their own key, since a swap then finds the key's state as it was.
//! 3. A reader loads the word, then checks the key: if the key is unchanged, a swap of that word succeeds only for that
//!    key. A denial may rest on the word of a moment before the key took the cell, which was idle or became the key's
//!    own start.
//! 4. A miss is trusted only by the thread that holds the key's stripe lock (see `table`).
//!
//! ```text
//! // Empty => Held => Owned
//! // Owned => Owned (charge) | Held
//! // Held  => Owned (same key, also for less, or the next)
//! ```

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use throttlekit_core::rate::word::{WORD_MAX, WordRule};

use crate::sync::AtomicU64;

/// Bit of a word that is set while a thread is about to change this cell.
const HELD: u64 = WORD_MAX + 1;

pub(crate) struct Cell {
    key: AtomicU64,
    word: AtomicU64,
}

/// Result of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charged {
    /// The key's word is now this.
    Allowed(u64),
    /// The key's word is this and leaves too little.
    Denied(u64),
    /// The cell is not, or no longer, that key's, or another thread holds it for a moment.
    Missed,
}

impl Cell {
    /// Creates a cell without an owner: its word is zero, and its key one that is never looked up there.
    pub(super) fn empty(nobody: u64) -> Self {
        Self { key: AtomicU64::new(nobody), word: AtomicU64::new(0) }
    }

    #[inline(always)]
    pub(super) fn key(&self) -> u64 {
        self.key.load(Acquire)
    }

    /// Returns the word as it was last left, and whether the cell is held now.
    #[inline]
    pub(super) fn word(&self) -> (u64, bool) {
        let word = self.word.load(Acquire);
        (word & WORD_MAX, word & HELD != 0)
    }

    /// Returns the word as it was last left, if the cell is that key's.
    pub(super) fn word_of(&self, key: u64) -> Option<u64> {
        let (word, _) = self.word();
        (self.key.load(Relaxed) == key).then_some(word)
    }

    /// Charges a request by `key` if the rule allows it.
    #[inline(always)]
    pub(super) fn charge<R: WordRule>(&self, key: u64, rule: &R, cost: u64, floor: u64) -> Charged {
        let mut word = self.word.load(Acquire);
        loop {
            if self.key.load(Relaxed) != key {
                return Charged::Missed;
            }
            let Some(next) = rule.next(word, floor, cost) else {
                return if word & HELD == 0 { Charged::Denied(word) } else { Charged::Missed };
            };
            if cost == 0 {
                return Charged::Allowed(next);
            }
            match self.word.compare_exchange(word, next, AcqRel, Acquire) {
                Ok(_) => return Charged::Allowed(next),
                Err(newer) => word = newer,
            }
        }
    }

    /// Holds the cell for `key`, whatever its word. Returns `None` if it is not that key's, or held already.
    #[inline]
    pub(super) fn hold_for(&self, key: u64) -> Option<u64> {
        let mut word = self.word.load(Acquire);
        loop {
            if self.key.load(Relaxed) != key || word & HELD != 0 {
                return None;
            }
            match self.word.compare_exchange(word, word | HELD, AcqRel, Acquire) {
                Ok(_) => return Some(word),
                Err(newer) => word = newer,
            }
        }
    }

    /// Holds the cell if its word is still `seen`.
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

    /// Clears the usage of `key`, at whatever time. Returns `None` if the cell is not that key's, or held.
    pub(super) fn forgive(&self, key: u64) -> Option<()> {
        self.change(key, |_| 0)
    }

    /// Changes the key's word, upwards or downwards. Returns `None` if the cell is not that key's, or held.
    pub(super) fn change(&self, key: u64, next: impl FnOnce(u64) -> u64) -> Option<()> {
        let word = self.hold_for(key)?;
        self.release(next(word));
        Some(())
    }
}
