//! The number in flight and its limit, in one atomic word.
//!
//! ```text
//! 63      60 59      58        32 31          0
//! | turn 4 | waits 1 | limit 27 | in flight 32 |
//! ```
//!
//! One load shows limit and count of the same instant, and each admission compares and swaps both: the count never
//! exceeds the limit that was in force when it grew. A lower limit is a swap of the same word. Each admission advances
//! the turn by one, which wraps: it selects which of them are timed, without writing a second word.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::priority::Kept;
use crate::sync::AtomicU64;

const IN_FLIGHT_BITS: u32 = 32;
const TURN_BITS: u32 = 4;
const LIMIT_BITS: u32 = 27;
/// Set while the wait queue is not empty, and only under its lock.
const WAITS: u64 = 1 << (IN_FLIGHT_BITS + LIMIT_BITS);
/// One more in flight, one turn further.
const ENTER: u64 = 1 | 1 << (64 - TURN_BITS);

/// The largest limit: 134 million.
pub(super) const LIMIT_MAX: u32 = (1 << LIMIT_BITS) - 1;
/// Number of turns until the first repeats.
pub(super) const TURNS: u32 = 1 << TURN_BITS;

/// Limit and count that threads share, on a cache line of their own plus the adjacent one that processors prefetch.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Count {
    word: AtomicU64,
}

/// The word at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen(u64);

/// The result of an admission: the count including itself, the limit, that of its priority, and its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) in_flight: u32,
    pub(super) limit: u32,
    pub(super) allowed: u32,
    pub(super) turn: u32,
}

/// The result of an attempt to enter, which fits in two registers: a function that returns it out of line writes nothing
/// to memory.
#[derive(Clone, Copy)]
pub(super) struct Attempt {
    seen: Seen,
    /// The limit of the priority; zero if it was denied.
    allowed: u32,
}

impl Attempt {
    #[inline(always)]
    pub(super) fn denied(seen: Seen) -> Self {
        Self { seen, allowed: 0 }
    }

    /// Returns the admission, or the word that was read.
    #[inline(always)]
    pub(super) fn entry(self) -> Result<Entry, Seen> {
        if self.allowed == 0 { Err(self.seen) } else { Ok(self.seen.entered(self.allowed)) }
    }
}

impl Seen {
    #[inline(always)]
    pub(super) fn in_flight(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    pub(super) fn limit(self) -> u32 {
        (self.0 >> IN_FLIGHT_BITS) as u32 & LIMIT_MAX
    }

    #[inline(always)]
    pub(super) fn somebody_waits(self) -> bool {
        self.0 & WAITS != 0
    }

    /// Returns the limit, or a negative number while the queue is not empty: then every admission has to check the
    /// queue.
    #[inline(always)]
    fn limit_unless_waited_for(self) -> i64 {
        ((self.0 << TURN_BITS).cast_signed()) >> (TURN_BITS + IN_FLIGHT_BITS)
    }

    #[inline(always)]
    fn entered(self, allowed: u32) -> Entry {
        let turn = (self.0 >> (64 - TURN_BITS)) as u32;
        Entry { in_flight: self.in_flight() + 1, limit: self.limit(), allowed, turn }
    }
}

impl Count {
    pub(super) fn new(limit: u32) -> Self {
        let limit = u64::from(limit.min(LIMIT_MAX));
        Self { word: AtomicU64::new(limit << IN_FLIGHT_BITS) }
    }

    #[inline(always)]
    pub(super) fn seen(&self) -> Seen {
        Seen(self.word.load(Acquire))
    }

    /// Admits one if the queue is empty and the priority has capacity; otherwise returns the word that was read.
    #[inline(always)]
    pub(super) fn enter(&self, kept: Kept) -> Result<Entry, Seen> {
        self.enter_below(|seen| kept.leaves(seen.limit_unless_waited_for())).entry()
    }

    /// Like `enter`, but ignores the queue: for callers that hold its lock.
    pub(super) fn enter_beside_line(&self, kept: Kept) -> Attempt {
        self.enter_below(|seen| kept.leaves(i64::from(seen.limit())))
    }

    #[inline(always)]
    fn enter_below(&self, allowed: impl Fn(Seen) -> i64) -> Attempt {
        let mut seen = Seen(self.word.load(Relaxed));
        loop {
            let allowed = allowed(seen);
            if i64::from(seen.in_flight()) >= allowed {
                return Attempt::denied(seen);
            }
            let next = seen.0.wrapping_add(ENTER);
            match self.word.compare_exchange_weak(seen.0, next, Acquire, Relaxed) {
                Ok(_) => return Attempt { seen, allowed: allowed as u32 },
                Err(word) => seen = Seen(word),
            }
        }
    }

    /// Removes one; returns the word before that.
    #[inline(always)]
    pub(super) fn leave(&self) -> Seen {
        let seen = Seen(self.word.fetch_sub(1, AcqRel));
        debug_assert!(seen.in_flight() > 0, "nobody was in flight");
        seen
    }

    /// Applies another limit; returns the word before that.
    pub(super) fn set_limit(&self, limit: u32) -> Seen {
        let limit = u64::from(limit.min(LIMIT_MAX)) << IN_FLIGHT_BITS;
        let field = u64::from(LIMIT_MAX) << IN_FLIGHT_BITS;
        let mut word = self.word.load(Relaxed);
        while let Err(now) = self.word.compare_exchange_weak(word, word & !field | limit, AcqRel, Relaxed) {
            word = now;
        }
        Seen(word)
    }

    /// Sets whether the queue is not empty. Only under its lock.
    pub(super) fn set_waits(&self, waits: bool) {
        if waits {
            self.word.fetch_or(WAITS, AcqRel);
        } else {
            self.word.fetch_and(!WAITS, AcqRel);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_count_stops_at_the_limit_and_the_turn_wraps_into_nothing() {
        let count = Count::new(3);
        for round in 0..50 {
            let turns: Vec<u32> =
                std::iter::from_fn(|| count.enter(Kept::NOTHING).ok()).map(|entry| entry.turn).collect();
            assert_eq!(turns, [0, 1, 2].map(|turn| (3 * round + turn) % TURNS));
            assert_eq!((count.seen().limit(), count.seen().in_flight()), (3, 3));
            (0..3).for_each(|_| _ = count.leave());
        }
    }

    #[test]
    fn newcomers_do_not_overtake_waiters() {
        let count = Count::new(LIMIT_MAX);
        count.set_waits(true);
        assert!(count.enter(Kept::NOTHING).is_err_and(Seen::somebody_waits));
        assert!(count.enter_beside_line(Kept::NOTHING).entry().is_ok());
        count.set_waits(false);
        assert!(count.enter(Kept::NOTHING).is_ok());
        assert_eq!((count.seen().limit(), count.seen().in_flight()), (LIMIT_MAX, 2));
    }

    #[test]
    fn a_lower_limit_applies_at_once_and_revokes_nothing() {
        let count = Count::new(5);
        (0..4).for_each(|_| _ = count.enter(Kept::NOTHING).unwrap());
        assert_eq!(count.set_limit(2).limit(), 5);
        assert_eq!((count.seen().limit(), count.seen().in_flight()), (2, 4));
        (0..3).for_each(|_| assert!(count.enter(Kept::NOTHING).is_err() && count.leave().in_flight() > 1));
        assert!(count.enter(Kept::NOTHING).is_ok());
    }
}
