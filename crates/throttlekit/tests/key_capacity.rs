//! `key-capacity`: floods of keys that used to deny every new key, and the labels of responses beyond the
//! budget. `cargo xtask verify key-capacity` has the measured floods.
#![cfg(feature = "store")]

use std::time::Duration;

use throttlekit::clock::ManualClock;
use throttlekit::rate::Timestamp;
use throttlekit::store::MemoryStore;
use throttlekit::{Answer, Call, Guarantee, Limit, Limiter, Policy, SharedLimiter};

const HOUR: Duration = Duration::from_secs(3_600);
const NOON: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn five_an_hour() -> Limit {
    Limit::fixed_window(5, HOUR).unwrap()
}

fn store(limit: Limit, budget: Option<usize>) -> SharedLimiter<MemoryStore<ManualClock>> {
    let store = MemoryStore::with_clock(ManualClock::at(NOON));
    let store = if let Some(bytes) = budget { store.memory_budget(bytes) } else { store };
    SharedLimiter::new(store, "flood", limit).unwrap()
}

#[test]
fn key_capacity_one_request_each_by_many_keys_is_never_denied() {
    let limiter = Limiter::builder(five_an_hour()).clock(ManualClock::at(NOON)).build().unwrap();
    let first = |key: u32| limiter.check(&key.to_be_bytes());
    assert!((0..300_000).map(first).all(|decision| decision.allowed && decision.remaining == 4));
    assert_eq!(limiter.memory().estimated, 0);
}

#[tokio::test]
async fn key_capacity_invented_keys_at_full_cost_deny_no_honest_newcomer() {
    let limiter = store(Limit::fixed_window(100, HOUR).unwrap(), None);
    for key in 0..100_000_u32 {
        let answer = limiter.check(Call::by(&key.to_be_bytes()).cost(100)).await.unwrap();
        assert!(answer.decision.allowed);
    }
    for honest in 0..1_000_u64 {
        let Answer { decision, guarantee, .. } = limiter.check(&honest.to_be_bytes()).await.unwrap();
        assert_eq!((decision.allowed, decision.remaining, guarantee), (true, 99, Guarantee::Exact));
    }
}

/// A key is short by at most the bound in its label, and one that is not short is labeled as exact.
#[tokio::test]
async fn key_capacity_responses_beyond_the_budget_are_labeled_bounded() {
    for limit in [
        five_an_hour(),
        Limit::gcra(throttlekit::Rate::per_hour(5)).unwrap(),
        Limit::sliding_window(5, HOUR).unwrap(),
        Limit::sliding_log(5, HOUR).unwrap(),
    ] {
        let limiter = store(limit, Some(64 << 10));
        let (mut exact, mut bounded) = (0, 0);
        for key in 0..10_000_u32 {
            let Answer { decision, guarantee, .. } = limiter.check(&key.to_be_bytes()).await.unwrap();
            let short = if decision.allowed { 4 - decision.remaining } else { 5 - decision.remaining };
            match guarantee {
                Guarantee::Exact => exact += u32::from(short == 0),
                Guarantee::Bounded(units) => bounded += u32::from(short <= units),
                other => panic!("{limit:?}: {other:?}"),
            }
        }
        assert_eq!(exact + bounded, 10_000, "{limit:?}: a key was short beyond its label");
        assert!(bounded > 1_000, "{limit:?}: {bounded} of 10,000 were estimated");
        let tally = limiter.stats().answers;
        assert_eq!((tally.exact, tally.bounded), (u64::from(exact), u64::from(bounded)), "{limit:?}");
        let memory = limiter.store().memory();
        assert!(
            memory.used_bytes <= memory.budget_bytes && memory.estimated > 1_000,
            "{limit:?}: {memory:?}"
        );
    }
}

#[test]
fn key_capacity_a_policy_labels_its_responses_beyond_the_budget() {
    for limit in [five_an_hour(), Limit::sliding_window(5, HOUR).unwrap()] {
        let policy = Policy::builder("flood")
            .rate(limit)
            .memory_budget(64 << 10)
            .clock(ManualClock::at(NOON))
            .build()
            .unwrap();
        let mut bounded = 0;
        for key in 0..10_000_u32 {
            let admission = policy.admit(&key.to_be_bytes()[..]);
            let (decision, guarantee) = (admission.decision(), admission.guarantee);
            drop(admission);
            let short = if decision.allowed { 4 - decision.remaining } else { 5 - decision.remaining };
            match guarantee {
                Guarantee::Exact => assert_eq!(short, 0, "key {key} of {limit:?}"),
                Guarantee::Bounded(units) => assert!(short <= units, "key {key} of {limit:?}: {short}"),
                other => panic!("{limit:?}: {other:?}"),
            }
            bounded += u32::from(guarantee != Guarantee::Exact);
        }
        assert!(bounded > 1_000, "{limit:?}: {bounded} of 10,000 were estimated");
    }
}

/// A log of 10,000 admissions takes 160 KB: budgets count bytes, and states that outgrow them are estimated.
#[test]
fn key_capacity_counts_bytes_and_not_keys() {
    let clock = ManualClock::at(NOON);
    let limit = Limit::sliding_log(10_000, HOUR).unwrap();
    let limiter = Limiter::builder(limit).clock(clock.clone()).memory_budget(1 << 20).build().unwrap();
    let mut admitted = [0; 50];
    for turn in 0..2_000_u32 {
        clock.advance(Duration::from_millis(1));
        for (key, admitted) in admitted.iter_mut().enumerate() {
            *admitted += u32::from(limiter.check(&[key as u8, 0]).allowed);
        }
        let memory = limiter.memory();
        assert!(memory.used_bytes <= memory.budget_bytes, "turn {turn}: {memory:?}");
    }
    assert!(limiter.memory().estimated > 0);
    assert!(admitted.iter().all(|admitted| *admitted > 1_500), "{admitted:?}");
}
