//! The cost of reservations beyond the best fixed one in hindsight.

use std::collections::VecDeque;

use throttlekit_core::learn::ReservationOptions;

use super::{Check, Family, Lengths, Reserves, ensure};
use throttlekit_conformance::Dice;

/// An account over the first streams of a sequence.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    /// The number of streams.
    pub streams: u64,
    /// The cost of the reservations.
    pub paid: f64,
    /// The cost of the best whole reservation, the same for all streams.
    pub best: f64,
    /// The regret of the aims divided by its bound; at most 1.
    pub envelope_ratio: f64,
}

impl Account {
    /// Returns the cost of each stream beyond the best fixed reservation.
    pub fn regret_per_stream(&self) -> f64 {
        (self.paid - self.best) / self.streams as f64
    }
}

/// Runs a sequence on a learner, `open` streams at once. Returns its account after each of these ascending
/// numbers of streams. Streams end in any order; each has reserved by what was known when it began.
pub fn accounts(
    learner: &mut impl Reserves,
    options: ReservationOptions,
    family: Family,
    seed: u64,
    open: usize,
    horizons: &[u64],
) -> Vec<Account> {
    let most = horizons.last().copied().unwrap_or(0);
    let mut lengths = Lengths::new(family, seed, most, &options);
    let mut dice = Dice::new(!seed);
    let mut book = Book::new(options, open);
    let (mut under_way, mut accounts) = (VecDeque::new(), Vec::new());
    while book.streams < most {
        while under_way.len() < open {
            let (reserved, aim) = (learner.reserve(None), learner.aim(None));
            under_way.push_back((reserved, aim, lengths.next(reserved)));
        }
        let ends = dice.below(under_way.len() as u64) as usize;
        let (reserved, aim, actual) = under_way.swap_remove_back(ends).expect("one of those under way");
        book.enter(reserved, aim, actual);
        learner.observe(None, actual);
        if horizons.contains(&book.streams) {
            accounts.push(book.close());
        }
    }
    accounts
}

/// Regret per stream falls from each horizon to the next, or is below this part of the best's cost.
const REGRET_FLOOR: f64 = 0.005;

/// Checks that aims stay below their envelope, which holds for each seed, and that regret per stream falls,
/// on average.
pub fn check_regret(runs: &[Vec<Account>]) -> Check {
    for Account { streams, envelope_ratio, .. } in runs.iter().flatten() {
        let told = || format!("{envelope_ratio:.3} of the envelope after {streams} streams");
        ensure(*envelope_ratio <= 1.0, told)?;
    }
    for pair in average(runs).windows(2) {
        let ((_, before, _), (streams, after, best)) = (pair[0], pair[1]);
        let told = || format!("regret per stream went from {before:.3} to {after:.3} at {streams} streams");
        ensure(after <= before.max(0.0) * 0.9 || after <= REGRET_FLOOR * best, told)?;
    }
    Ok(())
}

/// Returns for each horizon: streams, regret per stream, the best's cost per stream, over all seeds.
pub fn average(runs: &[Vec<Account>]) -> Vec<(u64, f64, f64)> {
    let mean = |i: usize, of: fn(&Account) -> f64| {
        runs.iter().map(|run| of(&run[i])).sum::<f64>() / runs.len() as f64
    };
    let at = |i: usize| {
        (runs[0][i].streams, mean(i, Account::regret_per_stream), mean(i, |a| a.best / a.streams as f64))
    };
    (0..runs.first().map_or(0, Vec::len)).map(at).collect()
}

/// The sums so far.
struct Book {
    options: ReservationOptions,
    open: usize,
    hindsight: Hindsight,
    streams: u64,
    paid: f64,
    paid_by_aim: f64,
}

impl Book {
    fn new(options: ReservationOptions, open: usize) -> Self {
        let hindsight = Hindsight::new(options);
        Self { options, open, hindsight, streams: 0, paid: 0.0, paid_by_aim: 0.0 }
    }

    fn enter(&mut self, reserved: u64, aim: f64, actual: u64) {
        self.streams += 1;
        self.hindsight.enter(actual);
        self.paid += self.options.cost(reserved as f64, actual);
        self.paid_by_aim += self.options.cost(aim, actual);
    }

