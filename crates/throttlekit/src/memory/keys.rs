//! The keys of one limit: in words where the rule allows it, in a map of states where it does not.

use throttlekit_core::rate::word::{GcraWord, WindowWord, WordForm, WordRule};
use throttlekit_core::rate::{Limit, Rule};
use throttlekit_core::{Cost, Decision, Forecast, Timestamp};

use super::table::{HeldCell, WordTable};
use super::wide::{Locked, WideMap};
use crate::Clock;

/// Words count from this long before the limiter was made, so that a clock may step back a day and still be
/// answered exactly; further back it is answered as of then.
const BEFORE_START: u64 = 86_400 * 1_000_000_000;

pub(crate) fn word_origin(now: Timestamp) -> Timestamp {
    Timestamp::from_nanos(now.as_nanos().saturating_sub(BEFORE_START))
}

pub(crate) struct Keys {
    limit: Limit,
    states: States,
}

/// Tagged openly: the first test on the way of a check is then one comparison.
#[repr(u8)]
enum States {
    Gcra(WordTable<GcraWord>),
    Window(WordTable<WindowWord>),
    Wide(WideMap),
}

/// One key, held so that several limits can decide as one.
pub(crate) enum HeldKey<'a> {
    Gcra(&'a GcraWord, HeldCell<'a>),
    Window(&'a WindowWord, HeldCell<'a>),
    Wide(&'a Limit, Locked<'a>),
}

impl Keys {
    pub(crate) fn new(limit: Limit, keys_max: usize, now: Timestamp) -> Self {
        let states = match WordForm::of(&limit, word_origin(now)) {
            Some(WordForm::Gcra(rule)) => States::Gcra(WordTable::new(rule, keys_max)),
            Some(WordForm::Window(rule)) => States::Window(WordTable::new(rule, keys_max)),
            None => States::Wide(WideMap::new(limit, keys_max)),
        };
        Self { limit, states }
    }

    pub(crate) fn limit(&self) -> &Limit {
        &self.limit
    }

    #[inline(always)]
    pub(crate) fn check(&self, key: u64, cost: Cost, clock: &impl Clock) -> Decision {
        match &self.states {
            States::Gcra(table) => table.check(key, cost, clock),
            _ => self.check_other(key, cost, clock.now()),
        }
    }

    /// Kept apart so that the common path stays short.
    #[inline(never)]
    fn check_other(&self, key: u64, cost: Cost, now: Timestamp) -> Decision {
        match &self.states {
            States::Gcra(table) => table.check(key, cost, &At(now)),
            States::Window(table) => table.check(key, cost, &At(now)),
            States::Wide(map) => map.lock(key).check(cost, now),
        }
    }

    /// Answers up to [`BATCH`](super::BATCH) asks at one instant, in order.
    #[inline]
    pub(crate) fn check_batch(
        &self,
        keys: impl Iterator<Item = u64>,
        cost: Cost,
        now: Timestamp,
        decisions: &mut Vec<Decision>,
    ) {
        match &self.states {
            States::Gcra(table) => table.check_batch(keys, cost, now, decisions),
            States::Window(table) => table.check_batch(keys, cost, now, decisions),
            States::Wide(map) => decisions.extend(keys.map(|key| map.lock(key).check(cost, now))),
        }
    }

    pub(crate) fn peek(&self, key: u64, now: Timestamp) -> Decision {
        match &self.states {
            States::Gcra(table) => table.rule().peek(table.word(key, now), now),
            States::Window(table) => table.rule().peek(table.word(key, now), now),
            States::Wide(map) => self.limit.peek(map.lock(key).state(now), now),
        }
    }

    pub(crate) fn forecast(&self, key: u64, cost: Cost, now: Timestamp) -> Forecast {
        match &self.states {
            States::Gcra(table) => table.rule().forecast(table.word(key, now), cost, now),
            States::Window(table) => table.rule().forecast(table.word(key, now), cost, now),
            States::Wide(map) => self.limit.forecast(map.lock(key).state(now), cost, now),
        }
    }

    pub(crate) fn reset(&self, key: u64) {
        match &self.states {
            States::Gcra(table) => table.forgive(key),
            States::Window(table) => table.forgive(key),
            States::Wide(map) => map.remove(key),
        }
    }

    pub(crate) fn live(&self, now: Timestamp) -> usize {
        match &self.states {
            States::Gcra(table) => table.live(now),
            States::Window(table) => table.live(now),
            States::Wide(map) => map.live(now),
        }
    }

    pub(crate) fn hold(&self, key: u64, now: Timestamp) -> HeldKey<'_> {
        match &self.states {
            States::Gcra(table) => HeldKey::Gcra(table.rule(), table.hold(key, now)),
            States::Window(table) => HeldKey::Window(table.rule(), table.hold(key, now)),
            States::Wide(map) => HeldKey::Wide(&self.limit, map.lock(key)),
        }
    }
}

impl HeldKey<'_> {
    pub(crate) fn decide(&self, cost: Cost, now: Timestamp) -> Decision {
        match self {
            Self::Gcra(rule, cell) => rule.decide(cell.word(), cost, now),
            Self::Window(rule, cell) => rule.decide(cell.word(), cost, now),
            Self::Wide(limit, state) => limit.decide(state.state(now), cost, now),
        }
    }

    /// The same where nothing crosses the edge of a budget: whether all of it fits.
    pub(crate) fn decide_whole(&self, cost: Cost, now: Timestamp) -> Decision {
        match self {
            Self::Window(rule, cell) if rule.crosses() => rule.uncrossed().decide(cell.word(), cost, now),
            Self::Wide(limit, state) => limit.uncrossed().decide(state.state(now), cost, now),
            _ => self.decide(cost, now),
        }
    }

    /// Takes the cost of an ask that `decide` allowed at the same instant.
    pub(crate) fn charge(&mut self, cost: Cost, now: Timestamp) {
        match self {
            Self::Gcra(rule, cell) => cell.charge(*rule, cost, now),
            Self::Window(rule, cell) => cell.charge(*rule, cost, now),
            Self::Wide(_, state) => state.charge(cost, now),
        }
    }
}

/// A clock that stands still, for asks that share one instant.
struct At(Timestamp);

impl Clock for At {
    #[inline(always)]
    fn now(&self) -> Timestamp {
        self.0
    }
}
