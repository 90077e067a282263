//! A fixed table of cells: one word of state per key, one compare-and-swap per check.
//!
//! A key may live in one of sixteen cells: those of its home line, of the neighbouring line, of a second line
//! elsewhere and of its neighbour. Most keys are found at home, which is one cache line. Nothing moves and nothing
//! is swept: a cell whose word lies below the floor says no more than an empty one, so it is simply given to the
//! next key that needs room. That is all there is to expiry.
//!
//! With nine cells for four keys all sixteen are hardly ever taken by live keys. When they are, the table is at
//! its cap: the newcomer takes the cell of the key that owes least, and starts from that debt. Whatever word a key
//! had when it lost its cell is remembered in its stripe, from which every key unknown there starts. So memory is
//! what was allocated at the start, and no key comes back to a fresh budget: not at the cap, and not when the clock
//! steps back to a time at which it still owed.

use std::hint::select_unpredictable;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use prefetch_index::prefetch_index;
use throttlekit_core::rate::Mark;
use throttlekit_core::rate::word::WordRule;
use throttlekit_core::{Cost, Decision, Timestamp};

use super::cell::{Cell, Charged};
use crate::Clock;
use crate::sync::{AtomicU64, Mutex, MutexGuard, pause};

/// How many keys a batch looks up together.
pub(crate) const BATCH: usize = 16;
const CELLS_PER_LINE: usize = 4;
/// Nine for four keys: at the cap each key then finds a cell, and nearly all in their home line, as a test shows.
const CELLS_PER_4_KEYS: usize = 9;
const LINES_PER_STRIPE: usize = 32;
/// Two pairs, so that the first two lines are not the last two.
const LINES_MIN: usize = 4;
/// A newcomer goes to its second pair of lines when the first has fewer free cells than this.
const FREE_MIN_AT_HOME: usize = 2;

pub(crate) struct WordTable<R> {
    rule: R,
    /// An even number, so that each has a neighbour.
    lines: Box<[Line]>,
    stripes: Box<[Stripe]>,
}

/// One cache line.
#[repr(align(64))]
struct Line([Cell; CELLS_PER_LINE]);

/// What the keys of some neighbouring home lines share.
struct Stripe {
    /// Held to add a key, so that no key is ever added twice.
    adding: Mutex<()>,
    /// The greatest word with which a key lost its cell.
    lost: AtomicU64,
}

/// A cell that may be given to a newcomer.
struct Room<'a> {
    cell: &'a Cell,
    seen: u64,
    /// Whether its owner has nothing left to answer for.
    free: bool,
}

/// A key's cell while an ask decides. Released as it was found unless `charge` is called.
pub(crate) struct HeldCell<'a> {
    cell: &'a Cell,
    /// The key's word.
    word: u64,
    newcomer: Option<Newcomer<'a>>,
}

/// A key that has no cell yet: the one held for it stays its owner's until the newcomer is charged. So a denied
/// ask adds nobody, drops nobody and leaves every word as it was.
struct Newcomer<'a> {
    key: u64,
    /// The owner's word.
    seen: u64,
    /// Where the owner's word is kept if it loses the cell.
    lost: &'a AtomicU64,
    charged: bool,
    _adding: MutexGuard<'a, ()>,
}

impl<R: WordRule> WordTable<R> {
    pub(crate) fn new(rule: R, keys_max: usize) -> Self {
        let lines = keys_max
            .saturating_mul(CELLS_PER_4_KEYS)
            .div_ceil(4 * CELLS_PER_LINE)
            .next_multiple_of(2)
            .max(LINES_MIN);
        Self {
            rule,
            lines: (0..lines).map(Line::empty).collect(),
            stripes: (0..lines.div_ceil(LINES_PER_STRIPE)).map(|_| Stripe::new()).collect(),
        }
    }

    /// Answers an ask and charges it if allowed. The clock is read once the cell is found: what it costs to
    /// read then overlaps with fetching the cell.
    #[inline(always)]
    pub(crate) fn check(&self, key: u64, cost: Cost, clock: &impl Clock) -> Decision {
        let cell = self.lines[self.home(key)].likely(key);
        let now = clock.now();
        self.check_in(cell, key, cost, self.rule.floor(now), now)
    }

