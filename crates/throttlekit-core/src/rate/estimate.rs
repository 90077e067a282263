//! Estimates of the debts of keys for which a bounded store has no capacity: per key, and never below the truth.
//!
//! A Count-Min sketch over debts. A key has one cell in each of [`ROWS`] rows, which it shares with others. Each of
//! them is raised to the key's debt, and the key's estimate is the minimum over its cells. Others only raise cells,
//! so the estimate is never less than what the key owes; it is more only where every cell of the key is shared with
//! keys that owe more. The store raises cells to *estimate plus charge* and not by the charge (conservative update).
//!
//! A debt is a number of units and their position in time: a bucket's is the instant at which it is full again, for the
//! other rules it is units in a generation. Generations are numbered from the epoch, a later one replaces those that
//! are over, so nothing has to be swept.

use super::{Count, Limit, Log, Ring, Rule, State, Tat, UNITS_MAX};
use crate::Timestamp;

/// Cells of one key. With three, fewer are denied early than with two or four when each of many keys sends one request,
/// and hardly more when each requests all of its limit.
pub const ROWS: usize = 3;

/// Numbers of generations fit a cell until the year 2109.
const LAST: Timestamp = Timestamp::from_millis(4_400_000_000_000);

/// Generations in one cell.
const KEPT_MAX: usize = 3;
/// Bits of each of their counts, at least.
const COUNT_BITS_MIN: u32 = 8;

/// Encoding of debts under one limit in cells of 64 bits. Zero is a cell without debt.
#[derive(Clone, Copy, Debug)]
pub struct Estimates {
    limit: Limit,
    cells: Cells,
}

#[derive(Clone, Copy, Debug)]
enum Cells {
    /// Instant when a bucket is full again, in nanoseconds since the epoch.
    Instant,
    Generations(Generations),
}

/// Units by generation: the number of the newest above, then the counts of some, the newest first.
///
/// A window is one generation. A sliding rule remembers three at most where each is half its length, and two where each
/// is all of it, which leaves more bits for counts.
#[derive(Clone, Copy, Debug)]
struct Generations {
    /// Positions (windows, buckets or nanoseconds) in each.
    positions: u64,
    kept: u32,
    bits: u32,
    /// Units in one count, rounded up: all but the greatest count mean at most the limit.
    quantum: u64,
}

impl Estimates {
    /// Of a limit's debts.
    pub fn of(limit: &Limit) -> Self {
        let cells = match limit {
            Limit::Gcra(_) => Cells::Instant,
            Limit::Window(rule) => Cells::Generations(Generations::new(limit, rule.grid.index(LAST), 1, 1)),
            Limit::SlidingWindow(rule) => {
                let remembered = u64::from(rule.buckets) + 1;
                Cells::Generations(Generations::sliding(limit, rule.tick_at(LAST), remembered))
            }
            Limit::SlidingLog(rule) => {
                let remembered = crate::time::nanos(rule.period());
                Cells::Generations(Generations::sliding(limit, LAST.as_nanos(), remembered))
            }
        };
        Self { limit: *limit, cells }
    }

    /// Returns the cell after a key with this state is counted in it at `now`. Never lowers a debt that is not over.
    pub fn raise(&self, cell: u64, state: &State, now: Timestamp) -> u64 {
        match self.cells {
            Cells::Instant => cell.max(self.full_again(state, now).as_nanos()),
            Cells::Generations(generations) => match position(state) {
                Some((position, units)) => {
                    let at = generations.of_position(position);
                    let lives = |generation| self.idle_at(generations, generation) > now;
                    generations.raise(cell, at, generations.count(units), lives)
                }
                None => cell,
            },
        }
    }

    /// Returns the state of a key that has these cells, if it may have debt at `now`: at least its debt. None was
    /// raised after `latest`, which is not before `now`.
    pub fn state(&self, cells: [u64; ROWS], now: Timestamp, latest: Timestamp) -> Option<State> {
        match (self.cells, &self.limit) {
            (Cells::Instant, Limit::Gcra(rule)) => {
                let full = Timestamp::from_nanos(cells.into_iter().fold(u64::MAX, u64::min));
                (full > now).then(|| State::Tat(Tat(rule.ticks(full))))
            }
            (Cells::Generations(generations), _) => self.joined(generations, cells, now, latest),
            (Cells::Instant, _) => None,
        }
    }