    fn close(&self) -> Account {
        let (_, best) = self.hindsight.best();
        let (scale, open) = (self.options.span() * self.options.steepest(), self.open as f64);
        let envelope = ((1.5 + 2.0 * (open - 1.0)) * (self.streams as f64).sqrt() + open) * scale;
        let envelope_ratio = (self.paid_by_aim - best) / envelope;
        Account { streams: self.streams, paid: self.paid, best, envelope_ratio }
    }
}

/// The lengths of past streams, counted, so that every fixed reservation can be tried.
#[derive(Clone, Debug)]
pub struct Hindsight {
    options: ReservationOptions,
    /// The number of streams of each length within the bounds; longer ones are counted with the largest.
    counts: Vec<u64>,
    streams: u64,
    /// Tokens beyond the largest reservation, which cost the same for any reservation.
    beyond: u64,
    /// The same below the smallest.
    below: u64,
}

impl Hindsight {
    /// Creates an empty record.
    pub fn new(options: ReservationOptions) -> Self {
        let counts = vec![0; (options.max - options.min + 1) as usize];
        Self { options, counts, streams: 0, beyond: 0, below: 0 }
    }

    /// Counts a stream.
    pub fn enter(&mut self, actual: u64) {
        let within = actual.clamp(self.options.min, self.options.max);
        self.counts[(within - self.options.min) as usize] += 1;
        self.streams += 1;
        self.beyond += actual - within.min(actual);
        self.below += within - actual.min(within);
    }

    /// Returns the best fixed reservation and its cost, found by trying them all from the smallest up: one
    /// more token is held for each stream that fits already, and saved for each that does not.
    pub fn best(&self) -> (u64, f64) {
        let fixed =
            self.options.overrun_cost * self.beyond as f64 + self.options.hold_cost * self.below as f64;
        let tokens: u64 = self.counts.iter().zip(0u64..).map(|(count, r)| count * r).sum();
        let mut cost = self.options.overrun_cost * tokens as f64;
        let mut best = (self.options.min, cost);
        let mut fit = 0;
        for (count, reserved) in self.counts.iter().zip(self.options.min..) {
            fit += count;
            if cost < best.1 {
                best = (reserved, cost);
            }
            cost +=
                self.options.hold_cost * fit as f64 - self.options.overrun_cost * (self.streams - fit) as f64;
        }
        (best.0, best.1 + fixed)
    }

    /// Returns the cost of a fixed reservation, summed stream by stream.
    pub fn cost(&self, reserved: u64) -> f64 {
        let fixed =
            self.options.overrun_cost * self.beyond as f64 + self.options.hold_cost * self.below as f64;
        let each = self.counts.iter().zip(self.options.min..);
        fixed
            + each
                .map(|(count, actual)| *count as f64 * self.options.cost(reserved as f64, actual))
                .sum::<f64>()
    }

    /// Returns the shortest length within the bounds that at least this part of the streams does not exceed.
    pub fn quantile(&self, part: f64) -> u64 {
        let rank = (part * self.streams as f64).ceil() as u64;
        let mut fit = 0;
        let reached = self.counts.iter().position(|count| {
            fit += count;
            fit >= rank
        });
        self.options.min + reached.unwrap_or(self.counts.len() - 1) as u64
    }
}

/// Checks that the learner's fractile names the best fixed reservation, compared with all others.
pub fn check_fractile(
    learner: &impl Reserves,
    options: ReservationOptions,
    family: Family,
    seed: u64,
) -> Check {
    const STREAMS: u64 = 997;
    let mut lengths = Lengths::new(family, seed, STREAMS, &options);
    let mut hindsight = Hindsight::new(options);
    (0..STREAMS).for_each(|stream| hindsight.enter(lengths.next(stream * 4_099 % (options.max + 1))));
    let (best, least) = hindsight.best();
    let quantile = hindsight.quantile(learner.fractile());
    let cost = hindsight.cost(quantile);
    ensure((hindsight.cost(best) - least).abs() <= 1e-9 * least.max(1.0), || {
        format!("{best} costs {} and not {least}", hindsight.cost(best))
    })?;
    ensure(cost <= least + 1e-9 * least.max(1.0), || {
        format!("the quantile {quantile} costs {cost:.0}, and {best} {least:.0}")
    })
}
