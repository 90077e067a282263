//! Runs a scenario against a store and the rules, and compares each step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use throttlekit::clock::ManualClock;
use throttlekit::rate::Timestamp;
use throttlekit::store::{CHARGES_MAX, Charge, Outcome, Settlement, Store};
use throttlekit::{Decision, Retry};
use throttlekit_core::rate::{Mark, Rule};

use super::debits::Numbers;
use super::fixture::{Direct, Fault, Fixture, Heard, Through, look};
use super::lending::Lending;
use super::policy::{Placed, Policy};
use super::reference::CoreStates;
use super::report::Notes;
use super::scenario::{EARLIEST, EXACT_END, MICRO, StoreOperation, StoreRequest, StoreScenario, Used, reach};
use crate::text::nanos;

/// Runs `scenario` under a name of its own. Returns the first difference with the index of its operation.
pub(super) async fn play<S: Store>(
    scenario: &StoreScenario,
    name: String,
    store: &Arc<S>,
    clock: &ManualClock,
) -> Result<Notes, (usize, Fault)> {
    let mut play = Play::new(scenario, name, clock);
    let policy = &play.policy;
    let misconfigured = |fault| (0, Fault::Error(throttlekit::store::StoreError::misconfigured(fault)));
    if scenario.through_limiter {
        play.run(&mut Through::new(store.clone(), policy).map_err(misconfigured)?, store).await?;
    } else {
        play.run(&mut Direct(store.clone()), store).await?;
    }
    Ok(play.notes)
}

/// A scenario in progress.
pub(super) struct Play<'a> {
    pub(super) scenario: &'a StoreScenario,
    pub(super) policy: Policy,
    clock: &'a ManualClock,
    pub(super) now: Timestamp,
    pub(super) furthest: Timestamp,
    latest: Timestamp,
    pub(super) rules: CoreStates,
    /// Every key used so far, by its routing key, with its limit.
    places: BTreeMap<Option<u8>, BTreeMap<String, usize>>,
    /// For each admitted request, until it is settled.
    receipts: Vec<Option<Vec<Charged>>>,
    pub(super) lending: Lending,
    pub(super) numbers: Numbers,
    /// The last denied request with a wait, and the end of the wait.
    denied: Option<(StoreRequest, Timestamp)>,
    last: Vec<Decision>,
    /// Keys that owe more than their limit since a settlement.
    pub(super) in_debt: BTreeSet<String>,
    pub(super) notes: Notes,
}

/// The charge of one limit.
pub(super) struct Charged {
    pub(super) limit: usize,
    pub(super) name: String,
    pub(super) cost: u64,
    mark: Mark,
    pub(super) at: Timestamp,
}

impl<'a> Play<'a> {
    fn new(scenario: &'a StoreScenario, name: String, clock: &'a ManualClock) -> Self {
        let mut play = Self {
            policy: Policy::new(scenario, name),
            clock,
            now: scenario.start,
            furthest: scenario.start,
            latest: scenario.latest(),
            rules: CoreStates::default(),
            places: BTreeMap::new(),
            receipts: Vec::new(),
            lending: Lending::default(),
            numbers: Numbers::default(),
            denied: None,
            last: Vec::new(),
            in_debt: BTreeSet::new(),
            notes: Notes::default(),
            scenario,
        };
        play.note_scenario();
        play
    }

    async fn run<S: Store>(
        &mut self,
        fixture: &mut impl Fixture,
        store: &Arc<S>,
    ) -> Result<(), (usize, Fault)> {
        self.clock.set(self.now);
        for (index, operation) in self.scenario.operations.iter().enumerate() {
            self.step(fixture, store, operation).await.map_err(|fault| (index, fault))?;
        }
        let end = self.scenario.operations.len();
        self.look_at_all(store).await.map_err(|fault| (end, fault))
    }

    async fn step<S: Store>(
        &mut self,
        fixture: &mut impl Fixture,
        store: &Arc<S>,
        operation: &StoreOperation,
    ) -> Heard {
        match operation {
            StoreOperation::Admit(asks) => self.admit(fixture, store, asks).await,
            StoreOperation::Peek(keys) => self.peek(fixture, keys).await,
            StoreOperation::Forecast { keys, limit, cost } => {
                self.forecast(fixture, keys, *limit, *cost).await
            }
            StoreOperation::Settle { receipt, used } => self.settle(fixture, *receipt, used).await,
            StoreOperation::Lease(asks) => self.lease(store, asks).await,
            StoreOperation::LeaseReturn { loan, units, twice } => {
                self.give_back(store, *loan, *units, *twice).await
            }
            StoreOperation::GiveBackAgain(back) => self.give_back_again(store, *back).await,
            StoreOperation::Debit(debits) => self.debit(store, debits).await,
            StoreOperation::Reset(keys) => self.reset(fixture, keys).await,
            StoreOperation::StepBack(by) => self.step_back(store, *by).await,
            StoreOperation::Wait(by) => {
                self.move_to(self.now + *by);
                Ok(())
            }
            StoreOperation::Retry(off) => self.retry(fixture, store, *off).await,
            StoreOperation::WaitForReset(limit, off) => {
                self.wait_for_reset(*limit, *off);
                Ok(())
            }
        }
    }

