//! One call over axes that are shared, on a store in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use throttlekit::admission::{Axis, Call, SharedPolicy};
use throttlekit::guard::Ending;
use throttlekit::store::{Background, LeaseReturn, MemoryStore, Store, StoreError};
use throttlekit::{Guard, Limit, ManualClock, Rate, SharedLimiter, SharedSlots, Timestamp, forward_store};

const MINUTE: Duration = Duration::from_secs(60);
const START: Timestamp = Timestamp::from_millis(1_700_000_010_000);

type Memory = Arc<MemoryStore<ManualClock>>;

fn store() -> Memory {
    Arc::new(MemoryStore::with_clock(ManualClock::at(START)))
}

fn limits(store: &Memory) -> SharedLimiter<Memory> {
    SharedLimiter::builder(store.clone(), "chat", Limit::fixed_window(3, MINUTE).unwrap())
        .limit("tokens", Limit::token_budget(100, MINUTE).unwrap())
        .build()
        .unwrap()
}

fn policy(store: &Memory) -> SharedPolicy {
    let builder = SharedPolicy::builder("chat").concurrency(Guard::fixed(2));
    builder.together(limits(store), [Axis::Rate, Axis::Cost]).build().unwrap()
}

async fn left(store: &Memory) -> [u64; 2] {
    let each = limits(store).peek_each("a").await.unwrap();
    [each[0].remaining, each[1].remaining]
}

#[tokio::test]
async fn a_denial_is_free_on_every_axis() {
    let store = store();
    let policy = policy(&store);
    let costly = policy.admit(Call::by("a").cost(101)).await.unwrap();
    assert_eq!(costly.binding_axis(), Some(Axis::Cost));
    assert!(costly.axes.get(Axis::Rate).unwrap().allowed);
    assert_eq!(left(&store).await, [3, 100]);
    let held = [policy.admit("a").await.unwrap(), policy.admit("a").await.unwrap()];
    assert_eq!(
        policy.admit("a").await.unwrap().binding_axis(),
        Some(Axis::Concurrency),
        "both slots came back"
    );
    assert_eq!(left(&store).await, [1, 98]);
    drop(held);
}

#[tokio::test]
async fn what_is_not_used_goes_back_and_what_is_used_beyond_is_charged_up_to_the_edge() {
    let store = store();
    let policy = policy(&store);
    let mut permit = policy.admit(Call::by("a").cost(60)).await.unwrap().permit.unwrap();
    assert!(permit.debit(25).await.unwrap().allowed);
    permit.close(Ending::Success).await.unwrap();
    assert_eq!(left(&store).await, [2, 75]);

    let mut permit = policy.admit(Call::by("a").cost(70)).await.unwrap().permit.unwrap();
    for chunk in [70, 4, 9] {
        assert!(permit.debit(chunk).await.unwrap().allowed);
    }
    assert!(!permit.debit(1).await.unwrap().allowed);
    assert_eq!(permit.used(), 83);
    permit.close(Ending::Ignored).await.unwrap();
    assert_eq!(left(&store).await, [1, 0]);
    assert_eq!(policy.admit("a").await.unwrap().binding_axis(), Some(Axis::Cost));
}

