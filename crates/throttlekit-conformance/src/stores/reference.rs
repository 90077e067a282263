//! The reference: the pure rules over a plain map, with the interface of a store.

use std::collections::{HashMap, HashSet};

use throttlekit::Guarantee;
use throttlekit::store::{Charge, Charges, Debit, Debited, LeaseRequest, LeaseReturn, Leased, Outcome};
use throttlekit::store::{Settlement, Snapshot, StoreError};
use throttlekit_core::Timestamp;
use throttlekit_core::lease::ReturnId;
use throttlekit_core::rate::{Limit, Need, Rule, Settle, State};

/// The expected state and responses of a store.
#[derive(Clone, Debug, Default)]
pub struct CoreStates {
    pub(super) states: HashMap<String, (Limit, State)>,
    /// Received returns. A reset keeps them: a late copy must not count against units that are leased afterwards.
    pub(super) returned: HashSet<ReturnId>,
    /// The last debit of each stream of each key, which a reset keeps as well.
    pub(super) debits: HashMap<StreamOf, Named>,
}

/// A key and one of its streams.
pub(super) type StreamOf = (String, u128);

/// The last debit of a stream.
#[derive(Clone, Debug)]
pub(super) struct Named {
    number: u64,
    pub(super) outcome: Outcome,
    until: Timestamp,
}

impl CoreStates {
    /// Decides one request, and charges all or none.
    pub fn admit(&mut self, ask: &Charges<'_>, now: Timestamp) -> Outcome {
        let found: Vec<(&Charge<'_>, State)> =
            ask.charges.iter().map(|charge| (charge, self.state(charge.key))).collect();
        let decisions: Vec<_> = found.iter().map(|(c, s)| c.form.limit().decide(s, c.cost, now)).collect();
        let marks = found.iter().map(|(c, s)| c.form.limit().mark(s, now)).collect();
        let verdict = ask.need.judge(&decisions);
        if verdict.decision.allowed {
            for (charge, _) in ask.charges.iter().zip(&decisions).filter(|(_, d)| d.allowed) {
                self.charge(charge, now);
            }
        }
        Outcome { now, verdict, decisions, marks, guarantee: Guarantee::Exact }
    }

    /// Returns the states for these charges.
    pub fn peek(&self, charges: &[Charge<'_>], now: Timestamp) -> Snapshot {
        Snapshot { now, states: charges.iter().map(|charge| self.state(charge.key)).collect() }
    }

    /// Replaces the estimate of a charge by the actual cost.
    pub fn settle(&mut self, s: &Settlement<'_>, now: Timestamp) {
        let limit = s.form.limit();
        limit.settle(self.entry(s.key, limit), s.mark, s.charged, s.actual, now);
    }

    /// Decides one lease request, and charges what it grants.
    pub fn lend(&mut self, ask: &LeaseRequest<'_>, now: Timestamp) -> Result<Leased, StoreError> {
        let authority = ask.authority()?;
        let loan = authority.lend(self.entry(ask.key, authority.limit()), ask.want, now);
        Ok(Leased { now, loan })
    }

    /// Returns leased units to their window, once for each id.
    pub fn take_back(&mut self, given: &LeaseReturn<'_>, now: Timestamp) -> Result<(), StoreError> {
        let authority = given.authority()?;
        if self.returned.insert(given.id) {
            authority.take_back(self.entry(given.key, authority.limit()), given.back, now);
        }
        Ok(())
    }

    /// Decides one debit, and charges it once.
    pub fn debit(&mut self, debit: &Debit<'_>, now: Timestamp) -> Result<Debited, StoreError> {
        self.debit_named((debit.charge.key.into(), debit.id.stream), debit, now)
    }

    pub(super) fn debit_named(
        &mut self,
        stream: StreamOf,
        debit: &Debit<'_>,
        now: Timestamp,
    ) -> Result<Debited, StoreError> {
        self.debit_named_for(stream, debit, now + debit.remembered(), now)
    }

    pub(super) fn debit_named_for(
        &mut self,
        stream: StreamOf,
        debit: &Debit<'_>,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<Debited, StoreError> {
        debit.check()?;
        let number = debit.id.number;
        if let Some(last) = self.debits.get(&stream).filter(|last| now < last.until && last.number >= number)
        {
            let again = last.number == number;
            let answer = Debited { outcome: last.outcome.clone(), repeated: true };
            return if again { Ok(answer) } else { Err(StoreError::Stale(number)) };
        }
        let outcome = self.admit(&Charges { need: Need::All, charges: &[debit.charge] }, now);
        self.debits.insert(stream, Named { number, outcome: outcome.clone(), until });
        Ok(Debited { outcome, repeated: false })
    }

    /// Resets a key.
    pub fn reset(&mut self, key: &str) {
        self.states.remove(key);
    }

    /// Returns the keys that a store may have dropped by `now`.
    pub fn idle_keys(&self, now: Timestamp) -> Vec<String> {
        let idle = self.states.iter().filter(|(_, (limit, state))| limit.idle_at(state) <= now);
        idle.map(|(key, _)| key.clone()).collect()
    }

    /// Returns the state of a key.
    pub fn state(&self, key: &str) -> State {
        self.states.get(key).map(|(_, state)| state.clone()).unwrap_or_default()
    }

    pub(super) fn charge(&mut self, charge: &Charge<'_>, now: Timestamp) {
        if charge.cost > 0 {
            let limit = charge.form.limit();
            limit.charge(self.entry(charge.key, limit), charge.cost, now);
        }
    }

    /// Restores one key to its state in `earlier`.
    pub(super) fn restore(&mut self, earlier: &Self, key: &str) {
        self.states.remove(key);
        if let Some(known) = earlier.states.get(key) {
            self.states.insert(key.into(), known.clone());
        }
    }

    pub(super) fn entry(&mut self, key: &str, limit: &Limit) -> &mut State {
        &mut self.states.entry(key.into()).or_insert((*limit, State::Fresh)).1
    }
}

/// Returns whether two states are equivalent for all requests from `now` on, or at any instant before at which the
/// later of them was charged. Entries that have left a window may or may not still be stored.
pub fn same_state(limit: &Limit, one: &State, two: &State, now: Timestamp) -> bool {
    let is_idle = |state: &State| limit.idle_at(state) <= now;
    let charged = |state: &State| {
        let mut state = state.clone();
        limit.charge(&mut state, 1, now);
        state
    };
    match (is_idle(one), is_idle(two)) {
        (true, true) => true,
        (false, false) => charged(one) == charged(two),
        _ => false,
    }
}