    async fn admit<S: Store>(
        &mut self,
        fixture: &mut impl Fixture,
        store: &Arc<S>,
        asks: &[StoreRequest],
    ) -> Heard {
        let placed: Vec<Placed> = asks.iter().map(|ask| self.policy.place(ask)).collect();
        let mut next = self.rules.clone();
        let want = self.answers(&mut next, &placed);
        if !self.adopt(next) {
            return Ok(());
        }
        self.notes.answers += want.len() as u64;
        placed.iter().for_each(|ask| self.remember(ask));
        fixture.admit(&self.policy, &placed, &want).await?;
        self.note_flight(&placed);
        placed.iter().zip(&want).for_each(|(ask, outcome)| self.take(ask, outcome));
        if self.scenario.looks && want.iter().any(|outcome| !outcome.verdict.decision.allowed) {
            self.notes.see("looked after a denial");
            return self.look_at_all(store).await;
        }
        Ok(())
    }

    fn answers(&self, rules: &mut CoreStates, asks: &[Placed]) -> Vec<Outcome> {
        let charges: Vec<_> = asks.iter().map(|ask| self.policy.charges(ask)).collect();
        self.policy.flight(&charges).iter().map(|ask| rules.admit(ask, self.now)).collect()
    }

    /// Adopts these states, unless one of them lies so far ahead that a script's sums would not be exact; then the
    /// operation is left out of the scenario.
    pub(super) fn adopt(&mut self, next: CoreStates) -> bool {
        let reach = self.scenario.specs.iter().map(reach).max().unwrap_or(0);
        let fits =
            |(limit, state): &(throttlekit::Limit, _)| limit.idle_at(state).as_nanos() <= EXACT_END - reach;
        let fit = next.states.values().all(fits);
        if fit {
            self.rules = next;
        } else {
            self.notes.see("left out beyond exact");
        }
        fit
    }

    /// Records a response: what can be settled later, and what to wait for.
    fn take(&mut self, ask: &Placed, outcome: &Outcome) {
        self.note_outcome(ask, outcome);
        let Decision { allowed, retry_after, .. } = outcome.verdict.decision;
        self.last.clone_from(&outcome.decisions);
        if let (false, Retry::After(wait)) = (allowed, retry_after) {
            self.denied = Some((ask.as_asked(), self.now + wait));
        }
        if allowed {
            let charged = outcome.decisions.iter().enumerate().filter(|(_, decision)| decision.allowed);
            let charged = charged.map(|(limit, _)| Charged {
                limit,
                name: ask.names[limit].clone(),
                cost: ask.costs[limit],
                mark: outcome.marks[limit],
                at: self.now,
            });
            self.receipts.push(Some(charged.collect()));
        }
    }

    async fn peek(&mut self, fixture: &mut impl Fixture, keys: &[u8]) -> Heard {
        self.notes.see("peek");
        let ask = self.policy.place_keys(keys);
        let want = self.rules.peek(&self.policy.charges(&ask), self.now);
        self.notes.answers += 1;
        fixture.peek(&self.policy, &ask, &want).await
    }

    async fn forecast(&mut self, fixture: &mut impl Fixture, keys: &[u8], limit: usize, cost: u64) -> Heard {
        self.notes.see("forecast");
        let mut ask = self.policy.place_keys(keys);
        ask.costs[limit] = cost;
        let state = self.rules.state(&ask.names[limit]);
        let want = self.policy.forms[limit].limit().forecast(&state, cost, self.now);
        self.notes.answers += 1;
        fixture.forecast(&self.policy, &ask, limit, want).await
    }

    async fn settle(&mut self, fixture: &mut impl Fixture, receipt: usize, used: &[Used]) -> Heard {
        let open: Vec<usize> = (0..self.receipts.len()).filter(|i| self.receipts[*i].is_some()).collect();
        if open.is_empty() {
            return Ok(());
        }
        let receipt = open[receipt % open.len()];
        let charged = self.receipts[receipt].take().unwrap_or_default();
        let mut actual = vec![0; used.len()];
        charged.iter().for_each(|charged| actual[charged.limit] = used[charged.limit].of(charged.cost));
        let mut next = self.rules.clone();
        for settlement in settlements(&self.policy, &charged, &actual) {
            next.settle(&settlement, self.now);
        }
        if !self.adopt(next) {
            return Ok(());
        }
        self.note_settled(&charged, &actual);
        let settlements = settlements(&self.policy, &charged, &actual);
        fixture.settle(receipt, &settlements, &actual).await
    }

