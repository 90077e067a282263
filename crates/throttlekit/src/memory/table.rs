//! A fixed table of cells: one word of state per key, one compare-and-swap per check.
//!
//! A key may live in one of sixteen cells: the eight of its home group or the eight of a second group. A group is
//! two neighbouring cache lines, and most keys are found in the first they look at. Nothing
//! moves and nothing is swept. A cell whose word lies below the floor says no more than an empty one, so it is
//! simply given to the next key that needs room; that is all there is to expiry.
//!
//! With twice as many cells as keys both groups are never full of live keys in practice. When they are, the
//! table is at its cap: the newcomer takes the cell of the key with the least debt and starts from that debt,
//! and the debt is remembered in the dropped key's stripe, from which every key unknown there starts. So memory
//! is what was allocated at the start, and no key that was being limited comes back to a fresh budget.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use throttlekit_core::rate::word::WordRule;
use throttlekit_core::{Cost, Decision, Timestamp};

use super::cell::{Cell, Missed, ORPHAN};
use crate::Clock;
use crate::sync::{AtomicU64, Mutex, MutexGuard, pause};

const CELLS_PER_LINE: usize = 4;
const CELLS_PER_GROUP: usize = 2 * CELLS_PER_LINE;
const CELLS_PER_KEY: usize = 2;
const GROUPS_PER_STRIPE: usize = 16;
/// A newcomer goes to its second group when its home has fewer free cells than this.
const FREE_MIN_AT_HOME: usize = 2;

pub(crate) struct WordTable<R> {
    rule: R,
    groups: Box<[Group]>,
    stripes: Box<[Stripe]>,
}

#[repr(align(128))]
struct Group {
    lines: [[Cell; CELLS_PER_LINE]; 2],
}

/// What the keys of some neighbouring home groups share.
struct Stripe {
    /// Held to add a key, so that no key is ever added twice.
    adding: Mutex<()>,
    /// The greatest word of a key that had to be dropped.
    dropped: AtomicU64,
}

/// A cell that may be given to a newcomer.
struct Room<'a> {
    cell: &'a Cell,
    seen: u64,
    /// Whether its owner has nothing left to answer for.
    free: bool,
}

/// A key's cell while an ask over several limits decides. Released unchanged unless `charge` is called.
pub(crate) struct HeldCell<'a> {
    cell: &'a Cell,
    word: u64,
}

impl<R: WordRule> WordTable<R> {
    pub(crate) fn new(rule: R, keys_max: usize) -> Self {
        let groups = (keys_max * CELLS_PER_KEY).div_ceil(CELLS_PER_GROUP).max(1);
        Self {
            rule,
            groups: (0..groups).map(|_| Group::empty()).collect(),
            stripes: (0..groups.div_ceil(GROUPS_PER_STRIPE)).map(|_| Stripe::new()).collect(),
        }
    }

    /// Answers an ask and charges it if allowed. The clock is read once the cell is found: what it costs to
    /// read then overlaps with fetching the cell.
    #[inline(always)]
    pub(crate) fn check(&self, key: u64, cost: Cost, clock: &impl Clock) -> Decision {
        let key = real_key(key);
        let home = self.home(key);
        let found = home.line(key).iter().find(|cell| cell.key() == key);
        let now = clock.now();
        if let Some(cell) = found
            && let Ok(decision) = cell.check(key, &self.rule, cost, self.rule.floor(now), now)
        {
            return decision;
        }
        self.check_elsewhere(key, cost, now)
    }

    /// Loads the line a key most likely lives in, and does nothing with it.
    #[inline(always)]
    pub(crate) fn touch(&self, key: u64) -> u64 {
        self.home(real_key(key)).line(key)[0].key()
    }

    /// What a key owes, or what a key unknown here would start with.
    pub(crate) fn word(&self, key: u64) -> u64 {
        let key = real_key(key);
        let known = self.find(key).map(Cell::word);
        match known {
            Some((word, _)) => word,
            None => self.stripe(key).dropped.load(Acquire),
        }
    }

    pub(crate) fn rule(&self) -> &R {
        &self.rule
    }

    /// Forgets a key.
    pub(crate) fn remove(&self, key: u64) {
        let key = real_key(key);
        self.with_cell(key, |cell| cell.orphan(key));
    }

