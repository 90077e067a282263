//! Shared slots, from the view of their holders.
#![cfg(feature = "store")]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use throttlekit::guard::{Ending, Fenced, SlotStats};
use throttlekit::store::{
    Background, HeartbeatOutcome, MemoryStore, Occupancy, SlotAnswer, SlotLease, SlotRequest, SlotStore,
    Store, StoreError,
};
use throttlekit::{BuildError, Concurrency, Guarantee, Retry, SharedGuard, forward_store};

const LIVES: Duration = Duration::from_millis(300);

/// Slots in memory behind a network: every call yields several times before and after, and may be dropped.
#[derive(Clone, Default)]
struct Far {
    store: Arc<MemoryStore>,
    turns: u32,
    /// True if tasks run on the driver thread, also where the test has a runtime.
    on_driver: bool,
    cut: Arc<AtomicBool>,
    flights: Arc<AtomicU64>,
    largest: Arc<AtomicU64>,
}

/// Yields this many times.
struct Turns(u32);

impl Future for Turns {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0 == 0 {
            return Poll::Ready(());
        }
        self.0 -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Far {
    async fn way(&self) -> Result<(), StoreError> {
        Turns(self.turns).await;
        if self.cut.load(SeqCst) { Err(StoreError::unavailable("cut off")) } else { Ok(()) }
    }
}

impl SlotStore for Far {
    fn background(&self) -> Background {
        match tokio::runtime::Handle::try_current() {
            Ok(here) if !self.on_driver => Background::default().on(here),
            _ => Background::default(),
        }
    }

    async fn acquire(&self, ask: &SlotRequest<'_>) -> Result<SlotAnswer, StoreError> {
        self.way().await?;
        let answer = self.store.acquire(ask).await;
        self.way().await?;
        answer
    }

