//! A participant over sources that a test scripts: waiting, outages, expiry.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::fair::Weight;
use throttlekit_core::lease::Epoch;
use throttlekit_core::rate::Limit;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::SharedFairLimiter;
use super::builder::Plan;
use super::source::{Granting, Source};
use crate::clock::{LeaseClock, ManualClock};
use crate::store::{Background, PoolGrant, RegionGrant, StoreError};
use crate::{Call, Guarantee, OnOutage};

const HOUR: Duration = Duration::from_secs(3_600);

fn hour(units: u64) -> Limit {
    Limit::fixed_window(units, HOUR).unwrap()
}

/// A budget with scripted responses.
#[derive(Clone)]
struct Told(Arc<Script>);

struct Script {
    limit: Limit,
    answer: std::sync::Mutex<Result<RegionGrant, StoreError>>,
    asked: AtomicU64,
    /// A request takes one before it gets its response.
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

impl Source for Told {
    /// The test's own runtime, so that its turns are those of the store; the driver thread where a test has none.
    fn background(&self) -> Background {
        let driver = Background::default();
        tokio::runtime::Handle::try_current().map_or(driver.clone(), |runtime| driver.on(runtime))
    }

    fn more(&self, _: Weight, _: u64) -> Granting<'_> {
        self.0.asked.fetch_add(1, Relaxed);
        Box::pin(async {
            self.0.turns.acquire().await.unwrap().forget();
            self.0.answer.lock().unwrap().clone()
        })
    }

    fn limit(&self) -> &Limit {
        &self.0.limit
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::Exact
    }
}

fn granted(granted: u64, more: u64, epoch: u64, lives: Duration) -> Result<RegionGrant, StoreError> {
    let grant = PoolGrant { granted, more, epoch: Epoch(epoch), lives };
    Ok(RegionGrant { now: Timestamp::from_millis(7), grant })
}

fn over<C: LeaseClock + 'static>(budget: &Told, plan: Plan<C>) -> SharedFairLimiter<C> {
    plan.over(Box::new(budget.clone())).unwrap()
}

/// Creates a participant that does not retry after a denial.
fn slow(budget: &Told) -> SharedFairLimiter {
    over(budget, Plan { hold: HOUR, ..Plan::default() })
}

/// One reply of sixteen units, a hundred callers: sixteen pass, not sixteen for each.
#[tokio::test]
async fn a_grant_is_credited_once_for_any_number_of_waiters() {
    let budget = Told::new(granted(16, 0, 1, HOUR), 0);
    let place = Arc::new(slow(&budget));
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
async fn requests_that_find_enough_units_in_hand_do_not_wait() {
    let budget = Told::new(granted(10, 100, 1, HOUR), 1);
    let place = Arc::new(over(&budget, Plan::default()));
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
async fn a_caller_that_disconnects_leaves_the_others_served() {
    let budget = Told::new(granted(5, 0, 1, HOUR), 0);
    let place = Arc::new(slow(&budget));
    let call =
        |place: Arc<SharedFairLimiter>| async move { place.check("ann").await.unwrap().decision.allowed };
    let [gone, stays] = [0; 2].map(|_| tokio::spawn(call(place.clone())));
    tokio::task::yield_now().await;
    gone.abort();
    budget.0.turns.add_permits(1);
    assert!(stays.await.unwrap());
    assert_eq!(place.stats().in_hand, 4);
}

#[tokio::test]
async fn an_outage_uses_the_configured_fallback_and_is_labeled() {
    let away = || Err(StoreError::unavailable("away"));
    for (choice, allowed, label) in [
        (OnOutage::Closed, [false, false], Guarantee::Closed),
        (OnOutage::Open, [true, true], Guarantee::Open),
        (OnOutage::Local { nodes: 10.try_into().unwrap() }, [true, false], Guarantee::Local),
    ] {
        let place = over(&Told::new(away(), 10), Plan { on_outage: choice, ..Plan::default() });
        for allowed in allowed {
            let answer = place.check(Call::by("ann").cost(60)).await.unwrap();
            assert_eq!((answer.decision.allowed, answer.guarantee), (allowed, label), "{choice:?}");
            assert!(answer.outage.is_some());
        }
    }
    let broken = Told::new(Err(StoreError::misconfigured("wrong")), 10);
    let place = over(&broken, Plan { on_outage: OnOutage::Open, ..Plan::default() });
    assert!(place.check("ann").await.is_err(), "no policy hides what is set up wrongly");
    assert_eq!(place.tally().errors, 1);
}

#[tokio::test]
async fn units_in_hand_are_spent_during_an_outage_and_expire_with_their_window() {
    let (budget, clock) =
        (Told::new(granted(10, 90, 1, Duration::from_secs(10)), 10), ManualClock::default());
    let place = over(&budget, Plan::default().by(clock.clone()));
    assert!(place.check("ann").await.unwrap().decision.allowed);
    budget.say(Err(StoreError::unavailable("away")));
    assert!(place.check("ann").await.unwrap().decision.allowed);
    clock.advance(Duration::from_secs(10));
    assert_eq!(place.check("ann").await.unwrap().guarantee, Guarantee::Closed);
}
