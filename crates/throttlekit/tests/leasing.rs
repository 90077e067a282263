//! Leasing over a store in memory: the calls to the store, and the admissions.
#![cfg(feature = "store")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit::clock::ManualClock;
use throttlekit::leasing::{Batch, Leasing, Margin};
use throttlekit::rate::Timestamp;
use throttlekit::store::{
    Charges, Debit, Debited, LeaseRequest, LeaseReturn, Leased, MemoryStore, Outcome, Store, StoreError,
};
use throttlekit::{Answer, BuildError, Call, Guarantee, Limit, Rate, Retry, SharedLimiter, forward_store};
use tokio::sync::Semaphore;

const MINUTE: Duration = Duration::from_secs(60);

/// A store that can be blocked or made unavailable.
#[derive(Clone)]
struct Gate {
    kept: Arc<MemoryStore<ManualClock>>,
    away: Arc<AtomicBool>,
    /// The number of leases that may pass.
    passes: Arc<Semaphore>,
    leases: Arc<AtomicU64>,
    /// The time that a return takes.
    returns_take: Duration,
}

impl Gate {
    /// Creates a store on the test's own runtime, whose time may be paused, or on the driver thread where a
    /// test has none.
    fn new(clock: &ManualClock) -> Self {
        let kept = MemoryStore::with_clock(clock.clone());
        let kept = match tokio::runtime::Handle::try_current() {
            Ok(runtime) => kept.runtime(runtime),
            Err(_) => kept,
        };
        Self {
            kept: Arc::new(kept),
            away: Arc::default(),
            passes: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
            leases: Arc::default(),
            returns_take: Duration::ZERO,
        }
    }

    fn held(clock: &ManualClock) -> Self {
        Self { passes: Arc::new(Semaphore::new(0)), ..Self::new(clock) }
    }

    fn reachable(&self) -> Result<(), StoreError> {
        if self.away.load(Relaxed) { Err(StoreError::unavailable("down")) } else { Ok(()) }
    }
}

