//! Rules with a deliberate bug, to show that each law can fail.

use std::time::Duration;

use throttlekit_core::rate::{Limit, Rule, State};
use throttlekit_core::{Cost, Decision, Forecast, Retry, Timestamp};

use super::limit;
use crate::Spec;
use crate::text::nanos;

/// What is wrong with a [`Planted`] rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Bug {
    ClockTrusted,
    ChargeOnDenial,
    CostIgnored,
    OneUnitMore,
    OneUnitFewer,
    OneNanoEarly,
    OneNanoLate,
    RetryEarly,
    RetryLate,
    NeverAsWait,
    JoinKeepsSmaller,
    ForgetEarly,
    ForgetLate,
    PeekSpends,
    ReplenishEarly,
    ReplenishLate,
    FullEarly,
    FullLate,
}

/// A limit with one bug.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    rule: Limit,
    bug: Bug,
}

/// The rule's state, and the instant of the last charge.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlantedState {
    state: State,
    charged: Timestamp,
}

const TICK: Duration = Duration::from_nanos(1);

impl Planted {
    /// The limit described, with this bug.
    pub fn new(spec: &Spec, bug: Bug) -> Self {
        Self { rule: limit(spec), bug }
    }

    fn moved_retry(&self, retry: Retry) -> Retry {
        match (self.bug, retry) {
            (Bug::RetryEarly, Retry::After(wait)) => Retry::after(wait.saturating_sub(TICK)),
            (Bug::RetryLate, Retry::After(wait)) => Retry::after(wait + TICK),
            (Bug::NeverAsWait, Retry::Never) => Retry::after(self.rule.period()),
            (_, retry) => retry,
        }
    }
}

impl Rule for Planted {
    type State = PlantedState;

    fn decide(&self, state: &PlantedState, cost: Cost, now: Timestamp) -> Decision {
        let fresh = State::default();
        let known = &state.state;
        let possible = cost <= self.rule.units();
        let (state, cost, now) = match self.bug {
            // An older window looks like a fresh one: the fault B8 of the first implementation.
            Bug::ClockTrusted if now < state.charged => (&fresh, cost, now),
            Bug::OneUnitMore if possible => (known, cost.saturating_sub(1), now),
            Bug::OneUnitFewer if possible && cost > 0 => (known, (cost + 1).min(self.rule.units()), now),
            Bug::OneNanoEarly => (known, cost, now + TICK),
            Bug::OneNanoLate => (known, cost, Timestamp::from_nanos(now.as_nanos().saturating_sub(1))),
            _ => (known, cost, now),
        };
        let decision = self.rule.decide(state, cost, now);
        if decision.allowed {
            return decision;
        }
        Decision { retry_after: self.moved_retry(decision.retry_after), ..decision }
    }

    fn charge(&self, state: &mut PlantedState, cost: Cost, now: Timestamp) {
        if self.bug == Bug::ClockTrusted && now < state.charged {
            state.state = State::default();
        }
        let cost = if self.bug == Bug::CostIgnored { cost.min(1) } else { cost };
        self.rule.charge(&mut state.state, cost, now);
        state.charged = now;
    }

    fn idle_at(&self, state: &PlantedState) -> Timestamp {
        let at = self.rule.idle_at(&state.state);
        moved(at, self.bug == Bug::ForgetEarly, self.bug == Bug::ForgetLate)
    }

    fn join(&self, state: &mut PlantedState, other: &PlantedState) {
        if self.bug != Bug::JoinKeepsSmaller {
            self.rule.join(&mut state.state, &other.state);
        }
    }

    fn check(&self, state: &mut PlantedState, cost: Cost, now: Timestamp) -> Decision {
        let decision = self.decide(state, cost, now);
        if decision.allowed || (self.bug == Bug::ChargeOnDenial && cost <= self.rule.units()) {
            self.charge(state, cost, now);
        }
        decision
    }

    fn peek(&self, state: &PlantedState, now: Timestamp) -> Decision {
        match self.bug {
            Bug::PeekSpends => self.rule.decide(&state.state, 1, now),
            _ => self.rule.peek(&state.state, now),
        }
    }

    fn forecast(&self, state: &PlantedState, cost: Cost, now: Timestamp) -> Forecast {
        let right = self.rule.forecast(&state.state, cost, now);
        let bug = |name| self.bug == name;
        Forecast {
            next_replenish_at: moved(
                right.next_replenish_at,
                bug(Bug::ReplenishEarly),
                bug(Bug::ReplenishLate),
            ),
            full_at: moved(right.full_at, bug(Bug::FullEarly), bug(Bug::FullLate)),
            ..right
        }
    }
}

fn moved(at: Timestamp, early: bool, late: bool) -> Timestamp {
    Timestamp::from_nanos((at.as_nanos() + u64::from(late)).saturating_sub(u64::from(early)))
}

/// GCRA as the first implementation has it: doubles, in milliseconds since the epoch (fault B10).
#[derive(Clone, Copy, Debug)]
pub(super) struct FloatGcra {
    spacing_ms: f64,
    burst: u64,
}

