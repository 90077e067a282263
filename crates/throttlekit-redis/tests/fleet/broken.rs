//! Parts of a node that are wrong on purpose. None of them is in the library.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit::store::{Charge, Charges, Debit, Debited, GiveBack, LeaseAsk, Lent, Outcome, ReturnId};
use throttlekit::store::{Settlement, Sight, Store, StoreError};
use throttlekit::{BootClock, Clock, LeaseClock, Timestamp};
use throttlekit_redis::RedisStore;

/// A clock that shows one second for several.
pub(crate) struct SlowClock {
    begun: Timestamp,
    times: u32,
}

impl SlowClock {
    pub(crate) fn by(times: u32) -> Self {
        Self { begun: BootClock.now(), times }
    }
}

impl Clock for SlowClock {
    fn now(&self) -> Timestamp {
        self.begun + BootClock.now().since(self.begun) / self.times
    }
}

impl LeaseClock for SlowClock {}

/// A clock that stands still while the process is stopped: a thread winds it by what has gone since, but by no more than a
/// running process is ever late.
#[derive(Clone)]
pub(crate) struct FrozenClock(Arc<AtomicU64>);

impl FrozenClock {
    const WIND_EVERY: Duration = Duration::from_millis(1);
    const LATE_MAX: Duration = Duration::from_millis(50);

    pub(crate) fn new() -> Self {
        let clock = Self(Arc::new(AtomicU64::new(BootClock.now().as_nanos())));
        let (wound, mut read) = (clock.clone(), BootClock.now());
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Self::WIND_EVERY);
                let gone = BootClock.now().since(read);
                read = read + gone;
                wound.0.fetch_add(gone.min(Self::LATE_MAX).as_nanos() as u64, Relaxed);
            }
        });
        clock
    }
}

impl Clock for FrozenClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.load(Relaxed))
    }
}

impl LeaseClock for FrozenClock {}

/// Adds the time that a loan was under way to the time it lives.
pub(crate) struct AnchoredAtReply(pub(crate) RedisStore);

/// Sends each return again under a name of its own, as one does who believes the first was lost.
pub(crate) struct ReturnsTwice(pub(crate) RedisStore);

macro_rules! as_the_store_does {
    () => {
        async fn admit(&self, asks: &[Charges<'_>]) -> Result<Vec<Outcome>, StoreError> {
            self.0.admit(asks).await
        }

        async fn debit(&self, debits: &[Debit<'_>]) -> Vec<Result<Debited, StoreError>> {
            self.0.debit(debits).await
        }

        async fn peek(&self, charges: &[Charge<'_>]) -> Result<Sight, StoreError> {
            self.0.peek(charges).await
        }

        async fn settle(&self, settlements: &[Settlement<'_>]) -> Result<(), StoreError> {
            self.0.settle(settlements).await
        }

        async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
            self.0.reset(keys).await
        }
    };
}

impl Store for AnchoredAtReply {
    as_the_store_does!();

    async fn lease(&self, asks: &[LeaseAsk<'_>]) -> Vec<Result<Lent, StoreError>> {
        let sent = BootClock.now();
        let mut answers = self.0.lease(asks).await;
        let took = BootClock.now().since(sent);
        for lent in answers.iter_mut().flatten() {
            lent.loan.lives = lent.loan.lives.map(|lives| lives + took);
        }
        answers
    }

    async fn give_back(&self, backs: &[GiveBack<'_>]) -> Result<(), StoreError> {
        self.0.give_back(backs).await
    }
}

impl Store for ReturnsTwice {
    as_the_store_does!();

    async fn lease(&self, asks: &[LeaseAsk<'_>]) -> Vec<Result<Lent, StoreError>> {
        self.0.lease(asks).await
    }

    async fn give_back(&self, backs: &[GiveBack<'_>]) -> Result<(), StoreError> {
        self.0.give_back(backs).await?;
        let again: Vec<_> = backs.iter().map(|back| GiveBack { id: ReturnId(!back.id.0), ..*back }).collect();
        self.0.give_back(&again).await
    }
}
