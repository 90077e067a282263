//! As many leases as may be held, however many ask at once; and who is refused for that is charged nothing.

use std::time::Duration;

use throttlekit_server::internals::access::Principal;
use throttlekit_server::internals::engine::{Backend, Ended, Engine, EngineOptions, Refusal, WorkTerms};

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

/// Returns how many of `asks` concurrent admissions got a lease. The others were rejected.
async fn admitted(engine: &Engine, asks: usize, who: impl Fn(usize) -> Principal) -> usize {
    let each = (0..asks).map(|number| {
        let (engine, who) = (engine.clone(), who(number));
        let policy = if number % 2 == 0 { "p" } else { "q" };
        tokio::spawn(async move { engine.admit(&who, ask(policy, "k", 10), WorkTerms::default()).await })
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
    engine
        .admit(&Principal::named("ada"), ask("p", "k", 1), WorkTerms::default())
        .await
        .unwrap()
        .lease
        .unwrap();
    let before = calls(&engine);
    assert!(before.iter().any(|calls| *calls > 0), "the first one asked it");
    for who in ["ada", "eve"] {
        for policy in ["p", "q"] {
            let refused =
                engine.admit(&Principal::named(who), ask(policy, "k", 1), WorkTerms::default()).await;
            assert!(matches!(refused, Err(Refusal::TooMany(_))), "{refused:?}");
        }
    }
    assert_eq!(calls(&engine), before);
}

#[tokio::test]
async fn a_place_is_free_again_after_a_denial_a_release_and_an_end() {
    let engine = holding(1, 1);
    let who = Principal::named("ada");
    let once = engine.admit(&who, ask("once", "k", 1), WorkTerms::default()).await.unwrap().lease.unwrap();
    assert!(engine.release(&who, once.id, Ended::default()));
    for _ in 0..3 {
        assert!(
            engine.admit(&who, ask("once", "k", 1), WorkTerms::default()).await.unwrap().lease.is_none(),
            "denied"
        );
    }
    for _ in 0..3 {
        let held = engine.admit(&who, ask("p", "k", 1), WorkTerms::default()).await.unwrap().lease.unwrap();
        assert!(
            engine.admit(&who, ask("q", "k", 1), WorkTerms::default()).await.is_err(),
            "another life, the same place"
        );
        assert!(engine.release(&who, held.id, Ended::default()));
        assert_eq!(engine.leases_held(), 0);
    }
    let held = engine.admit(&who, ask("p", "k", 1), WorkTerms::default()).await.unwrap().lease.unwrap();
    tokio::time::sleep(held.lives + Duration::from_millis(50)).await;
    assert!(engine.admit(&who, ask("p", "k", 1), WorkTerms::default()).await.unwrap().lease.is_some());
}

#[tokio::test]
async fn leases_are_counted_by_policy_as_they_come_and_go() {
    let engine = holding(100, 100);
    let who = Principal::named("ada");
    let held = |engine: &Engine| engine.guards().iter().map(|guard| guard.in_flight).collect::<Vec<_>>();
    let mut leases = Vec::new();
    for policy in ["p", "p", "q"] {
        leases.push(
            engine.admit(&who, ask(policy, "k", 1), WorkTerms::default()).await.unwrap().lease.unwrap().id,
        );
    }
    assert_eq!((held(&engine), engine.leases_held()), (vec![0, 2, 1], 3));
    engine.release(&who, leases[0], Ended::default());
    assert_eq!((held(&engine), engine.leases_held()), (vec![0, 1, 1], 2));
    engine.reload(file("  p: {concurrency: {limit: 5, scope: key}}\n")).await.unwrap();
    assert_eq!((held(&engine), engine.leases_held()), (vec![1], 2), "those of a policy that is gone go on");
    engine.drain(Duration::ZERO).await;
    assert_eq!((held(&engine), engine.leases_held()), (vec![0], 0));
}

fn recovering(policies: &str) -> Engine {
    let options = EngineOptions { recovers: true, ..EngineOptions::over(Backend::memory()) };
    Engine::start(options, file(policies)).unwrap()
}

#[tokio::test]
async fn after_a_restart_slots_are_denied_with_a_wait_until_the_leases_before_have_ended_and_nothing_is_charged()
 {
    let lease_for = Duration::from_millis(1_500);
    for scope in ["instance", "instance_key", "key"] {
        let engine = recovering(&format!(
            "  p: {{concurrency: {{limit: 3, scope: {scope}, lease_for: 1500ms}}, cost: {{budget: 100, per: 1d}}}}\n"
        ));
        let who = Principal::named("ada");
        let started = tokio::time::Instant::now();
        let denied = engine.admit(&who, ask("p", "k", 10), WorkTerms::default()).await.unwrap();
        let wait = denied.answer.decision.retry_after.wait().expect("it names a wait");
        assert!(denied.lease.is_none() && !denied.answer.decision.allowed, "{scope}");
        assert!(wait <= lease_for && wait > lease_for / 2, "{scope}: {wait:?}");
        assert_eq!(denied.answer.binding_axis, Some(throttlekit::Axis::Concurrency));
        assert_eq!(engine.peek(ask("p", "k", 1)).await.unwrap().decision.remaining, 100, "{scope}");
        assert!(engine.guards()[0].fenced, "{scope}");
        tokio::time::sleep(wait).await;
        assert!(
            engine.admit(&who, ask("p", "k", 10), WorkTerms::default()).await.unwrap().lease.is_some(),
            "{scope}"
        );
        assert!(started.elapsed() >= wait && !engine.guards()[0].fenced, "{scope}");
    }
}

#[tokio::test]
async fn a_policy_without_slots_does_not_wait_after_a_restart() {
    let engine = recovering("  p: {rate: {limit: 5, per: 1s}, cost: {budget: 100, per: 1d}}\n");
    let admitted =
        engine.admit(&Principal::named("ada"), ask("p", "k", 1), WorkTerms::default()).await.unwrap();
    assert!(admitted.answer.decision.allowed);
}

/// A client whose lease is longer than the grace works on after the server has ended: its slot on the store stays taken.
#[tokio::test]
async fn a_lease_that_outlives_the_server_keeps_its_slot_on_the_store() {
    let store = Backend::memory();
    let start = |policies: &str| Engine::start(EngineOptions::over(store.clone()), file(policies)).unwrap();
    let policies = "  p: {concurrency: {limit: 1, scope: key, lease_for: 30s}}\n";
    let (first, who) = (start(policies), Principal::named("ada"));
    first.admit(&who, ask("p", "k", 1), WorkTerms::default()).await.unwrap().lease.unwrap();
    first.drain(Duration::ZERO).await;
    assert_eq!(first.leases_held(), 0);
    drop(first);
    let second = start(policies);
    assert!(second.admit(&who, ask("p", "k", 1), WorkTerms::default()).await.unwrap().lease.is_none());
}

/// Slots that the store counts are counted on when the length of a lease changes, each kept for as long as its own.
#[tokio::test]
async fn a_changed_lease_for_keeps_the_count_of_slots_on_the_store() {
    let engine = holding(100, 100);
    engine.reload(file("  s: {concurrency: {limit: 2, scope: key, lease_for: 20s}}\n")).await.unwrap();
    let who = Principal::named("ada");
    let admit = async || engine.admit(&who, ask("s", "k", 1), WorkTerms::default()).await.unwrap().lease;
    assert!(admit().await.is_some());
    let reloaded = engine.reload(file("  s: {concurrency: {limit: 2, scope: key, lease_for: 40s}}\n")).await;
    assert!(reloaded.unwrap().warnings.is_empty(), "they are not counted from zero");
    assert_eq!(admit().await.map(|held| held.lives), Some(Duration::from_secs(40)));
    assert!(admit().await.is_none(), "two are held, whatever their leases");
}