    async fn reset(&mut self, fixture: &mut impl Fixture, keys: &[u8]) -> Heard {
        self.notes.see("reset");
        let ask = self.policy.place_keys(keys);
        ask.names.iter().for_each(|name| self.rules.reset(name));
        fixture.reset(&ask).await
    }

    /// Repeats a request at the time that its denial reported, or a microsecond to either side.
    async fn retry<S: Store>(&mut self, fixture: &mut impl Fixture, store: &Arc<S>, off: i64) -> Heard {
        let Some((ask, at)) = self.denied.clone() else { return Ok(()) };
        let exact = self.move_to(micros_off(at, off));
        self.notes.see_if(exact && off == 0, "asked at retry");
        self.notes.see_if(exact && off == -1, "asked a microsecond before retry");
        self.admit(fixture, store, &[ask]).await
    }

    fn wait_for_reset(&mut self, limit: usize, off: i64) {
        let Some(decision) = self.last.get(limit) else { return };
        let exact = self.move_to(micros_off(decision.reset_at, off));
        self.notes.see("wait for reset");
        let window = self.policy.forms[limit].kind().is_window();
        self.notes.see_if(exact && window && off == 0, "window edge");
    }

    /// Advances the clock as far as possible. Returns false if it does not move or stops short.
    fn move_to(&mut self, at: Timestamp) -> bool {
        let reached = at.min(self.latest);
        if reached <= self.now {
            return false;
        }
        self.set_clock(reached);
        reached == at
    }

    fn set_clock(&mut self, now: Timestamp) {
        self.now = now;
        self.furthest = self.furthest.max(now);
        self.clock.set(now);
    }

    /// Steps the clock back. A store may or may not drop a key that is idle, so its state after a step back is not
    /// specified. So before a step back, both drop idle keys.
    async fn step_back<S: Store>(&mut self, store: &Arc<S>, by: Duration) -> Heard {
        self.notes.see("step back");
        let idle: BTreeSet<String> = self.rules.idle_keys(self.furthest).into_iter().collect();
        idle.iter().for_each(|name| self.rules.reset(name));
        for names in self.places.values() {
            let names: Vec<&str> =
                names.keys().map(String::as_str).filter(|name| idle.contains(*name)).collect();
            for names in names.chunks(CHARGES_MAX) {
                store.reset(names).await?;
            }
        }
        let back = self.now.as_nanos().saturating_sub(nanos(by));
        self.set_clock(Timestamp::from_nanos(back).max(EARLIEST).min(self.now));
        Ok(())
    }

    /// Compares the states of all keys used so far.
    pub(super) async fn look_at_all<S: Store>(&mut self, store: &Arc<S>) -> Heard {
        for names in self.places.values() {
            let charge = |(key, limit): (&'_ String, &usize)| (key.clone(), *limit);
            let named: Vec<(String, usize)> = names.iter().map(charge).collect();
            for named in named.chunks(CHARGES_MAX) {
                let form = |limit: usize| &self.policy.forms[limit];
                let charges: Vec<_> =
                    named.iter().map(|(key, limit)| Charge { key, form: form(*limit), cost: 1 }).collect();
                look(&**store, &charges, &self.rules.peek(&charges, self.now)).await?;
                self.notes.states += charges.len() as u64;
            }
        }
        Ok(())
    }

    pub(super) fn remember(&mut self, ask: &Placed) {
        let names = self.places.entry(ask.home).or_default();
        names.extend(ask.names.iter().cloned().zip(0..));
    }
}

fn settlements<'a>(policy: &'a Policy, charged: &'a [Charged], actual: &[u64]) -> Vec<Settlement<'a>> {
    let settlement = |c: &'a Charged| Settlement {
        key: &c.name,
        form: &policy.forms[c.limit],
        mark: c.mark,
        charged: c.cost,
        actual: actual[c.limit],
    };
    charged.iter().map(settlement).collect()
}

/// Returns the first whole microsecond from `at` on, plus `off` microseconds.
fn micros_off(at: Timestamp, off: i64) -> Timestamp {
    let micros = at.as_nanos().div_ceil(MICRO).saturating_add_signed(off);
    Timestamp::from_nanos(micros.saturating_mul(MICRO))
}