    /// Returns when a bucket is full again. One of another pace counts by its units, as it stands at `now`.
    fn full_again(&self, state: &State, now: Timestamp) -> Timestamp {
        match (&self.limit, state) {
            (Limit::Gcra(rule), State::Bucket(bucket)) => rule.idle_at(&rule.carried(bucket, now)),
            _ => self.limit.idle_at(state),
        }
    }

    /// Returns a state that denies whatever either denies.
    pub fn join(&self, mut state: State, other: &State) -> State {
        self.limit.join(&mut state, other);
        state
    }

    fn joined(
        &self,
        generations: Generations,
        cells: [u64; ROWS],
        now: Timestamp,
        latest: Timestamp,
    ) -> Option<State> {
        let mut joined = None;
        let named = cells.into_iter().flat_map(|cell| generations.named(cell));
        for at in named.filter(|at| self.idle_at(generations, *at) > now) {
            let count =
                cells.into_iter().fold(u64::MAX, |least, cell| least.min(generations.since(cell, at)));
            if count > 0 {
                let state = self.state_in(generations, at, generations.units(count), latest);
                self.limit.join(joined.get_or_insert_default(), &state);
            }
        }
        joined
    }

    fn idle_at(&self, generations: Generations, at: u64) -> Timestamp {
        self.limit.idle_at(&self.state_in(generations, at, 1, Timestamp::MAX))
    }

    /// Units at the end of a generation, or at `latest` in the one that is not over: no earlier than they were charged,
    /// and no later than anything was, so that debts of keys that share cells do not move on.
    fn state_in(&self, generations: Generations, at: u64, units: u64, latest: Timestamp) -> State {
        let end = at.saturating_mul(generations.positions).saturating_add(generations.positions - 1);
        match &self.limit {
            Limit::Gcra(_) => State::Fresh,
            Limit::Window(rule) => {
                State::Count(Count { window: end.min(rule.grid.index(latest)), used: units })
            }
            Limit::SlidingWindow(rule) => {
                State::Ring(Ring::of(end.min(rule.tick_at(latest)), units, rule.buckets))
            }
            Limit::SlidingLog(_) => State::Log(Log::of(latest.min(Timestamp::from_nanos(end)), units)),
        }
    }
}

impl Generations {
    /// The finer ones if the limit's units can be counted in them.
    fn sliding(limit: &Limit, last: u64, remembered: u64) -> Self {
        let halves = Self::new(limit, last, remembered.div_ceil(2), 3);
        if halves.quantum == 1 { halves } else { Self::new(limit, last, remembered, 2) }
    }

    /// With numbers up to the one of the position `last`.
    fn new(limit: &Limit, last: u64, positions: u64, kept: u32) -> Self {
        // Generations of very short windows hold several of them, so that counts have their bits.
        let positions = positions.max((last >> (u64::BITS - COUNT_BITS_MIN * kept)) + 1);
        let number_bits = u64::BITS - (last / positions).leading_zeros();
        let bits = ((u64::BITS - number_bits) / kept).min(UNITS_MAX.count_ones());
        // One count less than there are: the greatest means an unknown larger amount.
        let quantum = limit.units().div_ceil((1 << bits) - 2);
        Self { positions, kept, bits, quantum }
    }

    fn of_position(self, position: u64) -> u64 {
        (position / self.positions).min(u64::MAX >> (self.kept * self.bits))
    }

    fn greatest(self) -> u64 {
        (1 << self.bits) - 1
    }

    fn count(self, units: u64) -> u64 {
        units.div_ceil(self.quantum).min(self.greatest())
    }

    fn units(self, count: u64) -> u64 {
        if count == self.greatest() { UNITS_MAX } else { count * self.quantum }
    }

    fn newest(self, cell: u64) -> u64 {
        cell >> (self.kept * self.bits)
    }

    /// The count of the generation `age` before the newest.
    fn at_age(self, cell: u64, age: u32) -> u64 {
        (cell >> (self.bits * (self.kept - 1 - age))) & self.greatest()
    }

