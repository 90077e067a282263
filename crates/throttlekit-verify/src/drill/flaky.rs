//! A store whose every call may fail, before or after its effect, or take long; and a ledger of lost
//! responses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use throttlekit::Guarantee;
use throttlekit::internals::{Mutex, MutexGuard};
use throttlekit::store::{
    Charge, Charges, Debit, Debited, HeartbeatOutcome, LeaseRequest, LeaseReturn, Leased, LocalShares,
    Occupancy, Outcome,
};
use throttlekit::store::{
    Settlement, SlotAnswer, SlotLease, SlotRequest, SlotStore, Snapshot, Store, StoreError,
};

use super::bugs::DrillBug;
use throttlekit_conformance::Dice;

/// The maximum number of yields before a call and after it.
const PAUSES_MAX: u64 = 3;

/// A store with fault injection.
pub struct Flaky<S> {
    store: Arc<S>,
    /// One call in `one_in` fails; none, if zero.
    one_in: u64,
    bug: Option<DrillBug>,
    inside: Mutex<Inside>,
}

struct Inside {
    dice: Dice,
    calls: u64,
    failed: u64,
    lost: BTreeMap<String, u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Good,
    /// Nothing is done.
    Refused,
    /// The call is done, and its response is lost.
    AnswerLost,
}

impl<S> Flaky<S> {
    /// Creates a store that fails one call in `one_in`, half of them after the store has done its part.
    pub fn new(store: Arc<S>, one_in: u64, seed: u64, bug: Option<DrillBug>) -> Self {
        let inside = Inside { dice: Dice::new(seed), calls: 0, failed: 0, lost: BTreeMap::new() };
        Self { store, one_in, bug, inside: Mutex::new(inside) }
    }

    /// Returns the number of calls and of failures.
    pub fn calls(&self) -> (u64, u64) {
        let inside = self.inside();
        (inside.calls, inside.failed)
    }

    /// Returns the charges of a key whose response was lost: they have no identifier, so no caller can look
    /// them up.
    pub fn lost(&self, key: &str) -> u64 {
        self.inside().lost.get(key).copied().unwrap_or(0)
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock()
    }

    /// Makes a call with fault injection. A lost response is recorded at once, since the caller may be
    /// dropped.
    async fn carry<T>(
        &self,
        call: impl Future<Output = T>,
        note: impl FnOnce(&T, &mut BTreeMap<String, u64>),
    ) -> Result<T, StoreError> {
        let (fate, before, after) = self.inside().draw(self.one_in);
        pause(before).await;
        if fate == Fate::Refused {
            return Err(StoreError::unavailable("refused, as drilled"));
        }
        let answer = call.await;
        if fate == Fate::AnswerLost {
            note(&answer, &mut self.inside().lost);
        }
        pause(after).await;
        if fate == Fate::AnswerLost {
            Err(StoreError::Deadline(Duration::from_millis(1)))
        } else {
            Ok(answer)
        }
    }
}

async fn pause(times: u64) {
    for _ in 0..times {
        tokio::task::yield_now().await;
    }
}

impl Inside {
    fn draw(&mut self, one_in: u64) -> (Fate, u64, u64) {
        self.calls += 1;
        let fails = one_in > 0 && self.dice.once_in(one_in);
        self.failed += u64::from(fails);
        let fate = match fails {
            false => Fate::Good,
            true if self.dice.once_in(2) => Fate::Refused,
            true => Fate::AnswerLost,
        };
        (fate, self.dice.below(PAUSES_MAX + 1), self.dice.below(PAUSES_MAX + 1))
    }
}

/// Part of the name of the record of a debit of several limits.
const ONCE: &str = "g:%once/";

