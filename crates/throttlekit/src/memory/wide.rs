//! The keys of one limit whose state is more than a word.

use throttlekit_core::rate::{Limit, Mark, Rule, Settle, State};
use throttlekit_core::{Cost, Decision, Timestamp};

use super::shards::{Debts, LockedKey, Shards};

/// What a key starts from where nobody owes anything.
static FRESH: State = State::Fresh;

pub(crate) struct WideMap {
    limit: Limit,
    keys: Shards<State>,
}

/// One key's state while its shard is locked. Nothing is written unless `charge` is called.
pub(crate) struct Locked<'a> {
    limit: &'a Limit,
    key: LockedKey<'a, State>,
}

impl Debts<State> for Limit {
    fn idle_at(&self, state: &State) -> Timestamp {
        Rule::idle_at(self, state)
    }

    fn join(&self, state: &mut State, other: &State, _now: Timestamp) {
        Rule::join(self, state, other);
    }
}

impl WideMap {
    pub(crate) fn new(limit: Limit, keys_max: usize) -> Self {
        Self { limit, keys: Shards::new(keys_max) }
    }

    pub(crate) fn lock(&self, fingerprint: u64) -> Locked<'_> {
        Locked { limit: &self.limit, key: self.keys.lock(fingerprint) }
    }

    pub(crate) fn remove(&self, fingerprint: u64) {
        self.keys.remove(fingerprint);
    }

    /// How many keys owe something at `now`. Looks at every key.
    pub(crate) fn live(&self, now: Timestamp) -> usize {
        self.keys.live(&self.limit, now)
    }
}

impl Locked<'_> {
    pub(crate) fn state(&self, now: Timestamp) -> &State {
        self.key.state(self.limit, now).unwrap_or(&FRESH)
    }

    pub(crate) fn check(&mut self, cost: Cost, now: Timestamp) -> Decision {
        let decision = self.limit.decide(self.state(now), cost, now);
        if decision.allowed && cost > 0 {
            self.charge(cost, now);
        }
        decision
    }

    pub(crate) fn charge(&mut self, cost: Cost, now: Timestamp) {
        self.change(now, |limit, state| limit.charge(state, cost, now));
    }

    /// Hands back units of a charge that left `mark`; none to a key that is not known.
    pub(crate) fn refund(&mut self, mark: Mark, units: Cost, now: Timestamp) {
        let limit = *self.limit;
        if let Some(state) = self.key.known() {
            limit.refund(state, mark, units, now);
        }
    }

    /// Changes the key's state, making room for it where it has none.
    pub(crate) fn change(&mut self, now: Timestamp, by: impl FnOnce(&Limit, &mut State)) {
        let limit = self.limit;
        self.key.change(limit, now, |state| by(limit, state));
    }
}
