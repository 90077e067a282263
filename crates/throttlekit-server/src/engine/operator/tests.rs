//! Overrides, plans and grants on an engine in memory.

use throttlekit::Retry;

use super::super::{Backend, EngineOptions, PolicyCall, RateChange};
use super::*;

const FILE: &str = "version: 1
policies:
  api:
    rate: {algorithm: fixed_window, limit: 2, per: 1d}
    overrides: {vip: {unlimited: true}, 'eu/*': {rate: {algorithm: fixed_window, limit: 4, per: 1d}}}
  smooth: {rate: {limit: 3, per: 1h}}
  tokens: {cost: {budget: 10, per: 1d}}
  slots: {concurrency: {limit: 1}}
";

fn engine() -> Engine {
    let (file, _) = crate::policy::load(FILE).unwrap();
    Engine::start(EngineOptions::over(Backend::memory()), file).unwrap()
}

fn ask<'a>(policy: &'a str, key: &'a str, cost: u64) -> PolicyCall<'a> {
    PolicyCall { policy, key: key.as_bytes(), others: &[], cost }
}

fn rate(limit: u64) -> Terms {
    let rates = vec![RateChange { limit, ..RateChange::default() }];
    Terms::Limits(Limits { rates, ..Limits::default() })
}

async fn limit(engine: &Engine, key: &str) -> u64 {
    engine.peek(ask("api", key, 1)).await.unwrap().decision.limit
}

async fn set(engine: &Engine, key: &str, terms: Terms) -> Result<Override, Refusal> {
    engine.set_override(("api", key), terms, Expiry::Never, "ops").await
}

#[tokio::test]
async fn the_longest_match_applies_and_of_equal_ones_the_operators() {
    let engine = engine();
    assert_eq!([limit(&engine, "a").await, limit(&engine, "eu/a").await], [2, 4]);
    for (key, units) in [("a", 7), ("eu/*", 8), ("eu/b*", 9), ("v*", 6)] {
        set(&engine, key, rate(units)).await.unwrap();
    }
    let limits = [limit(&engine, "a").await, limit(&engine, "eu/a").await, limit(&engine, "eu/bc").await];
    assert_eq!(limits, [7, 8, 9]);
    assert_ne!(limit(&engine, "vip").await, 6, "the whole key in the file is the longer match");
    assert_eq!(limit(&engine, "vi").await, 6);
    assert!(engine.remove_override("api", "eu/*").await.unwrap());
    assert!(!engine.remove_override("api", "eu/*").await.unwrap());
    assert_eq!(limit(&engine, "eu/a").await, 4, "the file's again");
}

#[tokio::test]
async fn what_was_used_still_counts_under_another_limit() {
    let engine = engine();
    let allowed = async || engine.check(ask("api", "a", 1)).await.unwrap().decision.allowed;
    assert_eq!([allowed().await, allowed().await, allowed().await], [true, true, false]);
    set(&engine, "a", rate(3)).await.unwrap();
    assert_eq!([allowed().await, allowed().await], [true, false]);
    set(&engine, "a", Terms::Limits(Limits { unlimited: true, ..Limits::default() })).await.unwrap();
    assert!(allowed().await);
    engine.remove_override("api", "a").await.unwrap();
    assert!(!allowed().await);
}

#[tokio::test]
async fn a_batch_and_a_reloaded_file_apply_the_same_overrides() {
    let engine = engine();
    set(&engine, "a", rate(1)).await.unwrap();
    let keys = ["a", "b", "a"].map(|key| vec![key.as_bytes()]);
    let answers = engine.check_many("api", &keys, 1).await.unwrap();
    assert_eq!(answers.iter().map(|answer| answer.decision.limit).collect::<Vec<_>>(), [1, 2, 1]);
    assert!(!answers[2].decision.allowed);
    let (file, _) = crate::policy::load(FILE.replace("limit: 2,", "limit: 5,").as_str()).unwrap();
    engine.reload(file).await.unwrap();
    assert_eq!([limit(&engine, "a").await, limit(&engine, "b").await], [1, 5]);
    let (file, _) = crate::policy::load("version: 1\npolicies: {api: {cost: {budget: 9, per: 1d}}}").unwrap();
    engine.reload(file).await.unwrap();
    assert_eq!(limit(&engine, "a").await, 9, "it does not fit the policy any more");
    let listed = engine.overrides("api", "", "", 10).unwrap();
    assert!(listed[0].problem.as_deref().unwrap().contains("no rate"), "{listed:?}");
}

