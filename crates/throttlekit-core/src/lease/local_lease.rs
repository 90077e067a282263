//! The local lease: units of one key that a node holds, spendable by many threads at once.

use core::cell::Cell;
use core::hash::{Hash, Hasher};

use crate::{Cost, Timestamp};

/// Largest number of units a local lease holds.
pub const UNITS_HELD_MAX: Cost = BIAS - 1;

/// Bits for units and for milliseconds; the 22 above are the tag of the fill.
const BITS: u32 = 42;
const LOW: u64 = (1 << BITS) - 1;
/// Empty is this, so that threads racing for the last unit may subtract below it without touching the tag.
const BIAS: u64 = 1 << (BITS - 1);
/// The deadline of units that never expire.
const NEVER: u64 = LOW;
const NANOS_PER_MILLI: u64 = 1_000_000;

/// A machine word: shared between threads in production, plain in models.
pub trait Word {
    /// A word of this value.
    fn new(value: u64) -> Self;
    /// Its value.
    fn load(&self) -> u64;
    /// Sets it.
    fn store(&self, value: u64);
    /// Sets it, and returns the previous value.
    fn swap(&self, value: u64) -> u64;
    /// Subtracts in one step, and returns the previous value.
    fn take(&self, value: u64) -> u64;
    /// Sets it to `new` if it still is `current`; otherwise returns its value.
    fn replace(&self, current: u64, new: u64) -> Result<(), u64>;
}

/// Units to spend until a deadline, in two machine words.
///
/// Both words carry the tag of the fill they belong to. A spender reads the deadline, takes units, and only if both
/// belong together reads the clock and compares. Each fill changes the tag, so units are never spent under a deadline
/// later than their own: were a tag to repeat while a thread sleeps between its steps, the deadline that thread has
/// read is the older one.
///
/// Spending never blocks. Filling and emptying is for one thread at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LocalLease<W> {
    /// Tag, and units above [`BIAS`].
    units: W,
    /// Tag, and the millisecond at which the units expire.
    until: W,
}

/// Result of an attempt to spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spend {
    /// Spent, and `left` units remain.
    Spent {
        /// Units left in the local lease.
        left: Cost,
    },
    /// There are not enough units.
    Short,
    /// The units had expired when the clock was read.
    Lapsed,
}

/// Units drawn by one thread, with their deadline. Safe to spend without reading the local lease again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Draw {
    units: Cost,
    until: u64,
}

impl Draw {
    /// Takes `cost` out, then reads the clock, then decides.
    #[inline(always)]
    pub fn spend(&mut self, cost: Cost, now: impl FnOnce() -> Timestamp) -> Spend {
        let Some(left) = self.units.checked_sub(cost) else { return Spend::Short };
        self.units = left;
        if dead(self.until & LOW, now()) {
            self.units = 0;
            return Spend::Lapsed;
        }
        Spend::Spent { left }
    }

    /// Units left.
    pub fn units(&self) -> Cost {
        self.units
    }
}

impl<W: Word> LocalLease<W> {
    /// Creates an empty local lease.
    pub fn new() -> Self {
        Self { units: W::new(BIAS), until: W::new(0) }
    }

    /// Takes `cost` out, then reads the clock, then decides. Units taken out after their deadline are lost.
    #[inline(always)]
    pub fn spend(&self, cost: Cost, now: impl FnOnce() -> Timestamp) -> Spend {
        self.spend_if(|| true, cost, now)
    }

    /// The same for a local lease that may pass to another key, which empties it: ownership is checked after the
    /// deadline is read. If it passes on later, the units no longer belong with that deadline.
    #[inline(always)]
    pub fn spend_if(
        &self,
        still_mine: impl FnOnce() -> bool,
        cost: Cost,
        now: impl FnOnce() -> Timestamp,
    ) -> Spend {
        let until = self.until.load();
        if !still_mine() {
            return Spend::Short;
        }
        let Some(before) = self.take(cost, until) else { return Spend::Short };
        if dead(until & LOW, now()) {
            return Spend::Lapsed;
        }
        Spend::Spent { left: held(before) - cost }
    }

    /// Takes up to `units` out, to be spent by one thread before their deadline.
    pub fn draw(&self, units: Cost) -> Draw {
        let until = self.until.load();
        let mut word = self.units.load();
        loop {
            let drawn = if same_filling(word, until) { held(word).min(units) } else { 0 };
            if drawn == 0 {
                return Draw::default();
            }
            match self.units.replace(word, word - drawn) {
                Ok(()) => return Draw { units: drawn, until },
                Err(found) => word = found,
            }
        }
    }

