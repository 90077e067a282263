//! Parts of a node that are wrong on purpose. None of them is in the library.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use throttlekit::store::{Charge, Charges, GiveBack, LeaseAsk, Lent, Outcome, ReturnId};
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

/// A clock that stands still while the process is stopped. It is read so often that a long time between two readings is
/// such a stop.
pub(crate) struct FrozenClock(Mutex<(Timestamp, Timestamp)>);

impl FrozenClock {
    const STEP_MAX: Duration = Duration::from_millis(20);

    pub(crate) fn new() -> Self {
        Self(Mutex::new((BootClock.now(), BootClock.now())))
    }
}

impl Clock for FrozenClock {
    fn now(&self) -> Timestamp {
        let mut at = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = BootClock.now();
        let (read, shown) = *at;
        *at = (now, shown + now.since(read).min(Self::STEP_MAX));
        at.1
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
