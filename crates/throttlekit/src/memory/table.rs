//! One word of state per key, one compare-and-swap per check.
//!
//! The first table is allocated when the limiter is built. A key may live in one of sixteen of its cells, most in the
//! home line, which is one cache line. Nothing moves and nothing is swept: a cell whose word lies below the floor is as
//! good as an empty one, so the next key that needs a cell takes it. That is all there is to expiry.
//!
//! A key that finds its sixteen cells taken by live keys goes to sixteen more in its segment, which is allocated when
//! it is first needed. If these are taken too, the budget is used up: the key has no cell, and is counted in its
//! segment's sketch, where its estimate is never below what it owes. A cell is never taken from a key that owes.
//!
//! The word of a key that lost its cell when it owed nothing is kept in a sketch as well, so that no key gets a new
//! budget when the clock steps back to a time at which it still owed.

use std::sync::atomic::Ordering::Relaxed;

use throttlekit_core::rate::Mark;
use throttlekit_core::rate::word::WordRule;
use throttlekit_core::{Decision, Timestamp};

use super::budget::Capacity;
use super::cache_lines::{Free, Line, Lines};
use super::cell::{Cell, Charged};
use super::key_memory::{Collisions, KeyMemory};
use super::prefetch::prefetch_index;
use super::segments::{Layout, Segment, Segments};
use super::word_sketch::WordSketch;
use crate::clock::Clock;
use crate::sync::{Mutex, MutexGuard, pause};

/// Number of keys that a batch looks up at once.
pub(crate) const BATCH: usize = 16;
const LINES_PER_STRIPE: usize = 32;

pub(crate) struct WordTable<R> {
    rule: R,
    lines: Lines,
    /// Held to add a key, so that no key is ever added twice. One for some neighboring home lines.
    adding: Box<[Mutex<()>]>,
    /// Words with which keys lost their cells, owing nothing by then.
    expired: WordSketch,
    segments: Segments,
    budget: usize,
}

/// A key's cell while a request is decided. Released as it was found unless `charge` is called.
pub(crate) struct HeldCell<'a> {
    /// `None` if the key is counted in a sketch.
    cell: Option<&'a Cell>,
    /// The key's word.
    word: u64,
    newcomer: Option<Newcomer<'a>>,
}

/// A key that has no cell yet: the one held for it stays its owner's until the new key is charged. So a denied request
/// adds no key and leaves every word as it was.
struct Newcomer<'a> {
    key: u64,
    to: Destination<'a>,
    charged: bool,
    _adding: MutexGuard<'a, ()>,
}