    /// The generations that a cell covers.
    fn named(self, cell: u64) -> impl Iterator<Item = u64> {
        let ages = (0..self.kept).filter(move |age| self.at_age(cell, *age) > 0);
        ages.map(move |age| self.newest(cell).saturating_sub(u64::from(age)))
    }

    /// The greatest count of a generation or a later one. What is older than a cell keeps was counted in a later one.
    fn since(self, cell: u64, at: u64) -> u64 {
        let ages = (0..self.kept).take_while(|age| self.newest(cell).saturating_sub(u64::from(*age)) >= at);
        ages.map(|age| self.at_age(cell, age)).max().unwrap_or(0)
    }

    fn raise(self, cell: u64, at: u64, count: u64, lives: impl Fn(u64) -> bool) -> u64 {
        let newest = self.newest(cell).max(at);
        let mut counts = [0; KEPT_MAX];
        let oldest = self.kept as usize - 1;
        let before = (0..self.kept)
            .map(|age| (self.newest(cell).saturating_sub(u64::from(age)), self.at_age(cell, age)));
        for (generation, count) in before.chain([(at, count)]) {
            let age = usize::try_from(newest - generation).unwrap_or(usize::MAX);
            // One that is too old to be kept and not over counts as the oldest that is kept.
            if age <= oldest || lives(generation) {
                let slot = &mut counts[age.min(oldest)];
                *slot = count.max(*slot);
            }
        }
        let pack = |packed, count: &u64| packed << self.bits | count;
        newest << (self.kept * self.bits) | counts[..=oldest].iter().fold(0, pack)
    }
}