fn charged(
    asks: &[Charges<'_>],
    outcomes: &Result<Vec<Outcome>, StoreError>,
    lost: &mut BTreeMap<String, u64>,
) {
    let Ok(outcomes) = outcomes else { return };
    // A debit of several limits has an identifier: it is sent again, or looked up.
    let anonymous = |ask: &&Charges<'_>| ask.charges.iter().all(|charge| !charge.key.contains(ONCE));
    let allowed = asks.iter().zip(outcomes).filter(|(_, outcome)| outcome.verdict.decision.allowed);
    for ask in allowed.map(|(ask, _)| ask).filter(anonymous) {
        ask.charges.iter().for_each(|charge| *lost.entry(charge.key.to_owned()).or_default() += charge.cost);
    }
}

impl<S: Store> Store for Flaky<S> {
    fn background(&self) -> throttlekit::store::Background {
        Store::background(&self.store)
    }

    async fn admit(&self, asks: &[Charges<'_>]) -> Result<Vec<Outcome>, StoreError> {
        self.carry(self.store.admit(asks), |answer, lost| charged(asks, answer, lost)).await?
    }

    async fn debit(&self, debits: &[Debit<'_>]) -> Vec<Result<Debited, StoreError>> {
        let renamed: Vec<Debit<'_>> = match self.bug {
            Some(DrillBug::DebitNamesIgnored) => {
                let anew = self.inside().dice.roll();
                let mut renamed = debits.to_vec();
                renamed.iter_mut().for_each(|debit| debit.id.stream = anew.into());
                renamed
            }
            _ => debits.to_vec(),
        };
        let answers = self.carry(self.store.debit(&renamed), |_, _| {}).await;
        answers.unwrap_or_else(|lost| vec![Err(lost); debits.len()])
    }

    async fn peek(&self, charges: &[Charge<'_>]) -> Result<Snapshot, StoreError> {
        self.store.peek(charges).await
    }

    async fn settle(&self, settlements: &[Settlement<'_>]) -> Result<(), StoreError> {
        self.carry(self.store.settle(settlements), |_, _| {}).await?
    }

    async fn lease(&self, asks: &[LeaseRequest<'_>]) -> Vec<Result<Leased, StoreError>> {
        let answers = self.carry(self.store.lease(asks), |_, _| {}).await;
        answers.unwrap_or_else(|lost| vec![Err(lost); asks.len()])
    }

    async fn give_back(&self, backs: &[LeaseReturn<'_>]) -> Result<(), StoreError> {
        match self.bug {
            Some(DrillBug::ReturnSwallowed) if self.inside().dice.once_in(8) => return Ok(()),
            Some(DrillBug::ReturnCountedTwice) => {
                let mut again = backs.to_vec();
                again.iter_mut().for_each(|back| back.id.0 ^= 1);
                self.store.give_back(&again).await?;
            }
            _ => {}
        }
        self.carry(self.store.give_back(backs), |_, _| {}).await?
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        self.store.reset(keys).await
    }

    fn local_shares(&self) -> Option<&LocalShares> {
        self.store.local_shares()
    }

    fn guarantee(&self) -> Guarantee {
        self.store.guarantee()
    }
}

impl<S: SlotStore> SlotStore for Flaky<S> {
    fn background(&self) -> throttlekit::store::Background {
        SlotStore::background(&self.store)
    }

    async fn acquire(&self, ask: &SlotRequest<'_>) -> Result<SlotAnswer, StoreError> {
        self.carry(self.store.acquire(ask), |_, _| {}).await?
    }

    async fn heartbeat(
        &self,
        leases: &[SlotLease<'_>],
        lives: Duration,
    ) -> Vec<Result<HeartbeatOutcome, StoreError>> {
        let answers = self.carry(self.store.heartbeat(leases, lives), |_, _| {}).await;
        answers.unwrap_or_else(|lost| vec![Err(lost); leases.len()])
    }

    async fn release(&self, leases: &[SlotLease<'_>]) -> Vec<Result<bool, StoreError>> {
        let answers = self.carry(self.store.release(leases), |_, _| {}).await;
        answers.unwrap_or_else(|lost| vec![Err(lost); leases.len()])
    }

    async fn occupancy(&self, keys: &[&str]) -> Result<Vec<Occupancy>, StoreError> {
        self.store.occupancy(keys).await
    }

    fn guarantee(&self) -> Guarantee {
        SlotStore::guarantee(&*self.store)
    }
}