    /// The same at `now`, with where the charge went if there was one, so that it can be settled later.
    #[inline]
    pub(crate) fn check_marked(&self, key: u64, cost: Cost, now: Timestamp) -> (Decision, Mark) {
        let (cell, floor) = (self.lines[self.home(key)].likely(key), self.rule.floor(now));
        match cell.charge(key, &self.rule, cost, floor) {
            // A charge leaves the word in the window that it went to.
            Charged::Allowed(next) => (self.rule.allowed(next, floor, cost), self.rule.mark(next, now)),
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

    /// Answers up to [`BATCH`] asks at one instant, in order. All keys' lines are asked for before the first is
    /// used, so that the processor waits for memory once and not once a key.
    #[inline]
    pub(crate) fn check_batch(
        &self,
        keys: impl Iterator<Item = u64>,
        cost: Cost,
        now: Timestamp,
        decisions: &mut Vec<Decision>,
    ) {
        let mut homes = [(&self.lines[0], 0); BATCH];
        let mut count = 0;
        for (home, key) in homes.iter_mut().zip(keys) {
            prefetch_index(&*self.lines, self.home(key));
            *home = (&self.lines[self.home(key)], key);
            count += 1;
        }
        let floor = self.rule.floor(now);
        let answer = |&(line, key): &(&Line, u64)| self.check_in(line.likely(key), key, cost, floor, now);
        decisions.extend(homes[..count].iter().map(answer));
    }

    #[inline(always)]
    fn check_in(&self, cell: &Cell, key: u64, cost: Cost, floor: u64, now: Timestamp) -> Decision {
        match cell.charge(key, &self.rule, cost, floor) {
            Charged::Allowed(next) => self.rule.allowed(next, floor, cost),
            Charged::Denied(word) => self.rule.denied(word, floor, cost, now),
            Charged::Missed => self.check_elsewhere(key, cost, now),
        }
    }

    /// What a key owes, or what a key unknown here would start with at `now`.
    pub(crate) fn word(&self, key: u64, now: Timestamp) -> u64 {
        if let Some(word) = self.find(key).and_then(|cell| cell.word_of(key)) {
            return word;
        }
        let room = self.room(key, self.rule.floor(now));
        room.map_or_else(|| self.stripe(key).lost.load(Acquire), |room| self.start(key, &room))
    }

    pub(crate) fn rule(&self) -> &R {
        &self.rule
    }

    /// Makes a key owe nothing.
    pub(crate) fn forgive(&self, key: u64) {
        self.with_cell(key, |cell| cell.forgive(key));
    }

    /// Hands back units of a charge that left `mark`; none to a key that is not there, whose debts live on in what
    /// newcomers start from.
    pub(crate) fn refund(&self, key: u64, mark: Mark, units: Cost, now: Timestamp) {
        self.with_cell(key, |cell| cell.change(key, |word| self.rule.refund(word, mark, units, now)));
    }

    /// Takes units that were used and not asked for, from a newcomer too.
    pub(crate) fn owe(&self, key: u64, units: Cost, now: Timestamp) {
        self.hold(key, now).owe(&self.rule, units, now);
    }

    /// Holds a key's cell, or one for it. Held cells are released in a moment: waiting is short.
    #[inline(always)]
    pub(crate) fn hold(&self, key: u64, now: Timestamp) -> HeldCell<'_> {
        let cell = self.lines[self.home(key)].likely(key);
        match cell.hold_for(key) {
            Some(word) => HeldCell::owned(cell, word),
            None => self.hold_elsewhere(key, now),
        }
    }

    #[cold]
    #[inline(never)]
    fn hold_elsewhere(&self, key: u64, now: Timestamp) -> HeldCell<'_> {
        loop {
            let known = self.with_cell(key, |cell| Some(HeldCell::owned(cell, cell.hold_for(key)?)));
            if let Some(held) = known.or_else(|| self.hold_room(key, self.rule.floor(now))) {
                return held;
            }
        }
    }

    /// How many keys owe something at `now`. Looks at every cell.
    pub(crate) fn live(&self, now: Timestamp) -> usize {
        let floor = self.rule.floor(now);
        let owes = |cell: &&Cell| cell.word().0 > floor;
        self.lines.iter().flat_map(|line| &line.0).filter(owes).count()
    }