/// Destination of a new key.
enum Destination<'a> {
    /// A free cell, whose owner's word was `seen` and is kept in `expired`.
    Cell { seen: u64, expired: &'a WordSketch },
    /// The sketch of its segment.
    Sketch(&'a Segment),
}

impl<R: WordRule> WordTable<R> {
    pub(crate) fn new(rule: R, capacity: Capacity) -> Self {
        let layout = Layout::of(capacity);
        Self {
            rule,
            lines: Lines::new(layout.lines),
            adding: (0..layout.lines.div_ceil(LINES_PER_STRIPE)).map(|_| Mutex::new(())).collect(),
            expired: WordSketch::new(layout.sketch),
            segments: Segments::new(layout),
            budget: capacity.bytes,
        }
    }

    /// Checks a request and charges it if allowed. The clock is read once the cell is found: the cost of reading it
    /// then overlaps with fetching the cell.
    #[inline(always)]
    pub(crate) fn check(&self, key: u64, cost: u64, clock: &impl Clock) -> Decision {
        let cell = self.lines.likely(key);
        let now = clock.now();
        self.check_in(cell, key, cost, self.rule.floor(now), now)
    }

    /// The same at `now`, with the charge position if it was charged, so that it can be settled later.
    #[inline]
    pub(crate) fn check_marked(&self, key: u64, cost: u64, now: Timestamp) -> (Decision, Mark) {
        let (cell, floor) = (self.lines.likely(key), self.rule.floor(now));
        match cell.charge(key, &self.rule, cost, floor) {
            Charged::Allowed(next) => (self.rule.allowed(next, floor, cost), self.rule.mark_of(next, now)),
            Charged::Denied(word) => (self.rule.denied(word, floor, cost, now), Mark(0)),
            Charged::Missed => {
                let mut held = self.hold(key, now);
                let (decision, mark) =
                    (self.rule.decide(held.word, cost, now), self.rule.mark(held.word, now));
                if decision.allowed {
                    held.charge(&self.rule, cost, now);
                }
                (decision, mark)
            }
        }
    }

    /// Checks up to [`BATCH`] requests at one instant, in order, and returns their number. All keys' lines are
    /// prefetched before the first is used, so that the processor waits for memory once and not once a key.
    #[inline]
    pub(crate) fn check_batch(
        &self,
        requests: impl Iterator<Item = (u64, u64)>,
        now: Timestamp,
        decisions: &mut Vec<Decision>,
    ) -> usize {
        let lines = self.lines.as_slice();
        let mut homes = [(&lines[0], 0, 0); BATCH];
        let (mut count, mut of_one) = (0, true);
        for (home, (key, cost)) in homes.iter_mut().zip(requests) {
            let line = self.lines.home(key);
            prefetch_index(lines, line);
            *home = (&lines[line], key, cost);
            count += 1;
            of_one &= cost == 1;
        }
        let floor = self.rule.floor(now);
        let check = |line: &Line, key, cost| self.check_in(line.likely(key), key, cost, floor, now);
        // Keys alone cost one unit each: the compiler then knows the cost.
        if of_one {
            decisions.extend(homes[..count].iter().map(|&(line, key, _)| check(line, key, 1)));
        } else {
            decisions.extend(homes[..count].iter().map(|&(line, key, cost)| check(line, key, cost)));
        }
        count
    }

    #[inline(always)]
    fn check_in(&self, cell: &Cell, key: u64, cost: u64, floor: u64, now: Timestamp) -> Decision {
        match cell.charge(key, &self.rule, cost, floor) {
            Charged::Allowed(next) => self.rule.allowed(next, floor, cost),
            Charged::Denied(word) => self.rule.denied(word, floor, cost, now),
            Charged::Missed => self.check_elsewhere(key, cost, now),
        }
    }

    /// Returns what a key owes, or the estimate of a key that has no cell.
    pub(crate) fn word(&self, key: u64) -> u64 {
        self.find(key).and_then(|cell| cell.word_of(key)).unwrap_or_else(|| self.estimate(key))
    }

    pub(crate) fn rule(&self) -> &R {
        &self.rule
    }

    /// Clears the usage of a key.
    pub(crate) fn forgive(&self, key: u64) {
        self.with_cell(key, |cell| cell.forgive(key));
    }

    /// Refunds units of a charge at position `mark`; none to a key that has no cell, whose estimate cannot be lowered.
    pub(crate) fn refund(&self, key: u64, mark: Mark, units: u64, now: Timestamp) {
        let refund = |word| self.rule.refund(word, mark, units, now);
        if self.lines.likely(key).change(key, refund).is_none() {
            self.with_cell(key, |cell| cell.change(key, refund));
        }
    }

    /// Charges units that were used beyond the request, also to a new key.
    pub(crate) fn owe(&self, key: u64, units: u64, now: Timestamp) {
        self.hold(key, now).owe(&self.rule, units, now);
    }

    /// Holds a key's cell, or one for it. Held cells are released in a moment: waiting is short.
    #[inline(always)]
    pub(crate) fn hold(&self, key: u64, now: Timestamp) -> HeldCell<'_> {
        let cell = self.lines.likely(key);
        match cell.hold_for(key) {
            Some(word) => HeldCell::owned(cell, word),
            None => self.hold_elsewhere(key, now),
        }
    }

    /// Returns the cell in the home line that is the key's if any there is, before it is held.
    #[inline(always)]
    pub(crate) fn at_home(&self, key: u64) -> &Cell {
        self.lines.likely(key)
    }

    #[cold]
    #[inline(never)]
    fn hold_elsewhere(&self, key: u64, now: Timestamp) -> HeldCell<'_> {
        self.prefetch(key);
        loop {
            let known = self.with_cell(key, |cell| Some(HeldCell::owned(cell, cell.hold_for(key)?)));
            if let Some(held) = known.or_else(|| self.hold_newcomer(key, self.rule.floor(now))) {
                return held;
            }
        }
    }

    /// Returns the number of keys that have a cell and owe something at `now`. Scans every cell.
    pub(crate) fn live(&self, now: Timestamp) -> usize {
        let floor = self.rule.floor(now);
        let beyond = self.segments.allocated().filter_map(Segment::lines);
        self.lines.live(floor) + beyond.map(|lines| lines.live(floor)).sum::<usize>()
    }

    /// Returns how full it is at `now`. Scans every cell.
    pub(crate) fn memory(&self, now: Timestamp) -> KeyMemory {
        let floor = self.rule.floor(now);
        let mut collisions = Collisions::default();
        self.segments.each(|segment| match segment {
            Some(Segment { sketch, .. }) => collisions.add(sketch.above(floor), sketch.len()),
            None => collisions.add(0, 1),
        });
        KeyMemory {
            budget_bytes: self.budget,
            used_bytes: self.segments.bytes(),
            live_keys: self.live(now),
            keys_max: self.segments.cells(),
            estimated: self.segments.allocated().map(|segment| segment.estimated.load(Relaxed)).sum(),
            strangers_short_ppm: collisions.ppm(),
        }
    }

    #[cold]
    #[inline(never)]
    fn check_elsewhere(&self, key: u64, cost: u64, now: Timestamp) -> Decision {
        self.prefetch(key);
        let floor = self.rule.floor(now);
        loop {
            let charged = self.with_cell(key, |cell| match cell.charge(key, &self.rule, cost, floor) {
                Charged::Allowed(next) => Some(self.rule.allowed(next, floor, cost)),
                Charged::Denied(word) => Some(self.rule.denied(word, floor, cost, now)),
                Charged::Missed => None,
            });
            if let Some(decision) = charged {
                return decision;
            }
            if let Some(mut held) = self.hold_newcomer(key, floor) {
                let decision = self.rule.decide(held.word, cost, now);
                if decision.allowed {
                    held.charge(&self.rule, cost, now);
                }
                return decision;
            }
        }
    }

    /// Applies `act` to a key's cell, again while it is held. Returns `None` if the key is not there.
    fn with_cell<'a, T>(&'a self, key: u64, act: impl Fn(&'a Cell) -> Option<T>) -> Option<T> {
        let mut spins = 0;
        loop {
            let done = act(self.find(key)?);
            if done.is_some() {
                return done;
            }
            pause(&mut spins);
        }
    }

    /// Holds a free cell for a key that has none, or its sketch. Returns `None` if the key turns out to have a cell.
    fn hold_newcomer(&self, key: u64, floor: u64) -> Option<HeldCell<'_>> {
        let adding = self.adding(key);
        if self.find(key).is_some() {
            return None;
        }
        let word = self.estimate(key);
        let free = self.hold_free(key, floor);
        let cell = free.as_ref().map(|free| free.cell);
        let to = match free {
            Some(free) => Destination::Cell { seen: free.seen, expired: &self.expired },
            None => Destination::Sketch(self.segments.get_or_allocate(key)),
        };
        Some(HeldCell { cell, word, newcomer: Some(Newcomer { key, to, charged: false, _adding: adding }) })
    }

    /// Holds a free cell: in the first table, or else in the key's segment.
    fn hold_free(&self, key: u64, floor: u64) -> Option<Free<'_>> {
        let mut spins = 0;
        loop {
            let beyond = || self.segments.get_or_allocate(key).lines()?.free(key, floor);
            let free = self.lines.free(key, floor).or_else(beyond)?;
            if free.cell.hold(free.seen) {
                return Some(free);
            }
            pause(&mut spins);
        }
    }

    /// Returns an upper bound of what a key that has no cell owes.
    fn estimate(&self, key: u64) -> u64 {
        let counted = self.segments.get(key).map_or(0, |segment| segment.sketch.least(key));
        counted.max(self.expired.least(key))
    }

    fn find(&self, key: u64) -> Option<&Cell> {
        self.lines.find(key).or_else(|| self.segments.get(key)?.lines()?.find(key))
    }

    fn prefetch(&self, key: u64) {
        self.lines.others(key).into_iter().for_each(|line| prefetch_index(self.lines.as_slice(), line));
        if let Some(lines) = self.segments.get(key).and_then(Segment::lines) {
            prefetch_index(lines.as_slice(), lines.home(key));
            lines.others(key).into_iter().for_each(|line| prefetch_index(lines.as_slice(), line));
        }
    }

    fn adding(&self, key: u64) -> MutexGuard<'_, ()> {
        let stripe = &self.adding[self.lines.home(key) / LINES_PER_STRIPE];
        stripe.lock()
    }
}