impl Store for Gate {
    async fn admit(&self, asks: &[Charges<'_>]) -> Result<Vec<Outcome>, StoreError> {
        self.reachable()?;
        self.kept.admit(asks).await
    }

    async fn debit(&self, debits: &[Debit<'_>]) -> Vec<Result<Debited, StoreError>> {
        match self.reachable() {
            Ok(()) => self.kept.debit(debits).await,
            Err(error) => vec![Err(error); debits.len()],
        }
    }

    async fn lease(&self, asks: &[LeaseRequest<'_>]) -> Vec<Result<Leased, StoreError>> {
        self.leases.fetch_add(1, Relaxed);
        self.passes.acquire().await.unwrap().forget();
        match self.reachable() {
            Ok(()) => self.kept.lease(asks).await,
            Err(error) => vec![Err(error); asks.len()],
        }
    }

    async fn give_back(&self, backs: &[LeaseReturn<'_>]) -> Result<(), StoreError> {
        if !self.returns_take.is_zero() {
            tokio::time::sleep(self.returns_take).await;
        }
        self.kept.give_back(backs).await
    }

    forward_store!(Store for self => self.kept; peek, settle, reset, background);
}

/// Returns the store's clock and the node's, which show quite different times.
fn clocks() -> (ManualClock, ManualClock) {
    (
        ManualClock::at(Timestamp::from_millis(1_800_000_000_000)),
        ManualClock::at(Timestamp::from_millis(7_000)),
    )
}

fn fixture() -> ((ManualClock, ManualClock), Gate) {
    let clocks = clocks();
    let store = Gate::new(&clocks.0);
    (clocks, store)
}

type Node = SharedLimiter<Gate, ManualClock>;

/// Creates a node that leases ten units at a time, of `units` per minute.
fn one_node(units: u64) -> ((ManualClock, ManualClock), Gate, Node) {
    let (clocks, store) = fixture();
    let limiter = leased(store.clone(), per_minute(units), &clocks.1);
    (clocks, store, limiter)
}

fn advance(clocks: &(ManualClock, ManualClock), by: Duration) {
    clocks.0.advance(by);
    clocks.1.advance(by);
}

fn leased(store: Gate, limit: Limit, clock: &ManualClock) -> Node {
    build(store, limit, clock, by_tens(Leasing::new())).unwrap()
}

fn build(store: Gate, limit: Limit, clock: &ManualClock, leasing: Leasing) -> Result<Node, BuildError> {
    SharedLimiter::builder(store, "api", limit).leased_with(leasing).clock(clock.clone()).build()
}

/// Ten units at a time, only when they are needed, and none is returned without a request.
fn by_tens(leasing: Leasing) -> Leasing {
    leasing.batch(Batch::Fixed(10)).share(1).refill_at_percent(0).return_after(None)
}

fn per_minute(units: u64) -> Limit {
    Limit::fixed_window(units, MINUTE).unwrap()
}

#[tokio::test]
async fn a_batch_serves_many_and_the_limit_holds() {
    let (clocks, store, limiter) = one_node(95);
    let mut allowed = 0;
    for _ in 0..120 {
        let answer = limiter.check("alice").await.unwrap();
        assert_eq!(answer.guarantee, Guarantee::Exact);
        allowed += u64::from(answer.allowed);
    }
    assert_eq!(allowed, 95);
    // Ten batches, the last of five, and one that was denied; the other denials are cached.
    assert_eq!(store.leases.load(Relaxed), 11);
    let denied = limiter.check("alice").await.unwrap().decision;
    assert_eq!(denied.retry_after, Retry::After(MINUTE));
    assert_eq!(limiter.try_check("alice"), Some(denied));

    advance(&clocks, MINUTE);
    assert!(limiter.check("alice").await.unwrap().allowed);
}

/// Nodes with a changed limit lease what is left of it: units spent under the old one stay spent.
#[tokio::test]
async fn reload_a_new_limit_leases_the_rest_of_the_old_one() {
    let (clocks, store) = fixture();
    let passes = async |units, asks| {
        let node = leased(store.clone(), per_minute(units), &clocks.1);
        let mut allowed = 0;
        for _ in 0..asks {
            allowed += u64::from(node.check("alice").await.unwrap().allowed);
        }
        allowed
    };
    assert_eq!(passes(95, 40).await, 40);
    assert_eq!(passes(60, 100).await, 20);
    assert_eq!(passes(50, 100).await, 0);
    assert_eq!(passes(200, 500).await, 140);
    advance(&clocks, MINUTE);
    assert_eq!(passes(60, 100).await, 60);
}

/// Debits of four tokens by three nodes: the store lends what the last is short of, and no other crosses the
/// edge.
#[tokio::test]
async fn budget_of_a_window_is_crossed_once_however_many_nodes_lease() {
    let (clocks, store) = fixture();
    let budget = Limit::token_budget(41, MINUTE).unwrap();
    let node = || leased(store.clone(), budget, &clocks.1);
    let nodes = [node(), node(), node()];
    for window in 0..3 {
        let mut charged = 0;
        for turn in 0..60 {
            let answer = nodes[turn % 3].check(Call::by("acme").cost(4)).await.unwrap();
            assert_eq!(answer.guarantee, Guarantee::Exact);
            charged += 4 * u64::from(answer.allowed);
        }
        // Three nodes have less than four left each.
        assert!((41 - 9..=41 + 3).contains(&charged), "{charged} in window {window}");
        advance(&clocks, MINUTE);
    }
}

#[tokio::test]
async fn units_die_with_their_window_less_the_margin() {
    let (clocks, _, limiter) = one_node(100);
    limiter.check("alice").await.unwrap();
    let lasts = MINUTE - Duration::from_micros(60_970);
    advance(&clocks, lasts - Duration::from_millis(2));
    assert!(limiter.try_check("alice").is_some());
    advance(&clocks, Duration::from_millis(2));
    assert_eq!(limiter.try_check("alice"), None, "dead a little before the window's end");
}

#[tokio::test]
async fn one_request_is_in_flight_for_any_number_of_waiters_and_credited_once() {
    let clocks = clocks();
    let store = Gate::held(&clocks.0);
    let limiter = leased(store.clone(), per_minute(1_000), &clocks.1);
    let callers: Vec<_> = (0..200)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.check("alice").await.unwrap().allowed })
        })
        .collect();
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.leases.load(Relaxed), 1);
    store.passes.add_permits(1_000);
    for caller in callers {
        assert!(caller.await.unwrap());
    }
    let stats = limiter.stats().leasing;
    assert_eq!(stats.units_lent, 200, "as many as waited, then none: {stats:?}");
}