    #[cold]
    #[inline(never)]
    fn check_elsewhere(&self, key: u64, cost: Cost, now: Timestamp) -> Decision {
        for line in [self.home(key) ^ 1, self.second(key), self.second(key) ^ 1] {
            prefetch_index(&*self.lines, line);
        }
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
            if let Some(mut held) = self.hold_room(key, floor) {
                let decision = self.rule.decide(held.word, cost, now);
                if decision.allowed {
                    held.charge(&self.rule, cost, now);
                }
                return decision;
            }
        }
    }

    /// Does something with a key's cell, again while it is held; nothing if the key is not there.
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

    /// Holds a cell for a key that is not there; nothing if it turns out to be.
    fn hold_room(&self, key: u64, floor: u64) -> Option<HeldCell<'_>> {
        let adding = self.stripe(key).lock();
        if self.find(key).is_some() {
            return None;
        }
        let mut spins = 0;
        let room = loop {
            match self.room(key, floor) {
                Some(room) if room.cell.hold(room.seen) => break room,
                _ => pause(&mut spins),
            }
        };
        let owner = room.cell.key();
        let lost = &self.stripe(owner).lost;
        let word = self.start(key, &room);
        let newcomer = Newcomer { key, seen: room.seen, lost, charged: false, _adding: adding };
        Some(HeldCell { cell: room.cell, word, newcomer: Some(newcomer) })
    }

    /// The word from which a newcomer starts who gets this room.
    fn start(&self, key: u64, room: &Room<'_>) -> u64 {
        let lost = self.stripe(key).lost.load(Acquire);
        if room.free { lost } else { lost.max(room.seen) }
    }

    /// The cell to give to a newcomer: a free one, at home unless it is crowded there; else the one that owes
    /// least. Nothing while every cell is held.
    fn room(&self, key: u64, floor: u64) -> Option<Room<'_>> {
        let (home, second) = (self.home(key), self.second(key));
        let free = |line| self.rooms(line, floor).filter(|room| room.free);
        let free_at_home = free(home).count();
        let crowded = free_at_home < FREE_MIN_AT_HOME && free(second).count() > free_at_home;
        let (first, then) = if crowded { (second, home) } else { (home, second) };
        let unused = free(first).find(|room| room.seen == 0);
        unused
            .or_else(|| free(first).chain(free(then)).next())
            .or_else(|| self.rooms(first, floor).chain(self.rooms(then, floor)).min_by_key(|room| room.seen))
    }

    fn rooms(&self, line: usize, floor: u64) -> impl Iterator<Item = Room<'_>> {
        self.pair(line).filter_map(move |cell| match cell.word() {
            (_, true) => None,
            (seen, false) => Some(Room { cell, seen, free: seen < floor || seen == 0 }),
        })
    }

    fn find(&self, key: u64) -> Option<&Cell> {
        self.pair(self.home(key)).chain(self.pair(self.second(key))).find(|cell| cell.key() == key)
    }

    /// The cells of a line and of its neighbour.
    fn pair(&self, line: usize) -> impl Iterator<Item = &Cell> {
        self.lines[line].0.iter().chain(&self.lines[line ^ 1].0)
    }

    /// Where a key is looked for, and put, first.
    #[inline(always)]
    fn home(&self, key: u64) -> usize {
        scale(key, self.lines.len())
    }

    fn second(&self, key: u64) -> usize {
        scale(key.rotate_left(32), self.lines.len())
    }

    fn stripe(&self, key: u64) -> &Stripe {
        &self.stripes[self.home(key) / LINES_PER_STRIPE]
    }
}

impl Line {
    /// The cell that is the key's if any of this line is. Takes no branch on the place, which nobody can predict.
    #[inline(always)]
    fn likely(&self, key: u64) -> &Cell {
        let [a, b, c, d] = &self.0;
        let cell = select_unpredictable(b.key() == key, b, a);
        let cell = select_unpredictable(c.key() == key, c, cell);
        select_unpredictable(d.key() == key, d, cell)
    }