#[tokio::test]
async fn a_permit_that_is_dropped_settles_in_the_background() {
    let store = store();
    let policy = policy(&store);
    let mut permit = policy.admit(Call::by("a").cost(60)).await.unwrap().permit.unwrap();
    assert!(permit.debit(25).await.unwrap().allowed);
    drop(permit);
    for _ in 0..1_000 {
        if left(&store).await == [2, 75] {
            assert_eq!(policy.settlements().begun, 1);
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{:?}", policy.settlements());
}

#[tokio::test]
async fn slots_on_a_store_go_back_when_a_later_axis_denies() {
    let store = store();
    let slots = SharedSlots::builder(store.clone(), "slots", 1).build().unwrap();
    let builder = SharedPolicy::builder("chat").concurrency(slots.clone());
    let policy = builder.together(limits(&store), [Axis::Rate, Axis::Cost]).build().unwrap();
    assert_eq!(policy.admit(Call::by("a").cost(101)).await.unwrap().binding_axis(), Some(Axis::Cost));
    assert_eq!(slots.occupancy("a").await.unwrap(), 0, "before the answer");
    let permit = policy.admit("a").await.unwrap().permit.unwrap();
    assert_eq!(permit.run(async { 7 }).await, Ok(7));
    assert_eq!(policy.admit("a").await.unwrap().binding_axis(), Some(Axis::Concurrency));
}

#[tokio::test]
async fn a_shaper_is_asked_last_or_together_since_it_hands_no_turn_back() {
    let store = store();
    let shaper = Limit::leaky_bucket(Rate::per_second(3), Duration::from_secs(1)).unwrap();
    let tokens = Limit::token_budget(100, MINUTE).unwrap();
    let one = |name, limit| SharedLimiter::new(store.clone(), name, limit).unwrap();
    let first = SharedPolicy::builder("first")
        .together(one("calls", shaper), [Axis::Rate])
        .together(one("tokens", tokens), [Axis::Cost]);
    assert!(first.build().unwrap_err().to_string().contains("shaper"));
    let local = SharedPolicy::builder("local").local(Axis::Rate, shaper);
    assert!(local.together(one("tokens", tokens), [Axis::Cost]).build().is_err());
    let leased = SharedLimiter::builder(store.clone(), "leased", Rate::per_second(3)).auto().build().unwrap();
    let leased = SharedPolicy::builder("leased").leased(Axis::Rate, leased);
    assert!(
        leased.together(one("tokens", tokens), [Axis::Cost]).build().is_err(),
        "of a smooth rate units lapse"
    );
    let last = SharedPolicy::builder("last").together(one("calls", shaper), [Axis::Cost]);
    assert!(last.local(Axis::Rate, tokens).build().is_ok());

    let both = SharedLimiter::builder(store.clone(), "both", shaper).limit("tokens", tokens).build().unwrap();
    let policy = SharedPolicy::builder("both").together(both, [Axis::Rate, Axis::Cost]).build().unwrap();
    let left = policy.admit("a").await.unwrap().axes.get(Axis::Rate).unwrap().remaining;
    assert_eq!(policy.admit(Call::by("a").cost(101)).await.unwrap().binding_axis(), Some(Axis::Cost));
    assert_eq!(policy.admit("a").await.unwrap().axes.get(Axis::Rate).unwrap().remaining, left - 1);
}

/// The second store denies while the first has gone: the denial does not wait until the first can be told.
#[tokio::test(start_paused = true)]
async fn a_denial_does_not_wait_for_a_store_that_went_away() {
    let (first, second) = (Arc::new(Deaf::new(store())), store());
    let calls = SharedLimiter::new(first.clone(), "calls", Limit::fixed_window(3, MINUTE).unwrap()).unwrap();
    let tokens = SharedLimiter::new(second, "tokens", Limit::token_budget(10, MINUTE).unwrap()).unwrap();
    let guard = Arc::new(Guard::fixed(1));
    let builder = SharedPolicy::builder("two").concurrency(guard.clone());
    let policy = builder.together(calls, [Axis::Rate]).together(tokens, [Axis::Cost]).build().unwrap();
    let begun = tokio::time::Instant::now();
    let denied = policy.admit(Call::by("a").cost(11)).await.unwrap();
    assert_eq!((denied.binding_axis(), guard.in_flight()), (Some(Axis::Cost), 0));
    assert!(begun.elapsed() < Duration::from_millis(10), "{:?}", begun.elapsed());
    assert_eq!(policy.settlements().waiting, 1, "it is told as soon as it hears");
    first.hears.store(true, Relaxed);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((policy.settlements().waiting, policy.settlements().unknown), (0, 0));
    let again = policy.admit("a").await.unwrap();
    assert_eq!(again.axes.get(Axis::Rate).unwrap().remaining, 2, "the denial took no call");
}

/// Nobody is left to settle what a permit leaves behind: that is counted, and nobody waits for it.
#[test]
fn what_nobody_is_left_to_settle_is_counted_as_lost() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let store = MemoryStore::with_clock(ManualClock::at(START)).runtime(runtime.handle().clone());
    let policy = policy(&Arc::new(store));
    let permit = runtime.block_on(policy.admit(Call::by("a").cost(60))).unwrap().permit.unwrap();
    drop(runtime);
    drop(permit);
    let stats = policy.settlements();
    assert_eq!((stats.begun, stats.waiting, stats.lost), (1, 0, 1));
}

#[test]
fn a_permit_dropped_on_no_runtime_is_settled_in_the_background() {
    let store = store();
    let policy = policy(&store);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let permit = runtime.block_on(policy.admit(Call::by("a").cost(60))).unwrap().permit.unwrap();
    drop(runtime);
    drop(permit);
    let until = tokio::time::Instant::now() + Duration::from_secs(30);
    while policy.settlements().waiting > 0 {
        assert!(tokio::time::Instant::now() < until, "{:?}", policy.settlements());
        std::thread::sleep(Duration::from_millis(5));
    }
    let stats = policy.settlements();
    assert_eq!((stats.begun, stats.lost, stats.unknown), (1, 0, 0));
}

#[tokio::test]
async fn a_budget_that_is_leased_makes_no_policy() {
    let budget = Limit::token_budget(100, MINUTE).unwrap();
    let leased = SharedLimiter::builder(store(), "leased", budget).auto().build().unwrap();
    assert!(SharedPolicy::builder("leased").leased(Axis::Cost, leased).build().is_err());
}

/// A store that charges and takes nothing back, until it hears.
struct Deaf {
    store: Memory,
    hears: AtomicBool,
}

impl Deaf {
    fn new(store: Memory) -> Self {
        Self { store, hears: AtomicBool::new(false) }
    }
}

impl Store for Deaf {
    forward_store!(Store for self => self.store; admit, debit, peek, settle, lease, reset);

    async fn give_back(&self, backs: &[LeaseReturn<'_>]) -> Result<(), StoreError> {
        if self.hears.load(Relaxed) {
            return self.store.give_back(backs).await;
        }
        Err(StoreError::unavailable("gone"))
    }

    fn background(&self) -> Background {
        Background::default().on(tokio::runtime::Handle::current())
    }
}
