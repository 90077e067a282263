//! Limits by the minute: a token bucket, and a sliding window.

use std::collections::VecDeque;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const MINUTE_MICROS: u64 = 60_000_000;

/// The rule of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Units come back evenly, up to those of a minute.
    TokenBucket,
    /// Units of the last minute count.
    SlidingWindow,
}

/// One limit and its state. Times are since the start.
pub struct Limit {
    /// Units by the minute.
    units: u64,
    state: State,
}

enum State {
    /// Units left, in parts of a unit that comes back in a microsecond, and when that was.
    Bucket(u64, Duration),
    /// Times and units, and their sum.
    Window(VecDeque<(Duration, u64)>, u64),
}

/// A limit as headers report it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub limit: u64,
    pub remaining: u64,
    /// Time until all units are back.
    pub reset: Duration,
}

impl Limit {
    /// Creates a limit of which this part is left, in thousandths.
    pub fn new(rule: Rule, units: u64, left: u64) -> Self {
        let state = match rule {
            Rule::TokenBucket => State::Bucket(units * MINUTE_MICROS / 1_000 * left, Duration::ZERO),
            Rule::SlidingWindow => State::Window(used_before(units * (1_000 - left) / 1_000), 0),
        };
        let mut limit = Self { units, state };
        if let State::Window(used, sum) = &mut limit.state {
            *sum = used.iter().map(|(_, units)| units).sum();
        }
        limit
    }

    /// Changes the limit and removes what is over.
    pub fn update(&mut self, units: u64, now: Duration) {
        self.units = units;
        match &mut self.state {
            State::Bucket(level, at) => {
                let elapsed = now.saturating_sub(*at).as_micros() as u64;
                *level = (*level + elapsed * units).min(units * MINUTE_MICROS);
                *at = (*at).max(now);
            }
            State::Window(used, sum) => {
                // Times are shifted by a minute, so that those before the start are not negative.
                while used.front().is_some_and(|(at, _)| *at <= now) {
                    *sum -= used.pop_front().map_or(0, |(_, units)| units);
                }
            }
        }
    }

    /// Returns how long a call of this cost has to wait. Zero: it fits.
    pub fn wait(&self, cost: u64, now: Duration) -> Duration {
        match &self.state {
            State::Bucket(level, _) => {
                let missing = (cost * MINUTE_MICROS).saturating_sub(*level);
                Duration::from_micros(missing.div_ceil(self.units.max(1)))
            }
            State::Window(used, sum) => {
                let mut over = (sum + cost).saturating_sub(self.units);
                let last = used.iter().find(|(_, units)| {
                    over = over.saturating_sub(*units);
                    over == 0
                });
                if sum + cost <= self.units {
                    Duration::ZERO
                } else {
                    last.map_or(MINUTE, |(at, _)| *at - now)
                }
            }
        }
    }

    pub fn charge(&mut self, cost: u64, now: Duration) {
        match &mut self.state {
            State::Bucket(level, _) => *level = level.saturating_sub(cost * MINUTE_MICROS),
            State::Window(used, sum) => {
                used.push_back((now + MINUTE, cost));
                *sum += cost;
            }
        }
    }

    pub fn seen(&self, now: Duration) -> Seen {
        let (remaining, reset) = match &self.state {
            State::Bucket(level, _) => {
                let missing = self.units * MINUTE_MICROS - level;
                (level / MINUTE_MICROS, Duration::from_micros(missing / self.units.max(1)))
            }
            State::Window(used, sum) => {
                let reset = used.back().map_or(Duration::ZERO, |(at, _)| at.saturating_sub(now));
                (self.units.saturating_sub(*sum), reset)
            }
        };
        Seen { limit: self.units, remaining, reset }
    }
}

/// Returns units that were used evenly over the minute before the start, by the times at which they no longer count.
fn used_before(units: u64) -> VecDeque<(Duration, u64)> {
    const PARTS: u64 = 6_000;
    let part = |n: u64| (MINUTE * (n as u32 + 1) / PARTS as u32, units * (n + 1) / PARTS - units * n / PARTS);
    (0..PARTS).map(part).filter(|(_, units)| *units > 0).collect()
}