    /// Puts back what is left of a draw, if the local lease still holds the same fill. Otherwise it lapses.
    pub fn put_back(&self, draw: Draw) {
        let mut word = self.units.load();
        // Fills expire later and later, so that tag and deadline together identify one of them.
        while self.until.load() == draw.until && same_filling(word, draw.until) {
            let fits = draw.units.min(UNITS_HELD_MAX - held(word));
            match self.units.replace(word, word.max(word & !LOW | BIAS) + fits) {
                Ok(()) => return,
                Err(found) => word = found,
            }
        }
    }

    /// Puts back units that were spent and not used, into the current fill. They expire with it; in an emptied local
    /// lease they lapse. Only for the thread that fills and empties it, and only with units of the same window.
    pub fn refund(&self, units: Cost) {
        self.put_back(Draw { units, until: self.until.load() });
    }

    /// Returns the units word before `cost` was taken out of it, if it had as many and belongs with `until`.
    #[inline(always)]
    fn take(&self, cost: Cost, until: u64) -> Option<u64> {
        let fits = |word: u64| held(word) >= cost && same_filling(word, until);
        let mut word = self.units.load();
        if !fits(word) {
            return None;
        }
        if cost == 1 {
            // One step that cannot fail. Another fill's unit, taken by mistake in a race, is lost.
            return Some(self.units.take(1)).filter(|&before| fits(before));
        }
        while let Err(found) = self.units.replace(word, word - cost) {
            word = found;
            if !fits(word) {
                return None;
            }
        }
        Some(word)
    }

    /// Fills the local lease with units that expire at `until`. What is left of earlier ones lapses, or with `keep` is
    /// spent under the new deadline.
    pub fn fill(&self, units: Cost, until: Timestamp, keep: bool) {
        let tag = (self.units.load() >> BITS).wrapping_add(1) << BITS;
        let left = held(self.units.swap(tag | BIAS));
        let kept = if keep { left } else { 0 };
        self.until.store(tag | millis(until));
        // A spender in between found nothing, so what it subtracted does not count.
        self.units.store(tag | (BIAS + units.saturating_add(kept).min(UNITS_HELD_MAX)));
    }

    /// Takes out everything that has not expired.
    pub fn empty(&self, now: Timestamp) -> Cost {
        let tag = (self.units.load() >> BITS).wrapping_add(1) << BITS;
        let left = held(self.units.swap(tag | BIAS));
        if dead(self.until.load() & LOW, now) { 0 } else { left }
    }

    /// Units that could be spent now.
    pub fn left(&self, now: Timestamp) -> Cost {
        if dead(self.until.load() & LOW, now) { 0 } else { self.units() }
    }

    /// Units in the local lease, expired or not.
    pub fn units(&self) -> Cost {
        held(self.units.load())
    }

    /// Returns when the units expire; [`Timestamp::MAX`] if never.
    pub fn until(&self) -> Timestamp {
        match self.until.load() & LOW {
            NEVER => Timestamp::MAX,
            millis => Timestamp::from_millis(millis),
        }
    }
}

impl<W: Word> Default for LocalLease<W> {
    fn default() -> Self {
        Self::new()
    }
}

fn same_filling(units: u64, until: u64) -> bool {
    (units ^ until) >> BITS == 0
}

fn held(word: u64) -> Cost {
    (word & LOW).saturating_sub(BIAS)
}

/// Rounded down, so that nothing lives longer. After the year 2109 means never.
fn millis(until: Timestamp) -> u64 {
    (until.as_nanos() / NANOS_PER_MILLI).min(NEVER)
}

#[inline(always)]
fn dead(until_millis: u64, now: Timestamp) -> bool {
    until_millis != NEVER && now.as_nanos() >= until_millis * NANOS_PER_MILLI
}

/// A machine word used by one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlainWord(Cell<u64>);

impl Hash for PlainWord {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.get().hash(state);
    }
}

impl Word for PlainWord {
    fn new(value: u64) -> Self {
        Self(Cell::new(value))
    }

    fn load(&self) -> u64 {
        self.0.get()
    }

    fn store(&self, value: u64) {
        self.0.set(value);
    }

    fn swap(&self, value: u64) -> u64 {
        self.0.replace(value)
    }

    fn take(&self, value: u64) -> u64 {
        self.0.replace(self.0.get().wrapping_sub(value))
    }