#[tokio::test]
async fn cancelled_callers_take_nothing_and_delay_no_other() {
    let clocks = clocks();
    let store = Gate::held(&clocks.0);
    let limiter = leased(store.clone(), per_minute(1_000), &clocks.1);
    for _ in 0..50 {
        let waiting = limiter.check("alice");
        assert!(tokio::time::timeout(Duration::from_millis(1), waiting).await.is_err());
    }
    assert_eq!(store.leases.load(Relaxed), 1, "the first request is still under way");
    let patient = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.check("alice").await.unwrap().allowed }
    });
    tokio::task::yield_now().await;
    store.passes.add_permits(10);
    assert!(patient.await.unwrap());
}

#[tokio::test]
async fn during_an_outage_local_units_are_spent_before_the_fallback() {
    let (_, store, limiter) = one_node(1_000);
    assert!(limiter.check("alice").await.unwrap().allowed);
    store.away.store(true, Relaxed);
    for _ in 0..9 {
        assert_eq!(limiter.check("alice").await.unwrap().guarantee, Guarantee::Exact);
    }
    let answer = limiter.check("alice").await.unwrap();
    assert_eq!((answer.guarantee, answer.allowed), (Guarantee::Closed, false));
    store.away.store(false, Relaxed);
    assert!(limiter.check("alice").await.unwrap().allowed);
}

#[tokio::test]
async fn a_cached_denial_covers_only_requests_of_at_least_its_cost() {
    let (clocks, store) = fixture();
    let cached = Leasing::cached_denials();
    let limiter = build(store.clone(), per_minute(10), &clocks.1, cached).unwrap();
    let check = |cost| limiter.check(Call::by("alice").cost(cost));
    assert!(check(7).await.unwrap().allowed);
    assert!(!check(5).await.unwrap().allowed);
    let asked = limiter.stats().leasing.strict;
    assert!(!check(5).await.unwrap().allowed && !check(9).await.unwrap().allowed);
    assert_eq!(limiter.stats().leasing.strict, asked, "remembered");
    assert!(check(3).await.unwrap().allowed, "three are left");
    assert_eq!(limiter.stats().leasing.strict, asked + 1);
    advance(&clocks, MINUTE);
    assert!(check(5).await.unwrap().allowed);
}

#[tokio::test]
async fn cold_keys_are_decided_by_the_store_and_hot_ones_are_leased() {
    let (clocks, store) = fixture();
    let limiter = build(store, per_minute(100_000), &clocks.1, Leasing::auto()).unwrap();
    for key in 0..100_u32 {
        limiter.check(&key.to_be_bytes()).await.unwrap();
    }
    let cold = limiter.stats().leasing;
    assert_eq!((cold.strict, cold.leases), (100, 0), "a hundred keys, one ask each");
    for _ in 0..10_000 {
        assert!(limiter.check("hot").await.unwrap().allowed);
    }
    let hot = limiter.stats().leasing;
    assert!(hot.store_calls() - cold.store_calls() < 200, "{hot:?}");
}

