//! Calls of Admit without a cost: what they reserve is learned from what earlier ones used.

use throttlekit_server::internals::engine::{Admitted, CostHint, WorkLease};

use super::*;

const LEARNED: &str = "  chat:\n    cost: {budget: 1000, per: 1d}\n    learn: {}\n";

fn terms(hint: CostHint<'_>) -> WorkTerms<'_> {
    WorkTerms { learned: Some(hint), ..WorkTerms::default() }
}

async fn admit(engine: &Engine, key: &str, hint: CostHint<'_>) -> Admitted {
    engine.admit(&Principal::anyone(), ask("chat", key, 1), terms(hint)).await.unwrap()
}

async fn admit_unhinted(engine: &Engine, key: &str) -> Admitted {
    admit(engine, key, CostHint::default()).await
}

fn release(engine: &Engine, lease: WorkLease, how: Ended) {
    assert!(engine.release(&Principal::anyone(), lease.id, how));
}

fn used(tokens: u64) -> Ended {
    Ended { actual_cost: Some(tokens), ..Ended::default() }
}

async fn left(engine: &Engine, key: &str) -> u64 {
    engine.peek(ask("chat", key, 1)).await.unwrap().decision.remaining
}

/// Waits until the returns have reached the store, and takes back what the key used.
async fn fresh_budget(engine: &Engine, key: &str) {
    let until = tokio::time::Instant::now() + Duration::from_secs(5);
    while engine.is_settling() {
        assert!(tokio::time::Instant::now() < until, "the returns did not end");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    engine.reset(ask("chat", key, 1)).await.unwrap();
}

/// Runs works of this many tokens for a key, each on a fresh budget.
async fn teach(engine: &Engine, key: &str, hint: CostHint<'_>, how: Ended) {
    for _ in 0..60 {
        let lease = admit(engine, key, hint).await.lease.unwrap();
        release(engine, lease, how);
        fresh_budget(engine, key).await;
    }
}

#[tokio::test]
async fn a_call_without_a_cost_reserves_what_earlier_ones_of_its_key_and_class_used() {
    let engine = engine(LEARNED);
    let fresh = admit_unhinted(&engine, "acme").await.reserved;
    assert_eq!(fresh, 31, "one part in 32 of the budget, while nothing is known");
    fresh_budget(&engine, "acme").await;
    teach(&engine, "acme", CostHint::default(), used(100)).await;
    let admitted = admit_unhinted(&engine, "acme").await;
    assert!((80..=100).contains(&admitted.reserved), "{}", admitted.reserved);
    assert_eq!(left(&engine, "acme").await, 1_000 - admitted.reserved);
    let class = CostHint { class: "large", ..CostHint::default() };
    assert_eq!(admit(&engine, "acme", class).await.reserved, fresh);
    assert_eq!(admit_unhinted(&engine, "other").await.reserved, fresh);
    let hint = CostHint { input_tokens: 300, max_tokens: Some(20), class: "" };
    assert_eq!(admit(&engine, "acme", hint).await.reserved, 320);
}

#[tokio::test]
async fn a_call_with_a_cost_reserves_it() {
    let engine = engine(LEARNED);
    teach(&engine, "acme", CostHint::default(), used(100)).await;
    let admitted =
        engine.admit(&Principal::anyone(), ask("chat", "acme", 700), WorkTerms::default()).await.unwrap();
    assert_eq!((admitted.reserved, left(&engine, "acme").await), (0, 300));
}

#[tokio::test]
async fn without_learn_a_call_without_a_cost_costs_one() {
    let engine = engine("  chat: {concurrency: {limit: 9}, cost: {budget: 1000, per: 1d}}\n");
    let admitted = admit_unhinted(&engine, "acme").await;
    assert_eq!((admitted.reserved, left(&engine, "acme").await), (0, 999));
}

#[tokio::test]
async fn work_that_failed_or_is_not_representative_teaches_nothing() {
    let engine = engine(LEARNED);
    teach(&engine, "acme", CostHint::default(), used(100)).await;
    let before = admit_unhinted(&engine, "acme").await;
    release(&engine, before.lease.unwrap(), Ended { dropped: true, ..used(0) });
    for how in [Ended { dropped: true, ..used(5) }, Ended { ignored: true, ..used(5) }, Ended::default()] {
        teach(&engine, "acme", CostHint::default(), how).await;
    }
    assert_eq!(admit_unhinted(&engine, "acme").await.reserved, before.reserved);
}

#[tokio::test]
async fn debits_teach_what_a_release_does_not_report() {
    let engine = engine(LEARNED);
    for _ in 0..60 {
        let lease = admit_unhinted(&engine, "acme").await.lease.unwrap();
        for _ in 0..10 {
            assert!(engine.debit_held(&Principal::anyone(), lease.id, 10).await.unwrap().decision.allowed);
        }
        release(&engine, lease, Ended::default());
        fresh_budget(&engine, "acme").await;
    }
    let reserved = admit_unhinted(&engine, "acme").await.reserved;
    assert!((80..=100).contains(&reserved), "{reserved}");
}

#[tokio::test]
async fn the_last_tokens_are_reserved_if_they_are_a_twentieth_of_the_budget() {
    let engine = engine(LEARNED);
    teach(&engine, "acme", CostHint::default(), used(100)).await;
    let debit = async |tokens| engine.debit(ask("chat", "acme", tokens), None).await.unwrap();
    debit(949).await;
    let admitted = admit_unhinted(&engine, "acme").await;
    assert_eq!(admitted.reserved, 51);
    release(&engine, admitted.lease.unwrap(), Ended { ignored: true, ..used(0) });
    fresh_budget(&engine, "acme").await;
    debit(951).await;
    let denied = admit_unhinted(&engine, "acme").await;
    assert!(denied.lease.is_none());
    assert!(matches!(denied.answer.decision.retry_after, Retry::After(_)), "{:?}", denied.answer);
    assert_eq!(left(&engine, "acme").await, 49, "a denial charges nothing");
}

#[tokio::test]
async fn a_denial_waits_for_tokens_that_other_work_may_return() {
    let engine = engine(LEARNED);
    let who = Principal::anyone();
    teach(&engine, "acme", CostHint::default(), used(100)).await;
    let first = admit_unhinted(&engine, "acme").await.lease.unwrap();
    let second = admit_unhinted(&engine, "acme").await;
    let rest = left(&engine, "acme").await;
    engine.debit(ask("chat", "acme", rest), None).await.unwrap();
    let denied = admit_unhinted(&engine, "acme").await.answer.decision;
    assert_eq!((denied.allowed, denied.retry_after), (false, Retry::OnRelease));
    let beyond = engine.debit_held(&who, first.id, 200).await.unwrap().decision;
    assert_eq!((beyond.allowed, beyond.retry_after), (false, Retry::OnRelease), "the second may return some");
    let other = engine.debit_held(&who, second.lease.unwrap().id, second.reserved).await.unwrap();
    assert!(other.decision.allowed, "it was reserved");
    // Work that taught counts as held until its task has seen the end of its return.
    let nobody_holds = async || {
        while engine.debit_held(&who, first.id, 200).await.unwrap().decision.retry_after == Retry::OnRelease {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), nobody_holds()).await.expect("nobody holds any more");
    let beyond = engine.debit_held(&who, first.id, 200).await.unwrap().decision;
    assert!(!beyond.allowed && matches!(beyond.retry_after, Retry::After(_)), "{beyond:?}");
}

#[tokio::test]
async fn a_budget_alone_admits_work_only_if_it_learns() {
    let engine = engine("  chat: {cost: {budget: 1000, per: 1d}}\n");
    let refused = engine.admit(&Principal::anyone(), ask("chat", "k", 1), WorkTerms::default()).await;
    assert!(matches!(refused, Err(Refusal::Unsupported(_))), "{refused:?}");
    let engine = super::engine(LEARNED);
    let refused = engine.check(ask("chat", "k", 1)).await;
    assert!(matches!(refused, Err(Refusal::Unsupported(_))), "it would never be settled: {refused:?}");
}

#[tokio::test]
async fn a_reload_keeps_what_was_learned_unless_the_budgets_change() {
    let engine = engine(LEARNED);
    teach(&engine, "acme", CostHint::default(), used(100)).await;
    let reserved = async || {
        let admitted = admit_unhinted(&engine, "acme").await;
        release(&engine, admitted.lease.unwrap(), Ended { ignored: true, ..used(0) });
        fresh_budget(&engine, "acme").await;
        admitted.reserved
    };
    let before = reserved().await;
    engine.reload(file(&format!("{LEARNED}    description: The same.\n"))).await.unwrap();
    assert_eq!(reserved().await, before);
    engine.reload(file(&format!("{LEARNED}    rate: {{limit: 100, per: 1s}}\n"))).await.unwrap();
    assert_eq!(reserved().await, before);
    engine.reload(file(&LEARNED.replace("1000", "2000"))).await.unwrap();
    assert_eq!(reserved().await, 62, "one part in 32 of the new budget");
}

#[tokio::test]
async fn a_class_and_an_input_have_maxima() {
    let engine = engine(LEARNED);
    let class = "x".repeat(129);
    let hints = [
        CostHint { class: &class, ..CostHint::default() },
        CostHint { input_tokens: u64::MAX, ..CostHint::default() },
    ];
    for hint in hints {
        let refused = engine.admit(&Principal::anyone(), ask("chat", "k", 1), terms(hint)).await;
        assert!(matches!(refused, Err(Refusal::Invalid(_))), "{refused:?}");
    }
    let denied = admit(&engine, "k", CostHint { input_tokens: 5_000, ..CostHint::default() }).await;
    assert_eq!(denied.answer.decision.retry_after, Retry::Never, "it is more than the whole budget");
}
