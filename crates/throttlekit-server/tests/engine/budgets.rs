//! Several token budgets of one call, and trees of runs.

use throttlekit::Axis;
use throttlekit::admit::LimitName;
use throttlekit::store::DebitId;
use throttlekit_server::internals::engine::Answered;

use super::*;

const NESTED: &str = "  chat:
    cost:
      - {name: org, budget: 1000, per: 1d}
      - {name: user, budget: 100, per: 1d, by: 1}
  agent: {cost: {budget: 100, per: total, by: [0, 1, 2]}}
  work: {concurrency: {limit: 9}, cost: [{budget: 200, per: 1d}, {name: run, budget: 100, per: total, by: [1, 2]}]}\n";

fn of<'a>(policy: &'a str, key: &'a str, others: &'a [&'a [u8]], cost: u64) -> PolicyCall<'a> {
    PolicyCall { others, ..ask(policy, key, cost) }
}

async fn left(engine: &Engine, policy: &str, key: &str, others: &[&[u8]]) -> u64 {
    engine.peek(of(policy, key, others, 1)).await.unwrap().decision.remaining
}

#[tokio::test]
async fn a_debit_is_charged_to_every_budget_or_to_none() {
    let engine = engine(NESTED);
    let debit = async |user: &str, tokens| {
        engine.debit(of("chat", "acme", &[user.as_bytes()], tokens), None).await.unwrap().decision
    };
    assert_eq!(debit("ann", 90).await.remaining, 10);
    assert!(debit("ann", 30).await.allowed, "ten are left: the debit that crosses the budget passes");
    assert!(!debit("ann", 30).await.allowed);
    assert_eq!(left(&engine, "chat", "acme", &[b"ben"]).await, 100);
    for user in ["ben", "cem", "dan"] {
        debit(user, 293).await;
    }
    assert_eq!(debit("eve", 1).await.remaining, 0, "120 and 3 · 293 are the organization's, one is left");
    assert!(!debit("fay", 1).await.allowed);
    assert_eq!(left(&engine, "chat", "other", &[b"fay"]).await, 100, "what was denied was charged to none");
}

/// Which of several budgets denied, by its name in the policy file.
#[tokio::test]
async fn a_denial_names_the_budget_that_denied() {
    let engine = engine(NESTED);
    let name = |answer: Answered| (answer.binding_axis, answer.limit_name.map(LimitName::as_str));
    let debit = async |user: &str, tokens, id| {
        name(engine.debit(of("chat", "acme", &[user.as_bytes()], tokens), id).await.unwrap())
    };
    let id = |number| Some(DebitId { stream: 7, number });
    assert_eq!(debit("ann", 100, None).await, (None, None));
    assert_eq!(debit("ann", 1, None).await, (Some(Axis::Cost), Some("user")));
    assert_eq!(debit("ann", 1, id(1)).await, (Some(Axis::Cost), Some("user")), "with an idempotency key");
    for user in ["ben", "cem", "dan"] {
        debit(user, 300, None).await;
    }
    assert_eq!(debit("eve", 1, None).await, (Some(Axis::Cost), Some("org")));
    let both = engine.peek(of("chat", "acme", &[b"ann"], 1)).await.unwrap();
    assert_eq!(name(both), (Some(Axis::Cost), Some("org")), "of two with one wait, the first");

    let who = Principal::anyone();
    let admit = async |key: &str, cost| {
        engine.admit(&who, of("work", key, &[b"run"], cost), WorkTerms::default()).await.unwrap()
    };
    let lease = admit("acme", 90).await.lease.unwrap().id;
    assert_eq!(name(admit("umbrella", 20).await.answer), (Some(Axis::Cost), Some("run")));
    assert_eq!(name(engine.debit_held(&who, lease, 90).await.unwrap()), (None, None), "90 are covered");
    assert_eq!(name(engine.debit_held(&who, lease, 20).await.unwrap()), (None, None), "it crosses the edge");
    assert_eq!(name(engine.debit_held(&who, lease, 20).await.unwrap()), (Some(Axis::Cost), Some("run")));
    let other = engine.admit(&who, of("work", "acme", &[b"new"], 95), WorkTerms::default()).await.unwrap();
    assert_eq!(name(other.answer), (Some(Axis::Cost), None), "the first budget has no name");
}

#[tokio::test]
async fn a_debit_of_several_budgets_with_an_id_counts_once() {
    let engine = engine(NESTED);
    let id = |number| Some(DebitId { stream: 7, number });
    for (number, left) in [(1, 60), (1, 60), (2, 20), (2, 20), (1, 20)] {
        let debit = engine.debit(of("chat", "acme", &[b"ann"], 40), id(number)).await.unwrap();
        assert!(debit.decision.allowed);
        assert_eq!(debit.decision.remaining, left, "{number}");
    }
    assert_eq!(left(&engine, "chat", "acme", &[b"ben"]).await, 100);
    let other = engine.debit(of("chat", "umbrella", &[b"ann"], 15), id(1)).await.unwrap();
    assert_eq!(other.decision.remaining, 5, "debits of other keys have ids of their own");
}

#[tokio::test]
async fn runs_draw_on_themselves_and_on_their_parents() {
    let engine = engine(NESTED);
    let debit = async |keys: [&str; 3], tokens| {
        let others = [keys[1].as_bytes(), keys[2].as_bytes()];
        engine.debit(of("agent", keys[0], &others, tokens), None).await.unwrap().decision
    };
    assert_eq!(debit(["root", "", ""], 10).await.remaining, 90);
    assert_eq!(debit(["root", "root", "root"], 10).await.remaining, 80, "a key counts once");
    assert_eq!(debit(["child", "root", ""], 30).await.remaining, 50);
    assert_eq!(debit(["leaf", "child", "root"], 40).await.remaining, 10);
    assert!(debit(["other", "root", ""], 25).await.allowed);
    let denied = debit(["leaf", "child", "root"], 1).await;
    assert_eq!((denied.allowed, denied.retry_after), (false, throttlekit::Retry::Never));
    assert_eq!(left(&engine, "agent", "leaf", &[]).await, 60, "what was denied was charged to none");
    assert_eq!(left(&engine, "agent", "child", &[]).await, 30);
}

#[tokio::test]
async fn an_admission_reserves_and_settles_all_budgets_together() {
    let engine = engine(NESTED);
    let who = Principal::anyone();
    let admit = async |runs: &[&[u8]], cost| {
        engine.admit(&who, of("work", "acme", runs, cost), WorkTerms::default()).await.unwrap()
    };
    let lease = admit(&[b"child", b"root"], 60).await.lease.unwrap().id;
    assert_eq!(left(&engine, "work", "acme", &[b"root"]).await, 40);
    assert!(engine.debit_held(&who, lease, 80).await.unwrap().decision.allowed, "60 are covered");
    assert_eq!(left(&engine, "work", "acme", &[b"root"]).await, 20);
    assert!(!admit(&[b"root"], 30).await.answer.decision.allowed);
    engine.release(&who, lease, Ended { actual_cost: Some(50), ..Ended::default() });
    for run in [b"child".as_slice(), b"root"] {
        let until = tokio::time::Instant::now() + Duration::from_secs(5);
        while left(&engine, "work", "acme", &[run]).await != 50 {
            assert!(tokio::time::Instant::now() < until, "the rest was not returned");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    assert_eq!(left(&engine, "work", "acme", &[b"fresh"]).await, 100);
}