#[tokio::test]
async fn a_forecast_sizes_the_first_batch_of_a_key_that_was_never_seen() {
    let (clocks, store) = fixture();
    let forecast = |key: &[u8]| if key == b"batch" { 5_000 } else { 2 };
    let leasing = by_tens(Leasing::new()).forecast(forecast);
    let limiter = build(store.clone(), per_minute(100_000), &clocks.1, leasing).unwrap();
    for key in ["batch", "quiet"] {
        assert!(limiter.check(key).await.unwrap().allowed);
    }
    let [batch, quiet] = ["batch", "quiet"].map(|key| limiter.try_check(key).map(|told| told.remaining));
    assert!(batch > Some(5) && quiet < batch, "{batch:?} and {quiet:?}");
}

#[tokio::test]
async fn keys_beyond_the_cap_are_decided_by_the_store() {
    let clocks = clocks();
    let leasing = by_tens(Leasing::new()).keys_max(8);
    let limiter = build(Gate::new(&clocks.0), per_minute(100), &clocks.1, leasing).unwrap();
    for key in 0..64_u32 {
        let answer: Answer = limiter.check(&key.to_be_bytes()).await.unwrap();
        assert!(answer.allowed);
    }
    let stats = limiter.stats().leasing;
    assert_eq!((stats.leases, stats.strict), (8, 56));
}

#[tokio::test]
async fn idle_units_are_returned_and_spent_by_others() {
    let (clocks, store) = fixture();
    let idle = leased(store.clone(), per_minute(10), &clocks.1);
    let busy = leased(store, per_minute(10), &clocks.1);
    assert!(idle.check("alice").await.unwrap().allowed);
    assert!(!busy.check("alice").await.unwrap().allowed, "all ten are with the idle one");
    idle.close().await.unwrap();
    assert_eq!(idle.stats().leasing.units_returned, 9);
    let other = leased_again(&busy, &clocks);
    let mut allowed = 0;
    for _ in 0..20 {
        allowed += u64::from(other.check("alice").await.unwrap().allowed);
    }
    assert_eq!(allowed, 9);
}

/// Creates another node on the same store, without a cached denial.
fn leased_again(of: &Node, clocks: &(ManualClock, ManualClock)) -> Node {
    leased(of.store().clone(), per_minute(10), &clocks.1)
}

#[tokio::test(start_paused = true)]
async fn an_idle_key_is_looked_after() {
    let clocks = clocks();
    let leasing = by_tens(Leasing::new()).return_after(Some(Duration::from_secs(1)));
    let limiter = build(Gate::new(&clocks.0), per_minute(10), &clocks.1, leasing).unwrap();
    limiter.check("alice").await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(limiter.stats().leasing.units_returned, 0, "it was asked for within the second");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(limiter.stats().leasing.units_returned, 9);
}

/// A process that stops closes its limiters, and ends.
#[tokio::test(start_paused = true)]
async fn a_limiter_is_closed_when_idle_units_that_are_on_their_way_back_have_arrived() {
    let clocks = clocks();
    let leasing = by_tens(Leasing::new()).return_after(Some(Duration::from_secs(1)));
    let store = Gate { returns_take: Duration::from_millis(500), ..Gate::new(&clocks.0) };
    let limiter = build(store, per_minute(10), &clocks.1, leasing).unwrap();
    limiter.check("alice").await.unwrap();
    tokio::time::sleep(Duration::from_millis(2_200)).await;
    assert_eq!(limiter.stats().leasing.units_returned, 0, "nine are on their way");
    limiter.close().await.unwrap();
    assert_eq!(limiter.stats().leasing.units_returned, 9);
}

#[tokio::test(start_paused = true)]
async fn a_limiter_is_closed_though_a_return_never_ends() {
    let clocks = clocks();
    let leasing = by_tens(Leasing::new()).return_after(Some(Duration::from_secs(1)));
    let store = Gate { returns_take: Duration::MAX, ..Gate::new(&clocks.0) };
    let limiter = build(store, per_minute(10), &clocks.1, leasing).unwrap();
    limiter.check("alice").await.unwrap();
    tokio::time::sleep(Duration::from_millis(2_200)).await;
    limiter.close().await.unwrap();
    assert_eq!(limiter.stats().leasing.units_returned, 0);
}