    /// Holds a key's cell, adding the key if need be. Held cells are released in a moment: waiting is short.
    pub(crate) fn hold(&self, key: u64, now: Timestamp) -> HeldCell<'_> {
        let key = real_key(key);
        loop {
            if let Some(held) = self.with_cell(key, |cell| Ok(HeldCell { cell, word: cell.hold_for(key)? })) {
                return held;
            }
            self.add(key, now, |start, least| Some(start.max(least)));
        }
    }

    /// How many keys owe something at `now`. Looks at every cell.
    pub(crate) fn live(&self, now: Timestamp) -> usize {
        let floor = self.rule.floor(now);
        let owes = |cell: &&Cell| cell.key() > ORPHAN && cell.word().0 > floor;
        self.groups.iter().flat_map(|group| group.lines.iter().flatten()).filter(owes).count()
    }

    #[cold]
    #[inline(never)]
    fn check_elsewhere(&self, key: u64, cost: Cost, now: Timestamp) -> Decision {
        let floor = self.rule.floor(now);
        loop {
            if let Some(decision) = self.with_cell(key, |cell| cell.check(key, &self.rule, cost, floor, now))
            {
                return decision;
            }
            let mut answer = None;
            self.add(key, now, |start, _| {
                let step = self.rule.step(start, floor, cost, now);
                answer = Some(step.decision);
                (step.decision.allowed && cost > 0).then_some(step.next)
            });
            if let Some(decision) = answer {
                return decision;
            }
        }
    }

    /// Does something with a key's cell, waiting while it is held; nothing if the key is not there.
    fn with_cell<'a, T>(&'a self, key: u64, act: impl Fn(&'a Cell) -> Result<T, Missed>) -> Option<T> {
        let mut spins = 0;
        while let Some(cell) = self.find(key) {
            match act(cell) {
                Ok(done) => return Some(done),
                Err(_) => pause(&mut spins),
            }
        }
        None
    }

    /// Adds a key that is not there, with the word that `first` makes of the word it starts from and the least
    /// word it may have; `None` adds nothing. Does not call `first` if the key turns out to be there.
    fn add(&self, key: u64, now: Timestamp, mut first: impl FnMut(u64, u64) -> Option<u64>) {
        let stripe = self.stripe(key);
        let _adding = stripe.lock();
        if self.find(key).is_some() {
            return;
        }
        let floor = self.rule.floor(now);
        let mut spins = 0;
        loop {
            let Some(room) = self.room(key, floor) else {
                pause(&mut spins);
                continue;
            };
            let dropped = stripe.dropped.load(Acquire);
            let start = if room.free { dropped } else { dropped.max(room.seen) };
            let least = floor.max(room.seen + 1);
            let Some(word) = first(start, least) else { return };
            if room.cell.hold(room.seen) {
                self.remember(&room);
                return room.cell.hand_over(key, word);
            }
        }
    }

    /// Keeps the debt of a live key that is about to lose its cell.
    fn remember(&self, room: &Room<'_>) {
        let owner = room.cell.key();
        if !room.free && owner > ORPHAN {
            self.stripe(owner).dropped.fetch_max(room.seen, AcqRel);
        }
    }

    /// The cell to give to a newcomer: a free one, at home unless it is crowded there; else the one that owes
    /// least. Nothing while every cell is held.
    fn room(&self, key: u64, floor: u64) -> Option<Room<'_>> {
        let (home, second) = (self.home(key), self.second(key));
        let free_at_home = home.free(key, floor).count();
        let crowded = free_at_home < FREE_MIN_AT_HOME && second.free(key, floor).count() > free_at_home;
        let (first, then) = if crowded { (second, home) } else { (home, second) };
        let free = first.free(key, floor).chain(then.free(key, floor)).next();
        free.or_else(|| first.rooms(key, floor).chain(then.rooms(key, floor)).min_by_key(|room| room.seen))
    }

    fn find(&self, key: u64) -> Option<&Cell> {
        self.home(key).cells(key).chain(self.second(key).cells(key)).find(|cell| cell.key() == key)
    }

    #[inline(always)]
    fn home(&self, key: u64) -> &Group {
        &self.groups[scale(key, self.groups.len())]
    }

    fn second(&self, key: u64) -> &Group {
        &self.groups[scale(key.rotate_left(32), self.groups.len())]
    }

    fn stripe(&self, key: u64) -> &Stripe {
        &self.stripes[scale(key, self.groups.len()) / GROUPS_PER_STRIPE]
    }
}

impl Group {
    fn empty() -> Self {
        Self { lines: std::array::from_fn(|_| std::array::from_fn(|_| Cell::empty())) }
    }

    /// The line in which a key is looked for, and put, first.
    #[inline(always)]
    fn line(&self, key: u64) -> &[Cell; CELLS_PER_LINE] {
        &self.lines[key as usize & 1]
    }

    fn cells(&self, key: u64) -> impl Iterator<Item = &Cell> {
        self.line(key).iter().chain(self.line(!key))
    }

    fn rooms(&self, key: u64, floor: u64) -> impl Iterator<Item = Room<'_>> {
        self.cells(key).filter_map(move |cell| match cell.word() {
            (_, true) => None,
            (seen, false) => Some(Room { cell, seen, free: seen < floor || seen == 0 }),
        })
    }

    fn free(&self, key: u64, floor: u64) -> impl Iterator<Item = Room<'_>> {
        self.rooms(key, floor).filter(|room| room.free)
    }
}

impl Stripe {
    fn new() -> Self {
        Self { adding: Mutex::new(()), dropped: AtomicU64::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.adding.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldCell<'_> {
    pub(crate) fn word(&self) -> u64 {
        self.word
    }

    /// Replaces the word that is released.
    pub(crate) fn charge(&mut self, next: u64) {
        self.word = next;
    }
}

impl Drop for HeldCell<'_> {
    fn drop(&mut self) {
        self.cell.release(self.word);
    }
}

/// Spreads 64 random bits over `0..len`.
#[inline(always)]
fn scale(bits: u64, len: usize) -> usize {
    ((u128::from(bits) * len as u128) >> 64) as usize
}

/// Fingerprints that would read as a mark become ordinary ones.
#[inline(always)]
fn real_key(fingerprint: u64) -> u64 {
    if fingerprint <= ORPHAN { fingerprint + ORPHAN + 1 } else { fingerprint }
}