impl<'a> HeldCell<'a> {
    #[inline(always)]
    fn owned(cell: &'a Cell, word: u64) -> Self {
        Self { cell: Some(cell), word, newcomer: None }
    }

    #[inline(always)]
    pub(crate) fn word(&self) -> u64 {
        self.word
    }

    /// Returns whether the word is an estimate. That of a key that owes nothing is not.
    #[inline(always)]
    pub(crate) fn is_estimated(&self, floor: u64) -> bool {
        self.newcomer.is_some() && self.word > floor
    }

    /// Takes the cost of a request that the rule allows at `now`.
    #[inline]
    pub(crate) fn charge(&mut self, rule: &impl WordRule, cost: u64, now: Timestamp) {
        let next = rule.next(self.word, rule.floor(now), cost);
        if let Some(next) = next.filter(|_| cost > 0) {
            self.charge_to(next);
        }
    }

    /// Charges units that were used beyond the request.
    fn owe(&mut self, rule: &impl WordRule, units: u64, now: Timestamp) {
        if units > 0 {
            self.charge_to(rule.owe(self.word, units, now));
        }
    }

    /// Sets the word after a charge. A new key gets its cell only with a greater word than was found there, which every
    /// charge guarantees: the word found lies below the floor.
    #[inline]
    fn charge_to(&mut self, next: u64) {
        self.word = next;
        if let Some(newcomer) = &mut self.newcomer {
            newcomer.charged = true;
        }
    }
}