#[tokio::test(start_paused = true)]
async fn a_close_that_is_begun_and_not_polled_delays_no_other() {
    let clocks = clocks();
    let store = Gate { returns_take: Duration::MAX, ..Gate::new(&clocks.0) };
    let limiter = build(store, per_minute(10), &clocks.1, by_tens(Leasing::new())).unwrap();
    limiter.check("alice").await.unwrap();
    let begun = limiter.close();
    tokio::pin!(begun);
    let little = tokio::time::timeout(Duration::from_millis(1), begun.as_mut()).await;
    assert!(little.is_err(), "nine units are on their way");
    limiter.close().await.unwrap();
}

#[tokio::test]
async fn a_smooth_rate_leases_for_its_hold_time_and_reports_the_bound() {
    let clocks = clocks();
    let limit = Limit::gcra(Rate::per_second(100).burst(50)).unwrap();
    let leasing = by_tens(Leasing::new()).margin(Margin::NONE).hold(Duration::from_millis(200));
    let limiter = build(Gate::new(&clocks.0), limit, &clocks.1, leasing).unwrap();
    let first = limiter.check("alice").await.unwrap();
    assert!(first.allowed);
    assert_eq!(first.guarantee, Guarantee::Bounded(20));
    advance(&clocks, Duration::from_millis(199));
    assert!(limiter.try_check("alice").is_some());
    advance(&clocks, Duration::from_millis(1));
    assert_eq!(limiter.try_check("alice"), None);
}

#[tokio::test]
async fn rules_that_cannot_be_lent_are_refused_when_built_and_can_be_cached() {
    let clocks = clocks();
    let log = Limit::sliding_log(10, MINUTE).unwrap();
    let refused = build(Gate::new(&clocks.0), log, &clocks.1, Leasing::new());
    assert_eq!(refused.err(), Some(BuildError::NotLeasable));
    let cached = build(Gate::new(&clocks.0), log, &clocks.1, Leasing::cached_denials()).unwrap();
    assert!(cached.check("alice").await.unwrap().allowed);
}

#[tokio::test]
async fn a_leased_key_and_its_thread_caches_spend_the_nodes_units() {
    let (.., limiter) = one_node(30);
    let held = limiter.leased_key("alice").unwrap();
    assert!(held.try_spend(1).is_none(), "nothing is held yet");
    assert!(held.check(1).await.unwrap().allowed);
    let mut cache = held.thread_cache(4);
    assert!(cache.try_spend(1).is_some() && cache.try_spend(3).is_some());
    assert!(held.try_spend(5).is_some(), "nine less four");
    assert!(cache.try_spend(1).is_none() && held.try_spend(1).is_none());
    assert!(held.check(1).await.unwrap().allowed);
    drop(cache);
    let mut cache = held.thread_cache(4);
    assert!(cache.try_spend(1).is_some());
    drop(cache);
    assert!(held.try_spend(8).is_some(), "what the cache did not spend is back");
}

/// `lease-carry`: the units that a node may carry over are those it holds, in its local lease and in thread
/// caches together.
#[tokio::test]
async fn a_thread_cache_keeps_nothing_that_is_carried_over() {
    const HELD_MAX: u64 = 10;
    let clocks = clocks();
    let leasing = by_tens(Leasing::new()).lease_max(HELD_MAX).carry(1);
    let limiter = build(Gate::new(&clocks.0), per_minute(100), &clocks.1, leasing).unwrap();
    let held = limiter.leased_key("alice").unwrap();
    assert_eq!(held.check(1).await.unwrap().guarantee, Guarantee::Bounded(HELD_MAX));
    let mut cache = held.thread_cache(9);
    assert!(cache.try_spend(1).is_some());
    assert!(held.check(1).await.unwrap().allowed);
    clocks.0.advance(MINUTE);
    let mut carried = 0;
    while cache.try_spend(1).is_some() || held.try_spend(1).is_some() {
        carried += 1;
    }
    assert!(carried <= HELD_MAX, "{carried} units were carried over, of {HELD_MAX}");
}

