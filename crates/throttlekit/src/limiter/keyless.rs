//! A limiter without keys: for a process, a route, a backend.

use std::sync::atomic::Ordering::{AcqRel, Acquire};

use throttlekit_core::rate::word::{GcraWord, WindowWord, WordForm, WordRule};
use throttlekit_core::rate::{Limit, Rule, State};
use throttlekit_core::{Decision, Timestamp};

use crate::Call;
use crate::clock::{Clock, SystemClock};
use crate::memory::word_form;
use crate::sync::{AtomicU64, Mutex};

/// One limit for all calls, in one atomic word. Made by [`Limiter::keyless`](crate::Limiter::keyless), or with another
/// clock by [`build_keyless`](super::LimiterBuilder::build_keyless).
///
/// A call is `()` for one unit or `((), cost)`; its keys are not read.
///
/// ```
/// use throttlekit::{Limiter, Rate};
///
/// let exports = Limiter::keyless(Rate::per_minute(4))?;
/// assert!(exports.check(()).allowed && exports.check(((), 3)).allowed);
/// assert!(!exports.check(()).allowed);
/// # Ok::<(), throttlekit::BuildError>(())
/// ```
#[derive(Debug)]
pub struct KeylessLimiter<C = SystemClock> {
    limit: Limit,
    state: KeylessState,
    clock: C,
}

/// An explicit tag: the first branch of a check is then one comparison.
#[derive(Debug)]
#[repr(u8)]
enum KeylessState {
    Gcra(GcraWord, AtomicU64),
    Window(WindowWord, AtomicU64),
    Wide(Mutex<State>),
}

impl<C: Clock> KeylessLimiter<C> {
    pub(super) fn from_parts(limit: Limit, clock: C) -> Self {
        let state = match word_form(&limit, clock.now()) {
            Some(WordForm::Gcra(rule)) => KeylessState::Gcra(rule, AtomicU64::new(0)),
            Some(WordForm::Window(rule)) => KeylessState::Window(rule, AtomicU64::new(0)),
            None => KeylessState::Wide(Mutex::default()),
        };
        Self { limit, state, clock }
    }

    /// Checks one call, and charges it if allowed.
    // Always inline: the swap waits for every older store, including that of a call's return address.
    #[inline(always)]
    pub fn check<'a>(&self, call: impl Into<Call<'a>>) -> Decision {
        let (cost, now) = (call.into().units(), self.clock.now());
        match &self.state {
            KeylessState::Gcra(rule, word) => check_word(rule, word, cost, now),
            KeylessState::Window(rule, word) => {
                let seen = word.load(Acquire);
                match rule.at_once(seen, cost, now) {
                    Some(next) if word.compare_exchange(seen, next, AcqRel, Acquire).is_ok() => {
                        rule.allowed(next, next, cost)
                    }
                    _ => self.check_other(cost, now),
                }
            }
            KeylessState::Wide(_) => self.check_other(cost, now),
        }
    }

    /// Separate so that the common paths stay short.
    #[inline(never)]
    fn check_other(&self, cost: u64, now: Timestamp) -> Decision {
        match &self.state {
            KeylessState::Gcra(rule, word) => check_word(rule, word, cost, now),
            KeylessState::Window(rule, word) => check_word(rule, word, cost, now),
            KeylessState::Wide(state) => self.limit.check(&mut state.lock(), cost, now),
        }
    }

    /// Returns the remaining units without spending: `allowed` is `true` if one unit would pass.
    pub fn peek(&self) -> Decision {
        let now = self.clock.now();
        match &self.state {
            KeylessState::Gcra(rule, word) => rule.peek(word.load(Acquire), now),
            KeylessState::Window(rule, word) => rule.peek(word.load(Acquire), now),
            KeylessState::Wide(state) => self.limit.peek(&state.lock(), now),
        }
    }

    /// Returns the limit.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Returns the current time of this limiter's clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

#[inline(always)]
fn check_word<R: WordRule>(rule: &R, word: &AtomicU64, cost: u64, now: Timestamp) -> Decision {
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