    /// A line that nobody has used. Keys of all zeros and of all ones are looked for only in the first two and the
    /// last two lines, so one of them stands for nobody in each.
    fn empty(line: usize) -> Self {
        let nobody = if line < 2 { u64::MAX } else { 0 };
        Self(std::array::from_fn(|_| Cell::empty(nobody)))
    }
}

impl Stripe {
    fn new() -> Self {
        Self { adding: Mutex::new(()), lost: AtomicU64::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.adding.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> HeldCell<'a> {
    #[inline(always)]
    fn owned(cell: &'a Cell, word: u64) -> Self {
        Self { cell, word, newcomer: None }
    }

    #[inline(always)]
    pub(crate) fn word(&self) -> u64 {
        self.word
    }

    /// Takes the cost of an ask that the rule allows at `now`.
    #[inline]
    pub(crate) fn charge(&mut self, rule: &impl WordRule, cost: Cost, now: Timestamp) {
        let next = rule.next(self.word, rule.floor(now), cost);
        if let Some(next) = next.filter(|_| cost > 0) {
            self.charge_to(next);
        }
    }

    /// Takes units that were used and not asked for.
    fn owe(&mut self, rule: &impl WordRule, units: Cost, now: Timestamp) {
        if units > 0 {
            self.charge_to(rule.owe(self.word, units, now));
        }
    }

    /// A newcomer gets its cell only with a greater word than was found there. One who owes no more than that, which
    /// is where all sixteen cells owe the most that words can say, stays outside and is denied as they are.
    #[inline]
    fn charge_to(&mut self, next: u64) {
        self.word = next;
        if let Some(newcomer) = &mut self.newcomer {
            newcomer.charged = next > newcomer.seen;
        }
    }
}

impl Drop for HeldCell<'_> {
    #[inline]
    fn drop(&mut self) {
        match &self.newcomer {
            None => self.cell.release(self.word),
            Some(newcomer) => newcomer.end(self.cell, self.word),
        }
    }
}

impl Newcomer<'_> {
    /// Gets the cell if it was charged; else its owner keeps it.
    #[cold]
    #[inline(never)]
    fn end(&self, cell: &Cell, word: u64) {
        if !self.charged {
            return cell.release(self.seen);
        }
        // Before the cell changes hands: whoever then misses the owner finds its word here.
        self.lost.fetch_max(self.seen, AcqRel);
        cell.hand_over(self.key, word);
    }
}

/// Spreads 64 random bits over `0..len`.
#[inline(always)]
fn scale(bits: u64, len: usize) -> usize {
    ((u128::from(bits) * len as u128) >> 64) as usize
}

#[cfg(all(test, not(loom)))]
mod tests {
    use throttlekit_core::rate::word::GcraWord;
    use throttlekit_core::rate::{Gcra, Rate};

    use super::*;
    use crate::{ManualClock, Timestamp};

    fn table(keys_max: usize) -> WordTable<GcraWord> {
        let gcra = Gcra::new(Rate::per_hour(3)).unwrap();
        WordTable::new(GcraWord::new(&gcra, Timestamp::EPOCH).unwrap(), keys_max)
    }

    fn clock() -> ManualClock {
        ManualClock::at(Timestamp::from_millis(1_000))
    }

    #[test]
    fn at_the_cap_every_key_has_a_cell_and_nearly_all_are_at_home() {
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
        let at_home = |i: &u64| table.lines[table.home(key(*i))].likely(key(*i)).key() == key(*i);
        let share = (0..KEYS).filter(at_home).count() * 100 / KEYS as usize;
        assert!(share >= 95, "{share} in 100 are at home");
    }

    /// The fingerprints that stand for nobody are fingerprints like others.
    #[test]
    fn keys_of_all_zeros_and_all_ones_are_limited_like_any_other() {
        let clock = clock();
        for keys_max in [1, 100] {
            let table = table(keys_max);
            for key in [0, u64::MAX, 1, u64::MAX - 1] {
                let admitted = (0..10).filter(|_| table.check(key, 1, &clock).allowed).count();
                assert_eq!(admitted, 3, "{key:x}");
            }
            assert_eq!(table.live(clock.now()), 4);
        }
    }
}