/// Returns the position in its limit's time at which a key was charged last, and the units used since it was idle.
fn position(state: &State) -> Option<(u64, u64)> {
    let (position, units) = match state {
        State::Fresh | State::Tat(_) | State::Bucket(_) => return None,
        State::Count(count) => (count.window, count.used),
        State::Ring(ring) => ring.newest_and_units(),
        State::Log(log) => log.newest_and_units(),
    };
    (units > 0).then_some((position, units))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::time::Duration;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::rate::{Cadence, Rate, SlidingWindow};

    const HOUR: Duration = Duration::from_secs(3_600);
    const NOON: u64 = 1_800_000_000_000_000_000;

    fn limits() -> Vec<Limit> {
        let limits = [5, 100, 1_000_000].into_iter().flat_map(|units| {
            [
                Limit::gcra(Rate::per(units, HOUR)),
                Limit::gcra(Rate::per(999_983, HOUR).burst(units)),
                Limit::fixed_window(units, HOUR),
                Limit::fixed_window(units, Duration::from_micros(50)),
                Limit::quota(units, Cadence::Month { utc_offset_minutes: 60 }),
                Limit::token_budget(units, HOUR),
                SlidingWindow::new(units, HOUR, 1).map(Limit::from),
                SlidingWindow::new(units, HOUR, 7).map(Limit::from),
                SlidingWindow::new(units, Duration::from_micros(50), 100).map(Limit::from),
                Limit::sliding_log(units, HOUR),
                Limit::sliding_log(units, Duration::from_micros(50)),
                Limit::sliding_log(units, Duration::from_nanos(1)),
                Limit::fixed_window(units, Duration::from_nanos(1)),
            ]
        });
        limits.flatten().collect()
    }

    /// The cells of keys that share some of them, counted as a store does.
    struct Sketch {
        estimates: Estimates,
        cells: Vec<u64>,
        latest: Timestamp,
    }

    impl Sketch {
        fn new(limit: &Limit) -> Self {
            Self { estimates: Estimates::of(limit), cells: std::vec![0; 8], latest: Timestamp::EPOCH }
        }

        fn places(key: u64) -> [usize; ROWS] {
            core::array::from_fn(|row| 2 * row + (key as usize >> row & 1))
        }

        fn state(&self, key: u64, now: Timestamp) -> State {
            let cells = Self::places(key).map(|place| self.cells[place]);
            self.estimates.state(cells, now, self.latest.max(now)).unwrap_or_default()
        }

        fn count(&mut self, key: u64, state: &State, now: Timestamp) {
            self.latest = self.latest.max(now);
            for place in Self::places(key) {
                self.cells[place] = self.estimates.raise(self.cells[place], state, now);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        /// `bounded-memory`: whatever keys share cells, an estimate admits no more than the key's own state does. A
        /// debt that was over once may be forgotten, should the clock step back to before its end.
        #[test]
        fn estimates_admit_no_more_than_the_truth(
            limit in 0..limits().len(),
            steps in proptest::collection::vec((0_u64..16, 1_u64..4, 0_u64..1_000, 0_u8..12), 1..60),
        ) {
            let limit = limits()[limit];
            let period = crate::time::nanos(limit.period());
            let (mut sketch, mut truth) = (Sketch::new(&limit), [const { State::Fresh }; 16]);
            let mut now = Timestamp::from_nanos(NOON);
            let mut latest = now;
            for (key, cost, part, step) in steps {
                let by = (u128::from(period) * u128::from(part) / 1_000) as u64;
                now = match step {
                    0 => Timestamp::from_nanos(now.as_nanos() - by / 4),
                    1 => now + Duration::from_nanos(by.saturating_mul(3)),
                    _ => now + Duration::from_nanos(by / 20),
                };
                latest = latest.max(now);
                let mine = &mut truth[key as usize];
                if limit.idle_at(mine) <= latest {
                    *mine = State::Fresh;
                }
                let mut estimate = sketch.state(key, now);
                for cost in [0, 1, cost, limit.units()] {
                    let (mine, guess) = (limit.decide(mine, cost, now), limit.decide(&estimate, cost, now));
                    let no_more = if cost == 0 { guess.remaining <= mine.remaining } else { guess.allowed <= mine.allowed };
                    prop_assert!(no_more,
                        "{:?} at {}: {} of {:?}, truth {:?}", limit, now, cost, guess, mine);
                }
                if limit.decide(&estimate, cost, now).allowed {
                    limit.charge(mine, cost, now);
                    limit.charge(&mut estimate, cost, now);
                    sketch.count(key, &estimate, now);
                }
            }
        }
    }

    #[test]
    fn estimates_that_are_over_say_nothing() {
        for limit in limits() {
            let (mut sketch, now) = (Sketch::new(&limit), Timestamp::from_nanos(NOON));
            let mut state = State::default();
            limit.charge(&mut state, 3, now);
            sketch.count(3, &state, now);
            assert_ne!(sketch.state(3, now), State::Fresh, "{limit:?}");
            let over = now + (limit.period() * 4).max(Duration::from_millis(9));
            assert_eq!(sketch.state(3, over), State::Fresh, "{limit:?}");
        }
    }

    /// One unit is counted as one, so that an estimated key gets all of its limit.
    #[test]
    fn estimates_of_a_key_alone_are_exact_up_to_large_limits() {
        let minute = Duration::from_secs(60);
        for limit in [
            Limit::fixed_window(1_000_000, minute),
            Limit::sliding_window(200_000, minute),
            Limit::sliding_log(10_000, minute),
            Limit::sliding_log(5, Duration::from_millis(1)),
        ] {
            let limit = limit.unwrap();
            let (mut sketch, now) = (Sketch::new(&limit), Timestamp::from_nanos(NOON));
            for used in 0..limit.units().min(1_000) {
                let mut state = sketch.state(3, now);
                assert_eq!(limit.decide(&state, 0, now).remaining, limit.units() - used, "{limit:?}");
                limit.charge(&mut state, 1, now);
                sketch.count(3, &state, now);
            }
        }
    }

    /// A flood of keys that share cells, each charged once, over many periods: no debt moves on with those of others.
    #[test]
    fn estimates_do_not_drift_into_the_future() {
        for limit in limits().into_iter().filter(|limit| !matches!(limit, Limit::Gcra(_))) {
            let mut sketch = Sketch::new(&limit);
            let step = limit.period() / 50;
            let mut now = Timestamp::from_nanos(NOON);
            for turn in 0..2_000_u64 {
                now = now + step;
                let mut state = sketch.state(turn % 16, now);
                if limit.decide(&state, 1, now).allowed {
                    limit.charge(&mut state, 1, now);
                    sketch.count(turn % 16, &state, now);
                }
                let idle = limit.idle_at(&state);
                let longest = (limit.period() * 4).max(Duration::from_millis(9));
                assert!(idle.since(now) <= longest, "{limit:?}: {:?} after {turn} turns", idle.since(now));
            }
        }
    }
}