/// `lease-coupled` and use of the whole limit, with real threads: four nodes, many tasks, costs 1 to 3.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lease_coupled_many_threads_admit_exactly_the_limit() {
    const LIMIT: u64 = 20_000;
    let (clocks, store) = fixture();
    let admitted = Arc::new(AtomicU64::new(0));
    let nodes: Vec<_> = [1, 7, 50, 400]
        .map(|batch| {
            let leasing = Leasing::new().batch(Batch::Fixed(batch)).refill_at_percent(50).return_after(None);
            build(store.clone(), per_minute(LIMIT), &clocks.1, leasing).unwrap()
        })
        .into();
    let tasks = (0..32_u64).map(|task| {
        let (node, admitted) = (nodes[task as usize % 4].clone(), admitted.clone());
        tokio::spawn(async move {
            for ask in 0..2_000_u64 {
                let cost = 1 + (task + ask) % 3;
                if node.check(Call::by("alice").cost(cost)).await.unwrap().allowed {
                    admitted.fetch_add(cost, Relaxed);
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let admitted = admitted.load(Relaxed);
    assert!(admitted <= LIMIT, "{admitted} of {LIMIT}");
    assert!(admitted >= LIMIT * 95 / 100, "{admitted} of {LIMIT}: too much lies idle");
}

/// Entries move from key to key all the time; no key spends another's units.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lease_coupled_holds_for_many_keys_that_share_few_entries() {
    const LIMIT: u64 = 300;
    let (clocks, store) = fixture();
    let leasing = by_tens(Leasing::new()).batch(Batch::Fixed(5)).keys_max(8).refill_at_percent(50);
    let limiter = build(store, per_minute(LIMIT), &clocks.1, leasing).unwrap();
    let admitted: Arc<Vec<AtomicU64>> = Arc::new((0..40).map(|_| AtomicU64::new(0)).collect());
    let tasks = (0..16_usize).map(|task| {
        let (limiter, admitted) = (limiter.clone(), admitted.clone());
        tokio::spawn(async move {
            for ask in 0..2_000_usize {
                let key = (ask * 7 + task * 3) % admitted.len();
                let cost = 1 + (ask % 2) as u64;
                if limiter.check(Call::by(&key.to_be_bytes()).cost(cost)).await.unwrap().allowed {
                    admitted[key].fetch_add(cost, Relaxed);
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let each: Vec<_> = admitted.iter().map(|units| units.load(Relaxed)).collect();
    assert!(each.iter().all(|units| (LIMIT - 10..=LIMIT).contains(units)), "{each:?}");
}

/// The runtime that the store was given has ended: requests to it fail at once.
#[test]
fn a_background_runtime_that_has_ended_hangs_no_caller() {
    let clocks = clocks();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let limiter = {
        let _entered = runtime.enter();
        leased(Gate::new(&clocks.0), per_minute(10), &clocks.1)
    };
    drop(runtime);
    let asking = std::pin::pin!(limiter.check("alice"));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let answer = asking.poll(&mut context);
    assert!(
        matches!(&answer, std::task::Poll::Ready(Ok(answer)) if answer.guarantee == Guarantee::Closed),
        "{answer:?}"
    );
}

#[tokio::test]
async fn carried_units_never_exceed_the_reported_bound() {
    let (clocks, store) = fixture();
    let leasing = by_tens(Leasing::new()).lease_max(1).carry(1);
    let limiter = build(store, per_minute(100), &clocks.1, leasing).unwrap();
    // A request that costs more than may be held goes to the store, so nothing of it is left when it is
    // dropped.
    drop(tokio::time::timeout(Duration::ZERO, limiter.check(Call::by("alice").cost(100))).await);
    advance(&clocks, MINUTE);
    let mut admitted = 0;
    for _ in 0..150 {
        let answer = limiter.check("alice").await.unwrap();
        assert_eq!(answer.guarantee, Guarantee::Bounded(1));
        admitted += u64::from(answer.allowed);
    }
    assert!(admitted <= 101, "{admitted}");
    let strict = limiter.check(Call::by("bob").cost(50)).await.unwrap();
    assert_eq!(strict.guarantee, Guarantee::Bounded(1), "what is lent counts beside it");
}

#[tokio::test]
async fn thread_caches_keep_nothing_that_is_too_little_for_them() {
    let (.., limiter) = one_node(1_000);
    let held = limiter.leased_key("alice").unwrap();
    assert!(held.check(1).await.unwrap().allowed);
    let mut cache = held.thread_cache(4);
    assert!(cache.try_spend(10).is_none());
    assert!(held.try_spend(9).is_some(), "all nine are still there for others");
}

#[tokio::test]
async fn least_recently_used_keys_are_evicted() {
    let clocks = clocks();
    let leasing = Leasing::auto().keys_max(8).return_after(None);
    let limiter = build(Gate::new(&clocks.0), per_minute(1_000_000), &clocks.1, leasing).unwrap();
    for stranger in 0..1_000_u32 {
        limiter.check(&stranger.to_be_bytes()).await.unwrap();
        limiter.check("hot").await.unwrap();
        advance(&clocks, Duration::from_micros(10));
    }
    let stats = limiter.stats().leasing;
    assert!(stats.leases > 0 && stats.strict < 1_300, "{stats:?}");
}

#[tokio::test]
async fn a_denial_is_cached_for_a_while_and_capacity_freed_by_others_is_found() {
    let clocks = clocks();
    let day = Limit::fixed_window(10, Duration::from_secs(86_400)).unwrap();
    let limiter = build(Gate::new(&clocks.0), day, &clocks.1, Leasing::cached_denials()).unwrap();
    let first = limiter.check(Call::by("alice").cost(10)).await.unwrap();
    let denied = limiter.check("alice").await.unwrap().decision;
    limiter.settle(first.receipt.unwrap(), 1).await.unwrap();
    advance(&clocks, Duration::from_millis(500));
    let still = limiter.check("alice").await.unwrap().decision;
    let waits = |retry: Retry| retry.wait().unwrap();
    assert!(!still.allowed && waits(still.retry_after) < waits(denied.retry_after));
    assert!(waits(still.retry_after) > Duration::from_secs(10), "callers are told the true wait");
    advance(&clocks, Duration::from_millis(500));
    assert!(limiter.check("alice").await.unwrap().allowed);
}

#[tokio::test]
async fn leases_that_could_never_be_spent_are_refused_when_built() {
    let clocks = clocks();
    let gcra = Limit::gcra(Rate::per_second(1_000)).unwrap();
    let hold = Duration::from_millis(1);
    let refused = build(Gate::new(&clocks.0), gcra, &clocks.1, Leasing::new().hold(hold));
    assert_eq!(refused.err(), Some(BuildError::LeaseTooShort(hold)));
}

#[test]
fn a_leased_key_on_a_plain_thread_is_refilled_in_the_background() {
    let (.., limiter) = one_node(1_000);
    let held = limiter.leased_key("alice").unwrap();
    let (mut spent, until) = (0, tokio::time::Instant::now() + Duration::from_secs(30));
    while spent < 100 {
        assert!(tokio::time::Instant::now() < until, "{spent} of 100 units came");
        match held.try_spend(1) {
            Some(_) => spent += 1,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

#[tokio::test]
async fn unused_units_are_spent_again_or_returned_while_their_window_lasts() {
    let (.., limiter) = one_node(20);
    let ask = Call::by("alice").cost(10);
    let charged = limiter.check(ask).await.unwrap();
    assert!(charged.allowed && charged.receipt.is_none() && limiter.try_check("alice").is_none());
    limiter.refund("alice", 6, charged.reset_at);
    limiter.refund("bob", 6, charged.reset_at);
    assert_eq!(limiter.try_check(Call::by("alice").cost(5)).map(|told| told.remaining), Some(1));
    assert_eq!(limiter.try_check("bob"), None, "he holds nothing");
    limiter.close().await.unwrap();
    let left = limiter.check(Call::by("alice").cost(0)).await.unwrap().remaining;
    assert_eq!(left, 11, "ten were never lent, and one went back");
    limiter.refund("alice", 4, charged.reset_at);
    assert_eq!(limiter.try_check("alice"), None, "nothing of the window is held any more");
}

#[tokio::test]
async fn nothing_is_handed_back_into_a_later_window() {
    let (clocks, _, limiter) = one_node(10);
    let charged = limiter.check(Call::by("alice").cost(10)).await.unwrap().decision;
    advance(&clocks, MINUTE);
    limiter.refund("alice", 10, charged.reset_at);
    assert_eq!(limiter.try_check("alice"), None, "they died with their window");
    let next = limiter.check(Call::by("alice").cost(10)).await.unwrap().decision;
    assert!(next.allowed && next.reset_at == charged.reset_at + MINUTE);
    limiter.refund("alice", 10, charged.reset_at);
    assert!(!limiter.check("alice").await.unwrap().allowed, "ten were used in this window");
    limiter.refund("alice", 10, next.reset_at);
    assert!(limiter.try_check("alice").is_some());
}

/// A denial of the next window reports when that ends, while units of this one are still in the local lease.
#[tokio::test]
async fn a_decision_names_the_window_of_the_units_that_were_spent() {
    let (clocks, store, limiter) = one_node(10);
    let first = limiter.check("alice").await.unwrap().decision;
    // The store is a minute ahead, where another node has used everything.
    clocks.0.advance(MINUTE);
    let other = SharedLimiter::new(store, "api", per_minute(10)).unwrap();
    assert!(other.check(Call::by("alice").cost(10)).await.unwrap().allowed);
    assert!(!limiter.check(Call::by("alice").cost(10)).await.unwrap().allowed);
    let second = limiter.check("alice").await.unwrap().decision;
    assert_eq!((second.allowed, second.reset_at), (true, first.reset_at));
}

#[tokio::test]
async fn units_not_leased_by_windows_expire() {
    let (clocks, store) = fixture();
    let rate = Limit::gcra(Rate::per_second(1).burst(10)).unwrap();
    let limiter = leased(store.clone(), rate, &clocks.1);
    let charged = limiter.check(Call::by("alice").cost(10)).await.unwrap().decision;
    limiter.refund("alice", 10, charged.reset_at);
    assert_eq!(limiter.try_check("alice"), None);
}

/// Nodes whose callers request three and use one: the total use is exactly the limit.
#[tokio::test(flavor = "multi_thread")]
async fn lease_coupled_holds_for_actual_use_with_refunds() {
    const LIMIT: u64 = 2_000;
    let (clocks, store) = fixture();
    let used = Arc::new(AtomicU64::new(0));
    let mut callers = Vec::new();
    for _ in 0..3 {
        let limiter = leased(store.clone(), per_minute(LIMIT), &clocks.1);
        for _ in 0..4 {
            let (limiter, used) = (limiter.clone(), used.clone());
            callers.push(tokio::spawn(async move {
                while used.load(Relaxed) < 2 * LIMIT {
                    let answer = limiter.check(Call::by("alice").cost(3)).await.unwrap();
                    if !answer.allowed {
                        break;
                    }
                    used.fetch_add(1, Relaxed);
                    match answer.receipt {
                        Some(receipt) => limiter.settle(receipt, 1).await.unwrap(),
                        None => limiter.refund("alice", 2, answer.reset_at),
                    }
                }
            }));
        }
    }
    for caller in callers {
        caller.await.unwrap();
    }
    let used = used.load(Relaxed);
    assert!((LIMIT - 3 * 12..=LIMIT).contains(&used), "{used} of {LIMIT}");
}