impl FloatGcra {
    /// None for limits that are no plain GCRA or too fast for a wait in whole milliseconds to mean anything.
    pub(super) fn new(spec: &Spec) -> Option<Self> {
        let Spec::Gcra { units, period, burst } = *spec else { return None };
        Some(Self { spacing_ms: nanos(period) as f64 / 1e6 / units as f64, burst })
    }

    fn ms(now: Timestamp) -> f64 {
        now.as_nanos() as f64 / 1e6
    }

    fn next(&self, tat: f64, cost: Cost, now: Timestamp) -> f64 {
        tat.max(Self::ms(now)) + self.spacing_ms * cost as f64
    }
}

impl Rule for FloatGcra {
    type State = f64;

    fn decide(&self, tat: &f64, cost: Cost, now: Timestamp) -> Decision {
        let depth = self.spacing_ms * self.burst as f64;
        let next = self.next(*tat, cost, now);
        let wait = Duration::from_nanos(((next - depth - Self::ms(now)).max(0.0) * 1e6).ceil() as u64);
        let allowed = wait.is_zero() && cost <= self.burst;
        let left = ((depth - (next - Self::ms(now))) / self.spacing_ms).floor().max(0.0) as u64;
        let retry_after = if cost > self.burst { Retry::Never } else { Retry::after(wait) };
        let reset_at = Timestamp::from_nanos((next * 1e6).ceil() as u64);
        Decision { allowed, limit: self.burst, remaining: left, reset_at, retry_after }
    }

    fn charge(&self, tat: &mut f64, cost: Cost, now: Timestamp) {
        *tat = self.next(*tat, cost, now);
    }

    fn idle_at(&self, tat: &f64) -> Timestamp {
        Timestamp::from_nanos((tat * 1e6).ceil() as u64)
    }

    fn join(&self, tat: &mut f64, other: &f64) {
        *tat = tat.max(*other);
    }
}

/// A token bucket as the first implementation has it, in whole numbers: a clock that steps back refills nothing,
/// but the earlier instant is remembered, and the way forward is refilled twice (fault B8).
#[derive(Clone, Copy, Debug)]
pub(super) struct PhantomRefill {
    capacity: u64,
    units: u64,
    period: u64,
}

/// Units missing, times the period, and since when.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Level {
    missing: u128,
    last: Timestamp,
}

impl PhantomRefill {
    /// None for limits that are no token bucket.
    pub(super) fn new(spec: &Spec) -> Option<Self> {
        let Spec::TokenBucket { capacity, units, period } = *spec else { return None };
        Some(Self { capacity, units, period: nanos(period) })
    }

    fn refilled(&self, level: &Level, now: Timestamp) -> u128 {
        level.missing.saturating_sub(now.since(level.last).as_nanos() * u128::from(self.units))
    }

    fn wait(&self, ticks: u128) -> Duration {
        Duration::from_nanos(u64::try_from(ticks.div_ceil(u128::from(self.units))).unwrap_or(u64::MAX))
    }
}

impl Rule for PhantomRefill {
    type State = Level;

    fn decide(&self, level: &Level, cost: Cost, now: Timestamp) -> Decision {
        let (period, capacity) =
            (u128::from(self.period), u128::from(self.capacity) * u128::from(self.period));
        let missing = self.refilled(level, now);
        let wanted = missing + u128::from(cost) * period;
        let allowed = wanted <= capacity;
        let left = (capacity - if allowed { wanted } else { missing }) / period;
        let retry_after = if cost > self.capacity {
            Retry::Never
        } else {
            Retry::after(self.wait(wanted.saturating_sub(capacity)))
        };
        let reset_at = now + self.wait(if allowed { wanted } else { missing });
        Decision { allowed, limit: self.capacity, remaining: left as u64, reset_at, retry_after }
    }

    fn charge(&self, level: &mut Level, cost: Cost, now: Timestamp) {
        let missing = self.refilled(level, now) + u128::from(cost) * u128::from(self.period);
        *level = Level { missing, last: now };
    }

    fn idle_at(&self, level: &Level) -> Timestamp {
        level.last + self.wait(level.missing)
    }

    fn join(&self, level: &mut Level, other: &Level) {
        if self.idle_at(other) > self.idle_at(level) {
            *level = *other;
        }
    }
}

/// The same limit with its pace cut to whole nanoseconds, as if the remainder did not matter: too fast when
/// rounded down, too slow when rounded up. None where nothing is cut.
pub(super) fn remainder_dropped(spec: &Spec, up: bool) -> Option<Limit> {
    let Spec::Gcra { units, period, burst } = *spec else { return None };
    let ns = nanos(period);
    if ns.is_multiple_of(units) {
        return None;
    }
    let pace = if up { ns.div_ceil(units) } else { ns / units };
    Spec::Gcra { units: 1, period: Duration::from_nanos(pace), burst }.limit().ok()
}