impl Drop for HeldCell<'_> {
    #[inline]
    fn drop(&mut self) {
        match (&self.newcomer, self.cell) {
            (None, Some(cell)) => cell.release(self.word),
            (Some(newcomer), cell) => newcomer.end(cell, self.word),
            (None, None) => {}
        }
    }
}

impl Newcomer<'_> {
    /// Takes the cell if it was charged; else its owner keeps it.
    #[cold]
    #[inline(never)]
    fn end(&self, cell: Option<&Cell>, word: u64) {
        match (&self.to, cell) {
            (Destination::Cell { seen, .. }, Some(cell)) if !self.charged || word <= *seen => {
                cell.release(*seen);
            }
            (Destination::Cell { seen, expired }, Some(cell)) => {
                // Before the cell changes owner: a thread that then misses the old owner finds its word there.
                if *seen > 0 {
                    expired.raise(cell.key(), *seen);
                }
                cell.hand_over(self.key, word);
            }
            (Destination::Sketch(segment), _) if self.charged => segment.count(self.key, word),
            _ => {}
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use throttlekit_core::rate::word::GcraWord;
    use throttlekit_core::rate::{Gcra, Rate};

    use super::*;
    use crate::clock::ManualClock;
    use crate::rate::Timestamp;

    fn table(expected_keys: usize) -> WordTable<GcraWord> {
        let gcra = Gcra::new(Rate::per_hour(3)).unwrap();
        WordTable::new(GcraWord::new(&gcra).unwrap(), Capacity { expected_keys, ..Capacity::default() })
    }

    fn clock() -> ManualClock {
        ManualClock::at(Timestamp::from_millis(1_000))
    }

    #[test]
    fn expected_keys_all_have_a_cell_and_nearly_all_are_at_home() {
        const KEYS: u64 = 200_000;
        let (table, clock) = (table(KEYS as usize), clock());
        let key = |i: u64| {
            (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
        };
        assert!(
            (0..KEYS).all(|i| table.check(key(i), 1, &clock).remaining == 2),
            "a newcomer met another's debt"
        );
        assert_eq!(table.live(clock.now()) as u64, KEYS);
        let at_home = |i: &u64| table.lines.likely(key(*i)).key() == key(*i);
        let share = (0..KEYS).filter(at_home).count() * 100 / KEYS as usize;
        assert!(share >= 95, "{share} in 100 are at home");
    }

    /// The fingerprints that represent no owner are fingerprints like others.
    #[test]
    fn keys_of_all_zeros_and_all_ones_are_limited_like_any_other() {
        let clock = clock();
        for expected_keys in [1, 100] {
            let table = table(expected_keys);
            for key in [0, u64::MAX, 1, u64::MAX - 1] {
                let admitted = (0..10).filter(|_| table.check(key, 1, &clock).allowed).count();
                assert_eq!(admitted, 3, "{key:x}");
            }
            assert_eq!(table.live(clock.now()), 4);
        }
    }
}
