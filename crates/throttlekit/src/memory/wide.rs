//! The keys of one limit whose state is more than a word.

use std::borrow::Cow;

use throttlekit_core::rate::estimate::Estimates;
use throttlekit_core::rate::{Limit, Mark, Rule, Settle, State};
use throttlekit_core::{Decision, Timestamp};

use super::budget::Capacity;
use super::key_memory::KeyMemory;
use super::shards::{LockedKey, Owing, Shards};

pub(crate) struct WideMap {
    limit: Limit,
    keys: Shards<State>,
}

/// One key's state while its shard is locked. Nothing is written unless `charge` is called.
pub(crate) struct Locked<'a> {
    limit: &'a Limit,
    key: LockedKey<'a, State>,
}

impl Owing<State> for Limit {
    fn idle_at(&self, kept: &State) -> Timestamp {
        Rule::idle_at(self, kept)
    }

    fn heap_bytes(&self, kept: &State) -> usize {
        kept.heap_bytes()
    }

    fn estimates(&self) -> Estimates {
        Estimates::of(self)
    }

    fn state<'a>(&self, kept: &'a State, _now: Timestamp) -> Cow<'a, State> {
        Cow::Borrowed(kept)
    }

    fn kept(&self, state: State, _: Timestamp) -> State {
        state
    }
}

impl WideMap {
    pub(crate) fn new(limit: Limit, capacity: Capacity) -> Self {
        Self { limit, keys: Shards::alone(capacity.bytes) }
    }

    pub(crate) fn limit(&self) -> &Limit {
        &self.limit
    }

    pub(crate) fn lock(&self, fingerprint: u64) -> Locked<'_> {
        Locked { limit: &self.limit, key: self.keys.lock(fingerprint) }
    }

    pub(crate) fn remove(&self, fingerprint: u64) {
        self.keys.remove(fingerprint, &self.limit);
    }

    pub(crate) fn memory(&self, now: Timestamp) -> KeyMemory {
        self.keys.memory(&self.limit, now)
    }
}

impl Locked<'_> {
    /// Returns the kept state of the key, or its estimate.
    pub(crate) fn state(&self, now: Timestamp) -> Cow<'_, State> {
        self.key.state(self.limit, now).unwrap_or(Cow::Owned(State::Fresh))
    }

    /// Returns whether that is an estimate.
    pub(crate) fn is_estimated(&self, now: Timestamp) -> bool {
        self.key.is_estimated(self.limit, now)
    }

    pub(crate) fn check(&mut self, cost: u64, now: Timestamp) -> Decision {
        let decision = self.limit.decide(&self.state(now), cost, now);
        if decision.allowed && cost > 0 {
            self.charge(cost, now);
        }
        decision
    }

    pub(crate) fn charge(&mut self, cost: u64, now: Timestamp) {
        self.change(now, |limit, state| limit.charge(state, cost, now));
    }

    /// Refunds units of a charge at position `mark`; none to a key that is not kept.
    pub(crate) fn refund(&mut self, mark: Mark, units: u64, now: Timestamp) {
        let limit = *self.limit;
        if let Some(state) = self.key.known() {
            limit.refund(state, mark, units, now);
        }
    }

    /// Changes the key's state, and creates one if it has none.
    pub(crate) fn change(&mut self, now: Timestamp, by: impl FnOnce(&Limit, &mut State)) {
        let limit = self.limit;
        self.key.change(limit, now, |state| by(limit, state));
    }
}
