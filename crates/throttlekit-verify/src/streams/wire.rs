//! The connection to a store: replies get lost, returns arrive twice, and bugs are seeded.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::clock::ManualClock;
use throttlekit::internals::Mutex;
use throttlekit::store::{
    Background, Charge, Charges, Debit, DebitId, Debited, LeaseRequest, LeaseReturn, Leased, MemoryStore,
};
use throttlekit::store::{Outcome, ReturnId, Settlement, Snapshot, Store, StoreError};
use throttlekit_core::rate::shared::ScriptEncoding;

use throttlekit_conformance::Dice;

throttlekit_conformance::bugs! {
    /// A bug between the streams and the store.
    pub enum StreamBug {
        ReservationCrosses: "A reservation may cross the edge of the budget.",
        ReservationIsFree: "A reservation is not charged.",
        ReservationOutlives: "A reservation lives twice as long as its window.",
        DebitHasNoName: "Each attempt of a debit has an ID of its own.",
        DebitIsFree: "A debit is not charged.",
        ReturnCountsTwice: "A return counts twice.",
        ReturnIsDropped: "A return is acknowledged and not made.",
    }
}

/// A store that several gateways reach over a lossy connection.
#[derive(Clone)]
pub struct Wire {
    kept: Arc<MemoryStore<ManualClock>>,
    /// The budget, whose edge a reservation must not cross.
    budget: ScriptEncoding,
    bug: Option<StreamBug>,
    chance: Arc<Mutex<Chance>>,
}

struct Chance {
    dice: Dice,
    /// Replies lost in a row. A debit is sent three times, so that every third arrives.
    lost: u32,
    /// Units lent by lost replies since the last call of `take_stranded`, by key.
    stranded: Vec<(String, u64)>,
    /// A counter of unique identifiers.
    names: u128,
}

const LOST: StoreError = StoreError::Deadline(Duration::from_millis(100));

impl Wire {
    /// Creates a connection to this store.
    pub fn new(
        kept: Arc<MemoryStore<ManualClock>>,
        budget: ScriptEncoding,
        seed: u64,
        bug: Option<StreamBug>,
    ) -> Self {
        let chance = Chance { dice: Dice::new(seed), lost: 0, stranded: Vec::new(), names: 1 << 100 };
        Self { kept, budget, bug, chance: Arc::new(Mutex::new(chance)) }
    }

    /// Returns the units lent by lost replies since the last call, by key.
    pub fn take_stranded(&self) -> Vec<(String, u64)> {
        self.chance(|chance| std::mem::take(&mut chance.stranded))
    }

    fn chance<T>(&self, of: impl FnOnce(&mut Chance) -> T) -> T {
        of(&mut self.chance.lock())
    }

    fn loses(&self) -> bool {
        self.chance(|chance| {
            let loses = chance.lost < 2 && chance.dice.once_in(4);
            chance.lost = if loses { chance.lost + 1 } else { 0 };
            loses
        })
    }

    fn new_name(&self) -> u128 {
        self.chance(|chance| {
            chance.names += 1;
            chance.names
        })
    }

    async fn free(&self, key: &str, form: &ScriptEncoding, lent: &Leased) {
        let back = throttlekit::store::Return { epoch: lent.loan.epoch, units: lent.loan.granted };
        let given = LeaseReturn { key, form, id: ReturnId(self.new_name()), back };
        self.kept.give_back(&[given]).await.expect("memory answers");
    }
}

impl Store for Wire {
    async fn admit(&self, asks: &[Charges<'_>]) -> Result<Vec<Outcome>, StoreError> {
        self.kept.admit(asks).await
    }

    async fn debit(&self, debits: &[Debit<'_>]) -> Vec<Result<Debited, StoreError>> {
        let rename = |debit: &Debit<'_>| match self.bug {
            Some(StreamBug::DebitHasNoName) => DebitId { stream: self.new_name(), ..debit.id },
            _ => debit.id,
        };
        let cost =
            |debit: &Debit<'_>| if self.bug == Some(StreamBug::DebitIsFree) { 0 } else { debit.charge.cost };
        let sent: Vec<_> = debits
            .iter()
            .map(|debit| Debit {
                id: rename(debit),
                charge: Charge { cost: cost(debit), ..debit.charge },
                ..*debit
            })
            .collect();
        let answers = self.kept.debit(&sent).await;
        answers.into_iter().map(|answer| if self.loses() { Err(LOST) } else { answer }).collect()
    }

    async fn peek(&self, charges: &[Charge<'_>]) -> Result<Snapshot, StoreError> {
        self.kept.peek(charges).await
    }

    async fn settle(&self, settlements: &[Settlement<'_>]) -> Result<(), StoreError> {
        self.kept.settle(settlements).await
    }

    async fn lease(&self, asks: &[LeaseRequest<'_>]) -> Vec<Result<Leased, StoreError>> {
        let mut answers = Vec::new();
        for ask in asks {
            let crosses = self.bug == Some(StreamBug::ReservationCrosses);
            let form = if crosses { &self.budget } else { ask.form };
            let mut lent = self.kept.lease(&[LeaseRequest { form, ..*ask }]).await.pop().expect("one answer");
            if let Ok(lent) = &mut lent {
                match self.bug {
                    Some(StreamBug::ReservationIsFree) => self.free(ask.key, ask.form, lent).await,
                    Some(StreamBug::ReservationOutlives) => {
                        lent.loan.lives = lent.loan.lives.map(|lives| lives * 2);
                    }
                    _ => {}
                }
                if self.loses() {
                    let granted = lent.loan.granted;
                    self.chance(|chance| chance.stranded.push((ask.key.to_owned(), granted)));
                    answers.push(Err(LOST));
                    continue;
                }
            }
            answers.push(lent);
        }
        answers
    }

    /// Delivers each return, and some of them again.
    async fn give_back(&self, backs: &[LeaseReturn<'_>]) -> Result<(), StoreError> {
        if self.bug == Some(StreamBug::ReturnIsDropped) {
            return Ok(());
        }
        self.kept.give_back(backs).await?;
        for given in backs {
            let renamed = LeaseReturn { id: ReturnId(self.new_name()), ..*given };
            match self.bug {
                Some(StreamBug::ReturnCountsTwice) => self.kept.give_back(&[renamed]).await?,
                _ if self.chance(|chance| chance.dice.once_in(2)) => self.kept.give_back(&[*given]).await?,
                _ => {}
            }
        }
        Ok(())
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        self.kept.reset(keys).await
    }

    /// The scenario's own runtime, so that background work of streams is done between two steps.
    fn background(&self) -> Background {
        self.kept.background()
    }
}
