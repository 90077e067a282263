//! Whatever answers asks: the thing a suite examines.

use std::collections::HashMap;

use throttlekit_core::rate::{Limit, Rule, State};
use throttlekit_core::{Cost, Decision, Forecast, Timestamp};

/// Anything that can play a timeline of one limit. A store writes one of these and runs [`suite`](crate::suite).
pub trait Subject {
    /// Answers an ask, and charges it if allowed.
    fn check(&mut self, key: &str, cost: Cost, now: Timestamp) -> Decision;

    /// What is left, spending nothing.
    fn peek(&mut self, key: &str, now: Timestamp) -> Decision;

    /// What could be spent now, and when units come back.
    fn forecast(&mut self, key: &str, cost: Cost, now: Timestamp) -> Forecast;

    /// Forgets a key.
    fn reset(&mut self, key: &str);
}

/// The reference: the pure rule over a plain map.
#[derive(Clone, Debug)]
pub struct CoreSubject {
    limit: Limit,
    states: HashMap<String, State>,
}

impl CoreSubject {
    /// A subject that has seen nobody.
    pub fn new(limit: Limit) -> Self {
        Self { limit, states: HashMap::new() }
    }

    /// The keys that a store may have forgotten by `now`.
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