    async fn heartbeat(
        &self,
        leases: &[SlotLease<'_>],
        lives: Duration,
    ) -> Vec<Result<HeartbeatOutcome, StoreError>> {
        self.flights.fetch_add(1, SeqCst);
        self.largest.fetch_max(leases.len() as u64, SeqCst);
        if let Err(error) = self.way().await {
            return vec![Err(error); leases.len()];
        }
        self.store.heartbeat(leases, lives).await
    }

    async fn release(&self, leases: &[SlotLease<'_>]) -> Vec<Result<bool, StoreError>> {
        if let Err(error) = self.way().await {
            return vec![Err(error); leases.len()];
        }
        self.store.release(leases).await
    }

    forward_store!(SlotStore for self => self.store; occupancy);
}

fn slots(far: &Far, most: u32) -> SharedGuard {
    SharedGuard::builder(far.clone(), "gpu", Concurrency::per_key(most)).lease(LIVES).build().unwrap()
}

fn stats(slots: &SharedGuard) -> SlotStats {
    slots.stats().slots.expect("slots on a store")
}

/// Returns the number of slots of the key that are held.
async fn held_by_all(slots: &SharedGuard) -> Result<u64, StoreError> {
    slots.peek("acme").await.map(|seen| seen.limit - seen.remaining)
}

/// Waits until `expected` slots of the key are held.
async fn settles(slots: &SharedGuard, expected: u64) -> bool {
    for _ in 0..2_000 {
        if held_by_all(slots).await == Ok(expected) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    false
}

#[tokio::test]
async fn no_more_are_held_than_the_ceiling_and_a_release_makes_room() {
    let slots = slots(&Far::default(), 2);
    let first = slots.acquire("acme").await.unwrap();
    let second = slots.acquire("acme").await.unwrap();
    assert_eq!((first.remaining, second.remaining), (1, 0));
    assert_eq!(second.guarantee, Guarantee::Exact);
    let third = slots.acquire("acme").await.unwrap();
    assert!(third.permit.is_none() && third.retry_after == Retry::OnRelease);
    assert!(slots.acquire("another").await.unwrap().permit.is_some(), "each key has its own");
    assert_eq!(first.permit.unwrap().close(Ending::Success).await, Ok(true));
    assert!(slots.acquire("acme").await.unwrap().permit.is_some());
    slots.set_limit(3);
    assert!(slots.acquire("acme").await.unwrap().permit.is_some(), "a higher ceiling has room");
}

#[tokio::test]
async fn a_dropped_slot_is_released_also_by_a_panic() {
    // A panic that prints its backtrace blocks the runtime for longer than a lease lives.
    let slots = slots(&Far { on_driver: true, ..Far::default() }, 1);
    drop(slots.acquire("acme").await.unwrap());
    assert!(settles(&slots, 0).await);
    let held = slots.acquire("acme").await.unwrap();
    let panics = tokio::spawn(async move {
        let _held = held;
        panic!("of the caller's own");
    });
    assert!(panics.await.is_err());
    assert!(settles(&slots, 0).await);
    let stats = stats(&slots);
    assert_eq!((stats.held, stats.released), (0, 2), "given back, and not only over: {stats:?}");
}

/// `slots`: a future that is dropped at any await point leaves nothing behind.
#[tokio::test]
async fn slots_dropped_at_every_await_point_leak_nothing() {
    for turns in 0..3 {
        let far = Far { turns, ..Far::default() };
        let slots = slots(&far, 1_000);
        let mut landed = 0;
        for polls in 0..24 {
            let mut context = Context::from_waker(Waker::noop());
            let mut admit = Box::pin(slots.acquire("acme"));
            for _ in 0..polls {
                if let Poll::Ready(answer) = admit.as_mut().poll(&mut context) {
                    assert!(answer.unwrap().permit.is_some());
                    landed += 1;
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(admit);
        }
        assert!(landed > 0 && landed < 24, "{landed} of 24");
        assert!(settles(&slots, 0).await, "{:?}", stats(&slots));
        let stats = stats(&slots);
        assert_eq!(
            (stats.held, stats.released),
            (0, stats.admitted),
            "given back, and not only over: {stats:?}"
        );
    }
}

#[tokio::test]
async fn heartbeats_keep_a_slot_for_many_lifetimes_and_are_batched() {
    let far = Far::default();
    let slots = slots(&far, 1_000);
    let mut held = Vec::new();
    for _ in 0..300 {
        held.push(slots.acquire("acme").await.unwrap().permit.unwrap());
    }
    tokio::time::sleep(LIVES * 4).await;
    assert!(held.iter().all(|slot| !slot.is_fenced()));
    assert_eq!(held_by_all(&slots).await, Ok(300));
    let stats = stats(&slots);
    assert!(stats.heartbeats >= 300 * 9 && stats.flights <= stats.heartbeats / 4, "{stats:?}");
    assert!(far.largest.load(SeqCst) <= 128);
    drop(held);
    assert!(settles(&slots, 0).await);
    let flights = far.flights.load(SeqCst);
    tokio::time::sleep(LIVES).await;
    assert_eq!(far.flights.load(SeqCst), flights, "no heartbeats without a slot");
}

#[tokio::test]
async fn a_holder_without_responses_stops_in_time() {
    let far = Far::default();
    let slots = slots(&far, 1);
    let slot = slots.acquire("acme").await.unwrap().permit.unwrap();
    far.cut.store(true, SeqCst);
    let refused = slots.acquire("acme").await.unwrap();
    assert!(refused.permit.is_none() && refused.guarantee == Guarantee::Closed && refused.outage.is_some());
    let steps = AtomicU64::new(0);
    let work = async {
        loop {
            steps.fetch_add(1, SeqCst);
            assert_eq!(far.store.occupancy(&[]).await, Ok(vec![]));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let begun = tokio::time::Instant::now();
    let ended: Result<(), Fenced> = slot.run(work).await;
    assert_eq!(ended, Err(Fenced));
    assert!(steps.load(SeqCst) > 10 && begun.elapsed() < LIVES + LIVES / 10, "{:?}", begun.elapsed());
    far.cut.store(false, SeqCst);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(slot.is_fenced(), "for ever");
    drop(slot);
    assert!(stats(&slots).fenced == 1);
}

#[tokio::test]
async fn a_hold_reported_as_lost_is_fenced_at_once() {
    let far = Far::default();
    let slots = slots(&far, 1);
    let slot = slots.acquire("acme").await.unwrap().permit.unwrap();
    far.store.reset(&["tk:{gpu/acme}h:"]).await.unwrap();
    let other = slots.acquire("acme").await.unwrap();
    assert!(other.permit.is_some(), "the store gave it to another");
    tokio::time::timeout(LIVES * 2 / 3, slot.fenced()).await.expect("with the next heartbeat");
    assert_eq!(stats(&slots).lost, 1);
    assert_eq!(slot.close(Ending::Success).await, Ok(false));
    assert_eq!(held_by_all(&slots).await, Ok(1), "the other's stays");
}

#[tokio::test]
async fn a_process_holds_no_more_than_it_may() {
    let far = Far::default();
    let slots = SharedGuard::builder(far, "gpu", Concurrency::per_key(10))
        .lease(LIVES)
        .permits_max(2)
        .build()
        .unwrap();
    let held = [slots.acquire("a").await.unwrap(), slots.acquire("b").await.unwrap()];
    let third = slots.acquire("c").await.unwrap();
    assert!(third.permit.is_none() && third.retry_after == Retry::OnRelease);
    drop(held);
    assert!(slots.acquire("c").await.unwrap().permit.is_some());
}

#[test]
fn leases_that_the_clocks_would_eat_are_refused() {
    let build =
        |lives| SharedGuard::builder(MemoryStore::new(), "gpu", Concurrency::per_key(1)).lease(lives).build();
    assert!(build(Duration::from_millis(10)).is_ok());
    assert!(matches!(build(Duration::from_millis(9)), Err(BuildError::OutOfRange { setting: "lease", .. })));
    assert!(matches!(
        build(Duration::from_secs(25 * 3_600)),
        Err(BuildError::OutOfRange { setting: "lease", .. })
    ));
}

#[tokio::test]
async fn a_release_without_a_response_is_an_error() {
    let far = Far::default();
    let slots = slots(&far, 1);
    let slot = slots.acquire("acme").await.unwrap().permit.unwrap();
    far.cut.store(true, SeqCst);
    let told = slot.close(Ending::Success).await;
    assert!(matches!(&told, Err(error) if error.is_outage()), "{told:?}");
    assert_eq!(stats(&slots).lapsed, 1);
}

/// No heartbeats are sent for a slot that is being released, which would extend its lease.
#[tokio::test]
async fn a_slot_being_released_no_longer_counts_as_held() {
    let slots = slots(&Far { turns: 50, ..Far::default() }, 1);
    let slot = slots.acquire("acme").await.unwrap().permit.unwrap();
    assert_eq!(stats(&slots).held, 1);
    let mut release = Box::pin(slot.close(Ending::Success));
    assert!(release.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(stats(&slots).held, 0, "as soon as it leaves");
    assert_eq!(release.await, Ok(true));
}

#[test]
fn the_renewer_outlives_the_runtime_of_its_first_caller() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let slots = slots(&Far::default(), 4);
    assert!(!stats(&slots).renewer_alive && stats(&slots).renewers == 0);
    let first = runtime();
    let held = first.block_on(slots.acquire("acme")).unwrap();
    drop(first);
    let more = runtime().block_on(slots.acquire("acme")).unwrap();
    assert!(stats(&slots).renewer_alive && stats(&slots).renewers == 1, "{:?}", stats(&slots));
    drop((held, more));
}

/// A store that panics.
struct Panics;

impl SlotStore for Panics {
    async fn acquire(&self, _: &SlotRequest<'_>) -> Result<SlotAnswer, StoreError> {
        panic!("of the store's own");
    }

    async fn heartbeat(&self, _: &[SlotLease<'_>], _: Duration) -> Vec<Result<HeartbeatOutcome, StoreError>> {
        Vec::new()
    }

    async fn release(&self, _: &[SlotLease<'_>]) -> Vec<Result<bool, StoreError>> {
        Vec::new()
    }

    async fn occupancy(&self, _: &[&str]) -> Result<Vec<Occupancy>, StoreError> {
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn a_panic_in_the_store_reaches_the_caller() {
    let slots = SharedGuard::builder(Panics, "gpu", Concurrency::per_key(1)).build().unwrap();
    let ended = tokio::spawn(async move { slots.acquire("acme").await.map(drop) }).await;
    assert!(ended.is_err_and(|ended| ended.is_panic()), "not an outage");
}

#[tokio::test]
async fn a_limit_in_total_is_one_for_all_keys() {
    let slots = SharedGuard::new(MemoryStore::new(), "gpu", 1).unwrap();
    let held = slots.acquire("acme").await.unwrap();
    assert!(held.permit.is_some() && slots.acquire("another").await.unwrap().permit.is_none());
    assert!(slots.try_acquire("acme").is_none(), "the store decides");
}

#[test]
fn limits_that_a_store_cannot_count_are_refused() {
    let build = |limit: Concurrency| SharedGuard::new(MemoryStore::new(), "gpu", limit);
    for limit in [Concurrency::adaptive(1..=4), Concurrency::per_key(1).total(4)] {
        assert!(matches!(build(limit), Err(BuildError::NotShareable(_))));
    }
    let divided = SharedGuard::builder(MemoryStore::new(), "gpu", Concurrency::per_key(1)).divided().build();
    assert!(matches!(divided, Err(BuildError::NotShareable(_))));
}