#[tokio::test]
async fn plans_change_for_all_their_keys_and_go_last() {
    let engine = engine();
    let limits = |units| match rate(units) {
        Terms::Limits(limits) => limits,
        Terms::Plan(_) => Limits::default(),
    };
    let gold = || Terms::Plan("gold".into());
    assert!(set(&engine, "a", gold()).await.unwrap_err().to_string().contains("unknown plan"));
    engine.set_plan("api", "gold", &limits(20)).await.unwrap();
    for key in ["a", "b", "team/*"] {
        set(&engine, key, gold()).await.unwrap();
    }
    assert_eq!([limit(&engine, "a").await, limit(&engine, "team/1").await], [20, 20]);
    engine.set_plan("api", "gold", &limits(30)).await.unwrap();
    assert_eq!([limit(&engine, "b").await, limit(&engine, "team/1").await], [30, 30]);
    let plans = engine.plans("api").unwrap();
    assert_eq!((plans.len(), plans[0].1), (1, 3));
    assert!(engine.remove_plan("api", "gold").await.unwrap_err().to_string().contains("3 overrides"));
    for key in ["a", "b", "team/*"] {
        assert!(engine.remove_override("api", key).await.unwrap());
    }
    assert!(engine.remove_plan("api", "gold").await.unwrap());
    assert_eq!(limit(&engine, "a").await, 2);
}

#[tokio::test]
async fn an_override_ends_at_its_expiry_without_another_look() {
    let engine = engine();
    let short = Expiry::After(Duration::from_millis(300));
    let done = engine.set_override(("api", "a"), rate(9), short, "ops").await.unwrap();
    assert_eq!((done.expires_ms.unwrap() - done.set_ms, limit(&engine, "a").await), (300, 9));
    let following = tokio::spawn(engine.clone().follow_overrides());
    while limit(&engine, "a").await == 9 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(throttlekit::clock::WallClock.now() >= Timestamp::from_millis(done.expires_ms.unwrap()));
    assert!(engine.overrides("api", "", "", 10).unwrap().is_empty());
    following.abort();
    for wrong in [Expiry::At(1), Expiry::After(Duration::ZERO), Expiry::At(u64::MAX)] {
        assert!(engine.set_override(("api", "a"), rate(9), wrong, "ops").await.is_err(), "{wrong:?}");
    }
}

#[tokio::test]
async fn pages_follow_one_another_by_the_last_key() {
    let engine = engine();
    for key in ["b1", "a2", "b2", "b0*", "c"] {
        set(&engine, key, rate(5)).await.unwrap();
    }
    let page = |prefix: &str, after: &str| {
        let page = engine.overrides("api", prefix, after, 2).unwrap();
        page.iter().map(|view| view.one.key.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(
        [page("", ""), page("", "b0*"), page("", "b2")],
        [vec!["a2", "b0*"], vec!["b1", "b2"], vec!["c"]]
    );
    assert_eq!([page("b", ""), page("b", "b1"), page("b", "b2")], [vec!["b0*", "b1"], vec!["b2"], vec![]]);
    assert!(engine.overrides("nowhere", "", "", 2).is_err());
    for key in ["", "k".repeat(KEY_BYTES_MAX + 1).as_str()] {
        assert!(set(&engine, key, rate(5)).await.is_err());
    }
}

#[tokio::test]
async fn a_grant_counts_once_and_gives_back_at_most_what_was_used() {
    let engine = engine();
    for (policy, limit) in [("api", 2), ("smooth", 3)] {
        for _ in 0..limit {
            assert!(engine.check(ask(policy, "a", 1)).await.unwrap().decision.allowed);
        }
        let (left, repeated) = engine.grant(ask(policy, "a", 1), policy).await.unwrap();
        assert_eq!((left.decision.remaining, repeated), (1, false), "{policy}");
        let (left, repeated) = engine.grant(ask(policy, "a", 1), policy).await.unwrap();
        assert_eq!((left.decision.remaining, repeated), (1, true), "{policy}");
        let (left, _) = engine.grant(ask(policy, "a", 99), &format!("{policy}-2")).await.unwrap();
        assert_eq!((left.decision.remaining, left.decision.limit), (limit, limit), "{policy}");
    }
    engine.debit(ask("tokens", "a", 12), None).await.unwrap();
    let left = engine.grant(ask("tokens", "a", 5), "tokens").await.unwrap().0.decision;
    assert_eq!((left.remaining, left.retry_after), (3, Retry::Now));
    assert!(engine.grant(ask("slots", "a", 1), "slots").await.is_err());
    assert!(engine.grant(ask("api", "vip", 1), "vip").await.is_err());
    for id in ["", "i".repeat(129).as_str()] {
        assert!(engine.grant(ask("api", "a", 1), id).await.is_err());
    }
}
