//! Units that one server allows while its store is unavailable, over all ways to request one limit.

use std::time::Duration;

use throttlekit::Guarantee;
use throttlekit_redis::RedisStore;
use throttlekit_server::internals::access::Principal;
use throttlekit_server::internals::engine::{Backend, Engine, EngineOptions, PolicyCall, WorkTerms};
use throttlekit_server::policy;

use crate::own_redis::OwnRedis;

/// Of a limit of 40 each of four nodes has ten.
const SHARE: u64 = 10;
const POLICIES: &str = "\
version: 1
defaults: {on_outage: {local: {nodes: 4}}}
policies:
  window: {rate: {algorithm: fixed_window, limit: 40, per: 1d}, fleet: {}}
  smooth: {rate: {limit: 40, per: 1d, burst: 40}, fleet: {}}
  tokens: {rate: {limit: 1000, per: 1s}, cost: {budget: 40, per: 1d}}
";

fn ask<'a>(policy: &'a str, cost: u64) -> PolicyCall<'a> {
    PolicyCall { policy, key: b"acme", others: &[], cost }
}

async fn engine(url: &str) -> Engine {
    let store = RedisStore::builder(url).deadline(Duration::from_secs(2)).connect().await.unwrap();
    let (file, _) = policy::load(POLICIES).unwrap_or_else(|errors| panic!("{errors:?}"));
    Engine::start(EngineOptions::over(Backend::redis(store)), file).unwrap()
}

/// Units that pass a check, if any do.
async fn checked(engine: &Engine, policy: &str, cost: u64) -> u64 {
    let answer = engine.check(ask(policy, cost)).await.unwrap();
    assert_eq!(answer.guarantee, Guarantee::Local, "{answer:?}");
    if answer.decision.allowed { cost } else { 0 }
}

#[tokio::test]
async fn checks_batches_and_loans_of_one_limit_pass_one_share_together() {
    let mut redis = OwnRedis::start().await;
    let engine = engine(&redis.url()).await;
    let anyone = Principal::anyone();
    for policy in ["window", "smooth"] {
        let answer = engine.check(ask(policy, 1)).await.unwrap();
        assert!(
            answer.decision.allowed && answer.guarantee != Guarantee::Local,
            "{policy}, while it is there"
        );
    }
    redis.stop();
    for policy in ["window", "smooth"] {
        let mut passed = 0;
        for _ in 0..2 * SHARE {
            passed += checked(&engine, policy, 1).await;
            passed += engine.reserve(&anyone, ask(policy, 2), None).await.unwrap().units;
            let many = engine.check_many(policy, &[vec![&b"acme"[..]]], 1).await.unwrap();
            passed += many.iter().filter(|answer| answer.decision.allowed).count() as u64;
        }
        assert_eq!(passed, SHARE, "{policy}");
    }
}

#[tokio::test]
async fn admissions_checks_and_debits_of_one_budget_pass_one_share_together() {
    let mut redis = OwnRedis::start().await;
    let engine = engine(&redis.url()).await;
    let anyone = Principal::anyone();
    assert!(engine.debit(ask("tokens", 1), None).await.unwrap().decision.allowed, "while it is there");
    redis.stop();
    let mut passed = 0;
    for _ in 0..2 * SHARE {
        passed += checked(&engine, "tokens", 1).await;
        let debited = engine.debit(ask("tokens", 1), None).await.unwrap();
        passed += u64::from(debited.decision.allowed);
        let admitted = engine.admit(&anyone, ask("tokens", 1), WorkTerms::default()).await.unwrap();
        passed += u64::from(admitted.answer.decision.allowed);
    }
    assert_eq!(passed, SHARE);
}

/// A policy that is reloaded while the store is unavailable gets no fresh share.
#[tokio::test]
async fn a_reload_in_an_outage_hands_out_no_fresh_share() {
    let mut redis = OwnRedis::start().await;
    let engine = engine(&redis.url()).await;
    redis.stop();
    assert_eq!(checked(&engine, "window", SHARE).await, SHARE);
    let read_anew = POLICIES.replacen("fleet: {}", "fleet: {lease_max: 9}", 1);
    let (file, _) = policy::load(&read_anew).unwrap_or_else(|errors| panic!("{errors:?}"));
    engine.reload(file).await.unwrap();
    assert_eq!(checked(&engine, "window", 1).await, 0);
}
