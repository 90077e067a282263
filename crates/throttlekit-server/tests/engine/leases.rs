//! As many leases as may be held, however many ask at once; and who is refused for that is charged nothing.

use std::time::Duration;

use throttlekit_server::access::Principal;
use throttlekit_server::engine::{Backend, Ended, Engine, EngineOptions, Refusal};

use super::{ask, file};

/// A share of something, so that admissions wait for the first quantum of it, and a budget that shows who was charged.
const POLICIES: &str = "  once: {rate: {algorithm: fixed_window, limit: 1, per: 1d}, concurrency: {limit: 9}}
  p: {concurrency: {limit: 1000, scope: key}, cost: {budget: 10000, per: 1d}, fair: {limit: 100000, per: 1d}}
  q: {concurrency: {limit: 1000, scope: key, lease_for: 9s}, cost: {budget: 10000, per: 1d}, fair: {limit: 100000, per: 1d}}\n";

fn holding(leases_max: u32, leases_per_principal_max: u32) -> Engine {
    let options =
        EngineOptions { leases_max, leases_per_principal_max, ..EngineOptions::over(Backend::memory()) };
    Engine::start(options, file(POLICIES)).unwrap()
}

/// How many of so many admissions at once were given a lease. The others were refused.
async fn admitted(engine: &Engine, asks: usize, who: impl Fn(usize) -> Principal) -> usize {
    let each = (0..asks).map(|number| {
        let (engine, who) = (engine.clone(), who(number));
        let policy = if number % 2 == 0 { "p" } else { "q" };
        tokio::spawn(async move { engine.admit(&who, ask(policy, "k", 10), 1.0, None).await })
    });
    let mut leases = 0;
    for answer in each.collect::<Vec<_>>() {
        match answer.await.unwrap() {
            Ok(admitted) => leases += usize::from(admitted.lease.is_some()),
            Err(refusal) => assert!(matches!(refusal, Refusal::TooMany(_)), "{refusal}"),
        }
    }
    leases
}

async fn charged(engine: &Engine) -> u64 {
    let mut used = 0;
    for policy in ["p", "q"] {
        used += 10_000 - engine.peek(ask(policy, "k", 1)).await.unwrap().decision.remaining;
    }
    used
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_at_once_do_not_go_over_what_one_caller_may_hold() {
    let engine = holding(1_000, 7);
    assert_eq!(admitted(&engine, 200, |_| Principal::named("ada")).await, 7);
    assert_eq!(engine.leases_held(), 7);
    assert_eq!(charged(&engine).await, 70, "who was refused paid nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_at_once_do_not_go_over_what_the_server_may_hold_over_all_lives_of_leases() {
    let engine = holding(9, 1_000);
    assert_eq!(admitted(&engine, 200, |number| Principal::named(&format!("u{number}"))).await, 9);
    assert_eq!(engine.leases_held(), 9);
    assert_eq!(charged(&engine).await, 90, "a server that is full denies before it charges");
}

#[tokio::test]
async fn who_finds_no_room_is_refused_before_the_store_is_asked() {
    let engine = holding(1, 1);
    let calls =
        |engine: &Engine| engine.policies().iter().map(|policy| policy.store_calls).collect::<Vec<_>>();
    engine.admit(&Principal::named("ada"), ask("p", "k", 1), 1.0, None).await.unwrap().lease.unwrap();
    let before = calls(&engine);
    assert!(before.iter().any(|calls| *calls > 0), "the first one asked it");
    for who in ["ada", "eve"] {
        for policy in ["p", "q"] {
            let refused = engine.admit(&Principal::named(who), ask(policy, "k", 1), 1.0, None).await;
            assert!(matches!(refused, Err(Refusal::TooMany(_))), "{refused:?}");
        }
    }
    assert_eq!(calls(&engine), before);
}

#[tokio::test]
async fn a_place_is_free_again_after_a_denial_a_release_and_an_end() {
    let engine = holding(1, 1);
    let who = Principal::named("ada");
    let once = engine.admit(&who, ask("once", "k", 1), 1.0, None).await.unwrap().lease.unwrap();
    assert!(engine.release(&who, once.id, Ended::default()));
    for _ in 0..3 {
        assert!(engine.admit(&who, ask("once", "k", 1), 1.0, None).await.unwrap().lease.is_none(), "denied");
    }
    for _ in 0..3 {
        let held = engine.admit(&who, ask("p", "k", 1), 1.0, None).await.unwrap().lease.unwrap();
        assert!(
            engine.admit(&who, ask("q", "k", 1), 1.0, None).await.is_err(),
            "another life, the same place"
        );
        assert!(engine.release(&who, held.id, Ended::default()));
        assert_eq!(engine.leases_held(), 0);
    }
    let held = engine.admit(&who, ask("p", "k", 1), 1.0, None).await.unwrap().lease.unwrap();
    tokio::time::sleep(held.lives + Duration::from_millis(50)).await;
    assert!(engine.admit(&who, ask("p", "k", 1), 1.0, None).await.unwrap().lease.is_some());
}

#[tokio::test]
async fn leases_are_counted_by_policy_as_they_come_and_go() {
    let engine = holding(100, 100);
    let who = Principal::named("ada");
    let held = |engine: &Engine| engine.guards().iter().map(|guard| guard.in_flight).collect::<Vec<_>>();
    let mut leases = Vec::new();
    for policy in ["p", "p", "q"] {
        leases.push(engine.admit(&who, ask(policy, "k", 1), 1.0, None).await.unwrap().lease.unwrap().id);
    }
    assert_eq!((held(&engine), engine.leases_held()), (vec![0, 2, 1], 3));
    engine.release(&who, leases[0], Ended::default());
    assert_eq!((held(&engine), engine.leases_held()), (vec![0, 1, 1], 2));
    engine.reload(file("  p: {concurrency: {limit: 5, scope: key}}\n")).await.unwrap();
    assert_eq!((held(&engine), engine.leases_held()), (vec![1], 2), "those of a policy that is gone go on");
    engine.drain(Duration::ZERO).await;
    assert_eq!((held(&engine), engine.leases_held()), (vec![0], 0));
}
