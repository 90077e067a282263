//! Parts of a node with seeded bugs. None of them is in the library.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit::clock::{BootClock, Clock, LeaseClock};
use throttlekit::forward_store;
use throttlekit::rate::Timestamp;
use throttlekit::store::{LeaseRequest, LeaseReturn, Leased, ReturnId, Store, StoreError};
use throttlekit_redis::RedisStore;

/// A clock that counts one second for several.
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

/// A clock that stands still while the process is stopped: a thread advances it by the elapsed time, but at
/// most by the longest delay of a running process.
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

/// Adds the time that a loan was in flight to its lifetime.
pub(crate) struct AnchoredAtReply(pub(crate) RedisStore);

/// Sends each return again under a new identifier, as if the first were lost.
pub(crate) struct ReturnsTwice(pub(crate) RedisStore);

impl Store for AnchoredAtReply {
    forward_store!(Store for self => self.0; admit, debit, peek, settle, give_back, reset);

    async fn lease(&self, asks: &[LeaseRequest<'_>]) -> Vec<Result<Leased, StoreError>> {
        let sent = BootClock.now();
        let mut answers = self.0.lease(asks).await;
        let took = BootClock.now().since(sent);
        for lent in answers.iter_mut().flatten() {
            lent.loan.lives = lent.loan.lives.map(|lives| lives + took);
        }
        answers
    }
}

impl Store for ReturnsTwice {
    forward_store!(Store for self => self.0; admit, debit, peek, settle, lease, reset);

    async fn give_back(&self, backs: &[LeaseReturn<'_>]) -> Result<(), StoreError> {
        self.0.give_back(backs).await?;
        let again: Vec<_> =
            backs.iter().map(|back| LeaseReturn { id: ReturnId(!back.id.0), ..*back }).collect();
        self.0.give_back(&again).await
    }
}