    fn replace(&self, current: u64, new: u64) -> Result<(), u64> {
        if self.load() != current {
            return Err(self.load());
        }
        self.store(new);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn local_lease(units: Cost, until: u64) -> LocalLease<PlainWord> {
        let local_lease = LocalLease::new();
        local_lease.fill(units, at(until), false);
        local_lease
    }

    #[test]
    fn units_are_spent_until_their_deadline_and_not_at_it() {
        let local_lease = local_lease(10, 50);
        assert_eq!(local_lease.spend(3, || at(49)), Spend::Spent { left: 7 });
        assert_eq!(local_lease.spend(8, || at(49)), Spend::Short);
        assert_eq!(local_lease.spend(1, || at(50)), Spend::Lapsed);
        assert_eq!((local_lease.left(at(49)), local_lease.left(at(50))), (6, 0));
    }

    #[test]
    fn the_clock_is_read_after_the_units_are_taken() {
        let local_lease = local_lease(1, 50);
        let seen = local_lease.spend(1, || {
            assert_eq!(local_lease.units(), 0);
            at(0)
        });
        assert_eq!(seen, Spend::Spent { left: 0 });
    }

    #[test]
    fn unused_units_expire_unless_they_carry_over() {
        let local_lease = local_lease(5, 50);
        local_lease.fill(10, at(60), true);
        assert_eq!((local_lease.units(), local_lease.until()), (15, at(60)));
        local_lease.fill(10, at(70), false);
        assert_eq!((local_lease.units(), local_lease.until()), (10, at(70)));
        assert_eq!((local_lease.empty(at(69)), local_lease.units()), (10, 0));
        local_lease.fill(10, at(70), false);
        assert_eq!(local_lease.empty(at(70)), 0);
    }

    #[test]
    fn a_thread_that_slept_through_a_filling_gets_nothing() {
        let local_lease = local_lease(5, 50);
        let slept = local_lease.until.load();
        local_lease.fill(5, at(60), false);
        assert_eq!(local_lease.take(1, slept), None);
        assert_eq!(local_lease.take(2, slept), None);
    }

    #[test]
    fn a_draw_is_spent_by_its_own_deadline_and_returned_only_to_its_source() {
        let local_lease = local_lease(10, 50);
        let mut draw = local_lease.draw(4);
        assert_eq!((draw.units(), local_lease.units()), (4, 6));
        assert_eq!(draw.spend(1, || at(49)), Spend::Spent { left: 3 });
        local_lease.put_back(draw);
        assert_eq!(local_lease.units(), 9);

        let mut old = local_lease.draw(5);
        local_lease.fill(1, at(60), false);
        local_lease.put_back(old);
        assert_eq!(local_lease.units(), 1);
        assert_eq!(old.spend(1, || at(50)), Spend::Lapsed);
        assert_eq!(old.spend(1, || at(0)), Spend::Short);
    }

    #[test]
    fn unused_units_expire_with_the_filling_and_lapse_in_an_empty_local_lease() {
        let local_lease = local_lease(10, 50);
        assert_eq!(local_lease.spend(10, || at(49)), Spend::Spent { left: 0 });
        local_lease.units.take(3);
        local_lease.refund(4);
        assert_eq!(
            (local_lease.units(), local_lease.left(at(50))),
            (4, 0),
            "what was tried in vain does not count"
        );
        assert_eq!(local_lease.empty(at(49)), 4);
        local_lease.refund(4);
        assert_eq!(local_lease.units(), 0);
        local_lease.fill(1, at(60), false);
        local_lease.refund(u64::MAX);
        assert_eq!(
            (local_lease.units(), local_lease.until()),
            (UNITS_HELD_MAX, at(60)),
            "the tag is untouched"
        );
    }

    #[test]
    fn a_local_lease_that_was_handed_over_is_not_spent_from() {
        let local_lease = local_lease(1, 50);
        let passes_on = || {
            local_lease.empty(at(0));
            local_lease.fill(7, at(50), false);
            true
        };
        assert_eq!(local_lease.spend_if(passes_on, 1, || at(0)), Spend::Short);
        assert_eq!(local_lease.units(), 7);
    }

    #[test]
    fn tags_come_round_and_units_below_empty_do_not_touch_them() {
        let local_lease = local_lease(0, 50);
        for _ in 0..1 << 22 {
            local_lease.fill(1, at(50), false);
        }
        local_lease.units.take(100);
        assert_eq!(local_lease.units(), 0);
        local_lease.fill(1, Timestamp::MAX, false);
        assert_eq!(local_lease.spend(1, || at(1 << 41)), Spend::Spent { left: 0 });
    }
}
