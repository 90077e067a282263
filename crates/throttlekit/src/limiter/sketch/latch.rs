//! The current window, and the right to count in it, in one word.
//!
//! ```text
//! // Open(end) => Held(end)
//! // Held(end) => Open(end) | Held(none) => Open(later end)
//! ```
//!
//! The end of a window only grows. It is removed before anything of the window is cleared, and the next is published
//! after that. So a reader that finds the same end before and after its read saw that window and no other, also while
//! another thread counts: counts of one window only rise.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use throttlekit_core::Timestamp;
use throttlekit_core::overload::SketchLimit;

use crate::sync::AtomicU64;

/// Bit that is set while a thread counts. Windows end below it.
const HELD: u64 = SketchLimit::INSTANT_MAX.as_nanos() + 1;

/// On a cache line of its own, and the neighbor that processors fetch along.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Latch {
    word: AtomicU64,
}

/// The right to count; released on drop.
pub(super) struct Held<'a> {
    latch: &'a Latch,
    ends_at: u64,
}

impl Latch {
    /// Creates a latch before the first window.
    pub(super) fn new() -> Self {
        Self { word: AtomicU64::new(0) }
    }

    /// Returns the end of the window; long ago while one is being cleared.
    #[inline(always)]
    pub(super) fn ends_at(&self) -> Timestamp {
        Timestamp::from_nanos(self.word.load(Acquire) & !HELD)
    }

    /// Returns whether the window with this end is still the current one.
    #[inline(always)]
    pub(super) fn is_still(&self, ends_at: Timestamp) -> bool {
        self.word.load(Relaxed) & !HELD == ends_at.as_nanos()
    }

    /// Waits for the current holder, a few instructions, and holds.
    #[inline(always)]
    pub(super) fn hold(&self) -> Held<'_> {
        let word = self.word.load(Relaxed);
        let ends_at =
            if word & HELD == 0 && self.word.compare_exchange(word, word | HELD, Acquire, Relaxed).is_ok() {
                word
            } else {
                self.wait()
            };
        Held { latch: self, ends_at }
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) -> u64 {
        let mut rests = 0;
        loop {
            rest(&mut rests);
            let word = self.word.load(Relaxed);
            if word & HELD == 0 && self.word.compare_exchange(word, word | HELD, Acquire, Relaxed).is_ok() {
                return word;
            }
        }
    }
}

impl Held<'_> {
    /// Returns the end of the window.
    #[inline(always)]
    pub(super) fn ends_at(&self) -> Timestamp {
        Timestamp::from_nanos(self.ends_at)
    }

    /// Ends the window, and makes another the current one once this is dropped; the counts can then be cleared.
    pub(super) fn begin(&mut self, ends_at: Timestamp) {
        debug_assert!(ends_at.as_nanos() >= self.ends_at, "windows follow each other");
        self.ends_at = ends_at.as_nanos();
        self.latch.word.store(HELD, Relaxed);
    }
}

impl Drop for Held<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.latch.word.store(self.ends_at, Release);
    }
}

/// Gives the holder time for several requests: the memory they count in stays with one processor as long. A retry at
/// once would take it away in the middle of each.
#[cfg(not(loom))]
pub(super) fn rest(rests: &mut u32) {
    const SPINS: u32 = 16;
    const RESTS_BEFORE_YIELD: u32 = 16;
    *rests = rests.saturating_add(1);
    if *rests > RESTS_BEFORE_YIELD {
        return std::thread::yield_now();
    }
    (0..SPINS).for_each(|_| std::hint::spin_loop());
}

#[cfg(loom)]
pub(super) fn rest(_rests: &mut u32) {
    loom::thread::yield_now();
}
