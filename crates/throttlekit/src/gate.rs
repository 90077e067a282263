//! A keyless limiter: for a process, a route, a backend.

use std::sync::atomic::Ordering::{AcqRel, Acquire};

use throttlekit_core::rate::word::{GcraWord, WindowWord, WordForm, WordRule};
use throttlekit_core::rate::{Limit, LimitError, Rule, State};
use throttlekit_core::{Cost, Decision, Timestamp};

use crate::memory::word_form;
use crate::sync::{AtomicU64, Mutex};
use crate::{Clock, SystemClock};

/// A keyless limiter: one limit for all requests, in one atomic word.
///
/// ```
/// use throttlekit::{Gate, Rate};
///
/// let exports = Gate::new(Rate::per_minute(2))?;
/// assert!(exports.check(1).allowed && exports.check(1).allowed);
/// assert!(!exports.check(1).allowed);
/// # Ok::<(), throttlekit::LimitError>(())
/// ```
#[derive(Debug)]
pub struct Gate<C = SystemClock> {
    limit: Limit,
    state: GateState,
    clock: C,
}

/// An explicit tag: the first branch of a check is then one comparison.
#[derive(Debug)]
#[repr(u8)]
enum GateState {
    Gcra(GcraWord, AtomicU64),
    Window(WindowWord, AtomicU64),
    Wide(Mutex<State>),
}

impl Gate {
    /// Creates a keyless limiter with the clock that fits the limit.
    pub fn new<L: TryInto<Limit>>(limit: L) -> Result<Self, LimitError>
    where
        LimitError: From<L::Error>,
    {
        let limit = limit.try_into()?;
        Ok(Self::with(limit, SystemClock::for_limit(&limit)))
    }
}

impl<C: Clock> Gate<C> {
    /// Creates a keyless limiter with this clock.
    pub fn with_clock<L: TryInto<Limit>>(limit: L, clock: C) -> Result<Self, LimitError>
    where
        LimitError: From<L::Error>,
    {
        Ok(Self::with(limit.try_into()?, clock))
    }

    fn with(limit: Limit, clock: C) -> Self {
        let state = match word_form(&limit, clock.now()) {
            Some(WordForm::Gcra(rule)) => GateState::Gcra(rule, AtomicU64::new(0)),
            Some(WordForm::Window(rule)) => GateState::Window(rule, AtomicU64::new(0)),
            None => GateState::Wide(Mutex::default()),
        };
        Self { limit, state, clock }
    }

    /// Decides a request of `cost`, and charges it if allowed.
    // Always inline: the swap waits for every older store, including that of a call's return address.
    #[inline(always)]
    pub fn check(&self, cost: Cost) -> Decision {
        let now = self.clock.now();
        match &self.state {
            GateState::Gcra(rule, word) => check_word(rule, word, cost, now),
            GateState::Window(rule, word) => {
                let seen = word.load(Acquire);
                match rule.at_once(seen, cost, now) {
                    Some(next) if word.compare_exchange(seen, next, AcqRel, Acquire).is_ok() => {
                        rule.allowed(next, next, cost)
                    }
                    _ => self.check_other(cost, now),
                }
            }
            GateState::Wide(_) => self.check_other(cost, now),
        }
    }

    /// Separate so that the common paths stay short.
    #[inline(never)]
    fn check_other(&self, cost: Cost, now: Timestamp) -> Decision {
        match &self.state {
            GateState::Gcra(rule, word) => check_word(rule, word, cost, now),
            GateState::Window(rule, word) => check_word(rule, word, cost, now),
            GateState::Wide(state) => self.limit.check(&mut state.lock(), cost, now),
        }
    }

    /// Returns the remaining units without spending: `allowed` is `true` if one unit would pass.
    pub fn peek(&self) -> Decision {
        let now = self.clock.now();
        match &self.state {
            GateState::Gcra(rule, word) => rule.peek(word.load(Acquire), now),
            GateState::Window(rule, word) => rule.peek(word.load(Acquire), now),
            GateState::Wide(state) => self.limit.peek(&state.lock(), now),
        }
    }

    /// Returns the limit.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }
}

#[inline(always)]
fn check_word<R: WordRule>(rule: &R, word: &AtomicU64, cost: Cost, now: Timestamp) -> Decision {
    let floor = rule.floor(now);
    let mut seen = word.load(Acquire);
    loop {
        let Some(next) = rule.next(seen, floor, cost) else {
            return rule.denied(seen, floor, cost, now);
        };
        if cost == 0 {
            return rule.allowed(next, floor, cost);
        }
        match word.compare_exchange(seen, next, AcqRel, Acquire) {
            Ok(_) => return rule.allowed(next, floor, cost),
            Err(newer) => seen = newer,
        }
    }
}
