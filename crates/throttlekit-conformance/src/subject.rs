//! The object under test of a suite.

use std::collections::HashMap;

use throttlekit_core::rate::{Limit, Rule, State};
use throttlekit_core::{Cost, Decision, Forecast, Timestamp};

/// Anything that can play a trace of one limit. A store implements it and runs [`suite`](crate::suite).
pub trait Subject {
    /// Decides a request, and charges it if allowed.
    fn check(&mut self, key: &str, cost: Cost, now: Timestamp) -> Decision;

    /// Returns the remaining units without charging.
    fn peek(&mut self, key: &str, now: Timestamp) -> Decision;

    /// Returns what could be spent now, and when units are replenished.
    fn forecast(&mut self, key: &str, cost: Cost, now: Timestamp) -> Forecast;

    /// Resets a key.
    fn reset(&mut self, key: &str);
}

/// The reference: the pure rule over a plain map.
#[derive(Clone, Debug)]
pub struct CoreSubject {
    limit: Limit,
    states: HashMap<String, State>,
}

impl CoreSubject {
    /// Creates a subject without keys.
    pub fn new(limit: Limit) -> Self {
        Self { limit, states: HashMap::new() }
    }

    /// Returns the keys that a store may have dropped by `now`.
    pub fn idle_keys(&self, now: Timestamp) -> Vec<String> {
        let idle = self.states.iter().filter(|(_, state)| self.limit.idle_at(state) <= now);
        idle.map(|(key, _)| key.clone()).collect()
    }

    fn state(&self, key: &str) -> State {
        self.states.get(key).cloned().unwrap_or_default()
    }
}

impl Subject for CoreSubject {
    fn check(&mut self, key: &str, cost: Cost, now: Timestamp) -> Decision {
        self.limit.check(self.states.entry(key.into()).or_default(), cost, now)
    }

    fn peek(&mut self, key: &str, now: Timestamp) -> Decision {
        self.limit.peek(&self.state(key), now)
    }

    fn forecast(&mut self, key: &str, cost: Cost, now: Timestamp) -> Forecast {
        self.limit.forecast(&self.state(key), cost, now)
    }

    fn reset(&mut self, key: &str) {
        self.states.remove(key);
    }
}
