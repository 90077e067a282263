//! Several places that share one budget: production code end to end, over a pool in process and over pools that fail.
#![cfg(feature = "store")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit::fair::{Budget, Quanta, SharedFairLimiter, SharedFairLimiterBuilder, Weight};
use throttlekit::store::{Background, Grant, MemoryStore, RegionGrant, StoreError};
use throttlekit::{Call, Guarantee, Limit, ManualClock, OnOutage, Timestamp};
use throttlekit_conformance::regions::tenants_storm;
use throttlekit_core::lease::Epoch;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

const HOUR: Duration = Duration::from_secs(3_600);

fn hour(units: u64) -> Limit {
    Limit::fixed_window(units, HOUR).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn fair_regions_in_one_process_admit_the_limit_exactly() {
    let pool = Arc::new(MemoryStore::new());
    let place = |region: &str| {
        SharedFairLimiter::in_region(pool.clone(), "api", region, hour(1_000)).quantum(7).build().unwrap()
    };
    let got = tenants_storm(["us", "eu", "ap"].map(place).into()).await;
    assert_eq!(got.iter().sum::<u64>(), 1_000, "{got:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_take_quanta_admit_the_limit_exactly() {
    let store = Arc::new(MemoryStore::new());
    let place =
        |_| SharedFairLimiter::by_quanta(store.clone(), "api", hour(1_000)).quantum(7).build().unwrap();
    let got = tenants_storm((0..3).map(place).collect()).await;
    assert_eq!(got.iter().sum::<u64>(), 1_000, "{got:?}");
}

/// Tenants of weight 4 and 1 ask in turn, in two places, until neither is admitted; what each got.
async fn in_turn<B: Budget>(places: [SharedFairLimiter<B>; 2]) -> [u64; 2] {
    let (mut got, mut in_vain) = ([0; 2], 0);
    while in_vain < 4 {
        let before = got;
        for place in &places {
            for (tenant, weight) in [4, 1].into_iter().enumerate() {
                let weight = Weight::new(weight).unwrap();
                let answer = place.check_weighing(["heavy", "light"][tenant], weight).await.unwrap();
                got[tenant] += u64::from(answer.decision.allowed);
            }
        }
        in_vain = if got == before { in_vain + 1 } else { 0 };
        if in_vain > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    got
}

/// What `docs/regions.md` says of quanta, and why there are pools.
#[tokio::test]
async fn processes_are_fair_to_each_others_tenants_by_a_pool_and_not_by_quanta() {
    let store = Arc::new(MemoryStore::new());
    let region = |name| {
        let region = SharedFairLimiter::in_region(store.clone(), "pool", name, hour(100));
        region.quantum(1).hold(Duration::ZERO).build().unwrap()
    };
    assert_eq!(in_turn([region("a"), region("b")]).await, [80, 20]);
    let process = |_| {
        let process = SharedFairLimiter::by_quanta(store.clone(), "quanta", hour(100));
        process.quantum(1).hold(Duration::ZERO).build().unwrap()
    };
    let [heavy, light] = in_turn([0, 1].map(process)).await;
    assert!(heavy + light == 100 && light > 25, "{light}");
}

#[tokio::test]
async fn what_was_not_used_is_in_hand_again_while_its_window_lives() {
    let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000));
    let store = Arc::new(MemoryStore::with_clock(clock.clone()));
    let place = SharedFairLimiter::by_quanta(store, "api", hour(100)).quantum(100);
    let place = place.clock(clock.clone()).build().unwrap();
    let charged = place.check(Call::by("ann").cost(100)).await.unwrap().decision;
    assert!(charged.allowed && place.stats().in_hand == 0);
    place.refund("ann", 30, charged.reset_at);
    place.refund("bob", 30, charged.reset_at);
    assert_eq!(place.stats().in_hand, 30, "Bob was charged nothing");
    assert!(place.check(Call::by("ann").cost(30)).await.unwrap().decision.allowed);
    clock.advance(HOUR);
    assert!(place.check(Call::by("ann").cost(100)).await.unwrap().decision.allowed);
    place.refund("ann", 70, charged.reset_at);
    assert_eq!(place.stats().in_hand, 0, "that window is over");
}

/// A budget that answers what a test says, when it says so.
#[derive(Clone)]
struct Told(Arc<Script>);

struct Script {
    limit: Limit,
    answer: std::sync::Mutex<Result<RegionGrant, StoreError>>,
    asked: AtomicU64,
    /// A request takes one to be answered.
    turns: Semaphore,
}

impl Told {
    fn new(answer: Result<RegionGrant, StoreError>, turns: usize) -> Self {
        let answer = std::sync::Mutex::new(answer);
        let turns = Semaphore::new(turns);
        Self(Arc::new(Script { limit: hour(1_000), answer, asked: AtomicU64::new(0), turns }))
    }

    fn say(&self, answer: Result<RegionGrant, StoreError>) {
        *self.0.answer.lock().unwrap() = answer;
    }
}

impl Budget for Told {
    /// The test's own runtime, so that its turns are those of the store; the driver thread where a test has none.
    fn background(&self) -> Background {
        let driver = Background::default();
        tokio::runtime::Handle::try_current().map_or(driver.clone(), |runtime| driver.on(runtime))
    }

    async fn more(&self, _: Weight, _: u64) -> Result<RegionGrant, StoreError> {
        self.0.asked.fetch_add(1, Relaxed);
        self.0.turns.acquire().await.unwrap().forget();
        self.0.answer.lock().unwrap().clone()
    }

    fn limit(&self) -> &Limit {
        &self.0.limit
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::Exact
    }
}

fn granted(granted: u64, more: u64, epoch: u64, lives: Duration) -> Result<RegionGrant, StoreError> {
    let grant = Grant { granted, more, epoch: Epoch(epoch), lives };
    Ok(RegionGrant { now: Timestamp::from_millis(7), grant })
}

/// One reply of sixteen units, a hundred callers: sixteen pass, not sixteen for each.
#[tokio::test]
async fn a_grant_is_credited_once_however_many_wait_for_it() {
    let budget = Told::new(granted(16, 0, 1, HOUR), 0);
    let place = Arc::new(SharedFairLimiterBuilder::over(budget.clone()).hold(HOUR).build().unwrap());
    let mut callers = JoinSet::new();
    for _ in 0..100 {
        let place = place.clone();
        callers.spawn(async move { place.check("ann").await.unwrap().decision.allowed });
    }
    tokio::task::yield_now().await;
    budget.0.turns.add_permits(10);
    let allowed = callers.join_all().await.into_iter().filter(|allowed| *allowed).count();
    assert_eq!((allowed, budget.0.asked.load(Relaxed)), (16, 1));
}

#[tokio::test]
async fn asks_that_find_enough_in_hand_wait_for_nobody() {
    let budget = Told::new(granted(10, 100, 1, HOUR), 1);
    let place = Arc::new(SharedFairLimiterBuilder::over(budget.clone()).build().unwrap());
    assert!(place.check("ann").await.unwrap().decision.allowed);
    let other = place.clone();
    let waits = tokio::spawn(async move { other.check(Call::by("ann").cost(50)).await });
    tokio::task::yield_now().await;
    assert_eq!(budget.0.asked.load(Relaxed), 2, "someone waits for a reply");
    assert!(place.try_check("ann").unwrap().decision.allowed);
    assert!(place.try_check(Call::by("ann").cost(50)).is_none());
    waits.abort();
}

#[tokio::test]
async fn whoever_goes_away_leaves_the_others_served() {
    let budget = Told::new(granted(5, 0, 1, HOUR), 0);
    let place = Arc::new(SharedFairLimiterBuilder::over(budget.clone()).hold(HOUR).build().unwrap());
    let call = |place: Arc<SharedFairLimiter<Told>>| async move {
        place.check("ann").await.unwrap().decision.allowed
    };
    let [gone, stays] = [0; 2].map(|_| tokio::spawn(call(place.clone())));
    tokio::task::yield_now().await;
    gone.abort();
    budget.0.turns.add_permits(1);
    assert!(stays.await.unwrap());
    assert_eq!(place.stats().in_hand, 4);
}

#[tokio::test]
async fn an_outage_is_answered_as_chosen_and_labelled() {
    let away = || Err(StoreError::unavailable("away"));
    for (choice, allowed, label) in [
        (OnOutage::Closed, [false, false], Guarantee::Closed),
        (OnOutage::Open, [true, true], Guarantee::Open),
        (OnOutage::Local { nodes: 10.try_into().unwrap() }, [true, false], Guarantee::Local),
    ] {
        let place = SharedFairLimiterBuilder::over(Told::new(away(), 10)).on_outage(choice).build().unwrap();
        for allowed in allowed {
            let answer = place.check(Call::by("ann").cost(60)).await.unwrap();
            assert_eq!((answer.decision.allowed, answer.guarantee), (allowed, label), "{choice:?}");
            assert!(answer.outage.is_some());
        }
    }
    let broken = Told::new(Err(StoreError::misconfigured("wrong")), 10);
    let place = SharedFairLimiterBuilder::over(broken).on_outage(OnOutage::Open).build().unwrap();
    assert!(place.check("ann").await.is_err(), "no policy hides what is set up wrongly");
    assert_eq!(place.tally().errors, 1);
}

#[tokio::test]
async fn what_is_in_hand_is_spent_during_an_outage_and_dies_with_its_window() {
    let (budget, clock) =
        (Told::new(granted(10, 90, 1, Duration::from_secs(10)), 10), ManualClock::default());
    let place = SharedFairLimiterBuilder::over(budget.clone()).clock(clock.clone()).build().unwrap();
    assert!(place.check("ann").await.unwrap().decision.allowed);
    budget.say(Err(StoreError::unavailable("away")));
    assert!(place.check("ann").await.unwrap().decision.allowed);
    clock.advance(Duration::from_secs(10));
    assert_eq!(place.check("ann").await.unwrap().guarantee, Guarantee::Closed);
}

/// A flood of names finds its own places; whoever is pushed out finds its use where it left it.
#[tokio::test]
async fn tenants_beyond_the_cap_get_no_fresh_budget() {
    let store = Arc::new(MemoryStore::new());
    let place =
        SharedFairLimiter::by_quanta(store, "api", hour(100)).quantum(10).tenants_max(4).build().unwrap();
    let mut admitted = 0;
    for i in 0..1_000 {
        admitted += u64::from(place.check(&format!("tenant {i}")).await.unwrap().decision.allowed);
    }
    let stats = place.stats();
    assert!(admitted <= 100 && stats.tenants <= 4 && stats.displaced >= 996, "{admitted} {stats:?}");
}

#[test]
fn limits_that_cannot_be_shared_so_are_refused_where_they_are_built() {
    let store = || Arc::new(MemoryStore::new());
    let bucket = Limit::gcra(throttlekit::Rate::per_second(10)).unwrap();
    assert!(SharedFairLimiter::by_quanta(store(), "api", bucket).build().is_err());
    assert!(SharedFairLimiter::in_region(store(), "api", "us", bucket).build().is_err());
    let blink = Limit::fixed_window(10, Duration::from_millis(1)).unwrap();
    assert!(SharedFairLimiter::in_region(store(), "api", "us", blink).build().is_err());
    assert!(Quanta::new(store(), "api", hour(10)).is_ok());
}

/// It tells what the next answers go by, and to look at it gives nobody a place.
#[tokio::test]
async fn a_share_tells_weight_use_and_what_is_sure_and_costs_nothing() {
    let store = Arc::new(MemoryStore::new());
    let weights = |tenant: &[u8]| Weight::new(if tenant == b"acme" { 3 } else { 1 }).unwrap();
    let place = SharedFairLimiter::by_quanta(store, "api", hour(100)).weights(weights).build().unwrap();
    assert_eq!(place.share_of("acme"), None, "it has not asked");
    for (tenant, cost) in [("acme", 30), ("bob", 5)] {
        assert!(place.check(Call::by(tenant).cost(cost)).await.unwrap().decision.allowed);
    }
    let seen =
        |tenant: &str| place.share_of(tenant).map(|share| (share.weight.get(), share.used, share.guaranteed));
    assert_eq!((seen("acme"), seen("bob")), (Some((3, 30, 75)), Some((1, 5, 25))));
    assert_eq!((seen("carl"), place.stats().tenants), (None, 2));
}
