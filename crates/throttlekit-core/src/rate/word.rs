//! Rules whose whole state is one machine word, for stores that compare and swap.
//!
//! A word is ordered: a greater one denies whatever a smaller one denies, and zero is a key never seen. So a
//! key's state at `now` is `max(word, floor(now))`, the join of two keys' debts is the greater word, and time
//! that moves forward means words that grow. The answers are those of the rule in full, field for field, for
//! [`HORIZON`] from the word's origin; a rule whose words would not last that long has no word form.

use core::time::Duration;

use super::calendar::Grid;
use super::reciprocal::Reciprocal;
use super::window::Count;
use super::{Gcra, Window};
use crate::{Cost, Decision, Forecast, Retry, Timestamp};

/// How long after its origin a word form stays exact: ten years of uptime. Later it denies.
pub const HORIZON: Duration = Duration::from_secs(10 * 366 * 86_400);

/// Words stay below this bit, which a store may use as a lock.
pub const WORD_MAX: u64 = (1 << 63) - 1;

/// What an ask does to a word.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The answer.
    pub decision: Decision,
    /// The key's next word if the ask is allowed and costs something; an ask of zero changes no word.
    pub next: u64,
}

/// A rule on words.
pub trait WordRule {
    /// The word of a key that has nothing to answer for at `now`. Never shrinks as time goes on.
    fn floor(&self, now: Timestamp) -> u64;

    /// The answer to an ask, given the key's word and the floor at `now`.
    fn step(&self, word: u64, floor: u64, cost: Cost, now: Timestamp) -> Step;

    /// What a key with this word has left, spending nothing.
    fn peek(&self, word: u64, now: Timestamp) -> Decision {
        super::peek(|cost| self.step(word, self.floor(now), cost, now).decision)
    }

    /// What a key with this word could spend, now and later.
    fn forecast(&self, word: u64, cost: Cost, now: Timestamp) -> Forecast {
        super::forecast(|cost| self.step(word, self.floor(now), cost, now).decision, cost, now)
    }
}

/// [`Gcra`] on words: ticks since the origin.
#[derive(Clone, Copy, Debug)]
pub struct GcraWord {
    origin: Timestamp,
    floor_max: u64,
    ticks_per_nano: u64,
    ticks_per_unit: u64,
    depth: u64,
    limit: u64,
    shapes: bool,
    per_unit: Reciprocal,
    per_nano: Reciprocal,
}

impl GcraWord {
    /// The word form, if ten years of ticks fit beside the depth.
    pub fn new(rule: &Gcra, origin: Timestamp) -> Option<Self> {
        let depth = u64::try_from(rule.depth).ok()?;
        let horizon = HORIZON.as_nanos() * u128::from(rule.pace.ticks_per_nano);
        // A bucket is promised one depth beyond the floor, an ask asks for one more, and a tick may round up.
        let ahead = 2 * rule.depth + u128::from(rule.pace.ticks_per_nano);
        if horizon + ahead > u128::from(WORD_MAX) {
            return None;
        }
        Some(Self {
            origin,
            floor_max: WORD_MAX - ahead as u64,
            ticks_per_nano: rule.pace.ticks_per_nano,
            ticks_per_unit: rule.pace.ticks_per_unit,
            depth,
            limit: rule.limit,
            shapes: rule.shapes,
            per_unit: Reciprocal::of(rule.pace.ticks_per_unit),
            per_nano: Reciprocal::of(rule.pace.ticks_per_nano),
        })
    }

    #[inline(always)]
    fn nanos_ceil(&self, ticks: u64) -> u64 {
        self.per_nano.divide(ticks + (self.ticks_per_nano - 1))
    }

    #[inline(always)]
    fn answer(&self, allowed: bool, tat: u64, floor: u64, retry_after: Retry) -> Decision {
        Decision {
            allowed,
            limit: self.limit,
            remaining: self.per_unit.divide((floor + self.depth).saturating_sub(tat)),
            reset_at: Timestamp::from_nanos(self.origin.as_nanos().saturating_add(self.nanos_ceil(tat))),
            retry_after,
        }
    }

    #[cold]
    fn deny(&self, tat: u64, floor: u64, cost: Cost) -> Decision {
        if cost > self.limit {
            return self.answer(false, tat, floor, Retry::Never);
        }
        let wait = tat - floor + cost * self.ticks_per_unit - self.depth;
        self.answer(false, tat, floor, self.wait(wait))
    }

    fn wait(&self, ticks: u64) -> Retry {
        Retry::after(Duration::from_nanos(self.nanos_ceil(ticks)))
    }
}

impl WordRule for GcraWord {
    #[inline(always)]
    fn floor(&self, now: Timestamp) -> u64 {
        let elapsed = now.as_nanos().saturating_sub(self.origin.as_nanos());
        // Past the horizon the floor stands still, so buckets stop refilling: closed, not open.
        elapsed.saturating_mul(self.ticks_per_nano).min(self.floor_max)
    }

    #[inline(always)]
    fn step(&self, word: u64, floor: u64, cost: Cost, _now: Timestamp) -> Step {
        let tat = word.max(floor);
        let next = tat.wrapping_add(cost.wrapping_mul(self.ticks_per_unit));
        if cost > self.limit || next > floor + self.depth {
            return Step { decision: self.deny(tat, floor, cost), next: word };
        }
        let turn = if self.shapes && cost > 0 { self.wait(tat - floor) } else { Retry::Now };
        Step { decision: self.answer(true, next, floor, turn), next }
    }
}

/// [`Window`] on words: the window's number since the origin above, the units used below.
#[derive(Clone, Copy, Debug)]
pub struct WindowWord {
    rule: Window,
    first: u64,
    used_bits: u32,
}

impl WindowWord {
    /// The word form, if ten years of windows fit above the count.
    pub fn new(rule: &Window, origin: Timestamp) -> Option<Self> {
        let used_bits = u64::BITS - rule.limit.leading_zeros();
        let first = rule.grid.index(origin);
        let last = rule.grid.index(origin + HORIZON) - first;
        (last < WORD_MAX >> used_bits).then_some(Self { rule: *rule, first, used_bits })
    }

    fn count(&self, word: u64) -> Count {
        let used = word & ((1 << self.used_bits) - 1);
        Count { window: self.first + (word >> self.used_bits), used }
    }
}

impl WordRule for WindowWord {
    #[inline]
    fn floor(&self, now: Timestamp) -> u64 {
        let window = Grid::index(&self.rule.grid, now).saturating_sub(self.first);
        window.min(WORD_MAX >> self.used_bits) << self.used_bits
    }

    #[inline]
    fn step(&self, word: u64, floor: u64, cost: Cost, now: Timestamp) -> Step {
        let word = word.max(floor);
        let decision = self.rule.answer(self.count(word), cost, now);
        Step { decision, next: if decision.allowed { word + cost } else { word } }
    }
}
