//! Policies in the engine, called as every API calls it.

mod budgets;
mod keys;
mod learned;
mod leases;
mod reload;

use std::time::Duration;

use tempfile::TempDir;
use throttlekit::Retry;
use throttlekit::store::DebitId;
use throttlekit_server::internals::access::{Principal, Secrets};
use throttlekit_server::internals::engine::{
    Backend, Ended, Engine, EngineOptions, HandBack, PolicyCall, Refusal, WorkTerms,
};
use throttlekit_server::internals::reload::{Loaded, Reloader};
use throttlekit_server::policy;

fn engine(policies: &str) -> Engine {
    Engine::start(EngineOptions::over(Backend::memory()), file(policies)).unwrap()
}

fn file(policies: &str) -> policy::PolicyFile {
    let text = format!("version: 1\npolicies:\n{policies}");
    policy::load(&text).unwrap_or_else(|errors| panic!("{errors:?}")).0
}

fn ask<'a>(policy: &'a str, key: &'a str, cost: u64) -> PolicyCall<'a> {
    PolicyCall { policy, key: key.as_bytes(), others: &[], cost }
}

async fn allowed(engine: &Engine, policy: &str, key: &str, asks: usize) -> usize {
    let mut count = 0;
    for _ in 0..asks {
        count += usize::from(engine.check(ask(policy, key, 1)).await.unwrap().decision.allowed);
    }
    count
}

#[tokio::test]
async fn what_all_share_and_what_a_key_without_a_name_has_are_counted_apart() {
    let policies = "  p: {rate: {algorithm: fixed_window, limit: 5, per: 1d}, fair: {limit: 100, per: 1d}}\n";
    let engine = engine(policies);
    assert_eq!(allowed(&engine, "p", "", 9).await, 5);
    assert_eq!(
        allowed(&engine, "p", "ada", 9).await,
        5,
        "another key has its own rate, and the pool has plenty"
    );
}

#[tokio::test]
async fn the_weights_of_servers_with_one_region_name_add_up() {
    let backend = Backend::memory();
    let policies = "  p: {fair: {limit: 1000, per: 1d, regions: true, weights: {big-*: 3}}}\n";
    let start = |name: &str| {
        let options = EngineOptions { instance: name.into(), ..EngineOptions::over(backend.clone()) };
        Engine::start(options, file(policies)).unwrap()
    };
    let (one, two) = (start("one"), start("two"));
    let (mut small, mut big) = (0, 0);
    for _ in 0..1_000 {
        small += allowed(&one, "p", "small", 1).await;
        big += allowed(&two, "p", "big-1", 1).await;
    }
    assert!(small + big <= 1_000 && (200..=300).contains(&small), "{small} and {big} instead of 250 and 750");
}

#[tokio::test]
async fn servers_that_divide_slots_see_each_other() {
    let backend = Backend::memory();
    let policies = "  jobs: {concurrency: {limit: 4, scope: fleet, lease_for: 1s}}\n";
    let start = || Engine::start(EngineOptions::over(backend.clone()), file(policies)).unwrap();
    let seen = |engine: &Engine| engine.guards()[0].nodes;
    let one = start();
    // A server joins when it is first asked, and the others learn of it at their next heartbeat.
    let joined = async |engine: &Engine| {
        engine.admit(&Principal::anyone(), ask("jobs", "ada", 1), WorkTerms::default()).await.unwrap();
    };
    let until = async |nodes: [u64; 2], all: [&Engine; 2]| {
        while all.map(seen) != nodes {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    joined(&one).await;
    assert_eq!(seen(&one), 1);
    let two = start();
    joined(&two).await;
    let within = Duration::from_secs(30);
    tokio::time::timeout(within, until([2, 2], [&one, &two])).await.expect("both see two servers");
}

#[tokio::test]
async fn a_reset_key_counts_from_its_first_request() {
    let engine = engine(
        "  p: {rate: {algorithm: fixed_window, limit: 2, per: 1d}, cost: {budget: 9, per: 1d}}\n  f: {fair: {limit: 9, per: 1d}}\n",
    );
    assert_eq!([allowed(&engine, "p", "ada", 3).await, allowed(&engine, "p", "bob", 3).await], [2, 2]);
    engine.reset(ask("p", "ada", 1)).await.unwrap();
    assert_eq!([allowed(&engine, "p", "ada", 3).await, allowed(&engine, "p", "bob", 3).await], [2, 0]);
    assert!(matches!(engine.reset(ask("f", "ada", 1)).await, Err(Refusal::Unsupported(_))));
    assert!(matches!(engine.reset(ask("none", "ada", 1)).await, Err(Refusal::UnknownPolicy(_))));
}

#[tokio::test]
async fn a_key_that_a_limit_goes_by_has_to_come_along() {
    let engine = engine(
        "  p: {rate: [{limit: 5, per: 1d}, {name: org, limit: 9, per: 1d, by: 1}], cost: {budget: 9, per: 1d, by: 1}}\n",
    );
    let refused =
        |answer: Result<_, Refusal>| matches!(answer, Err(Refusal::Invalid(why)) if why.contains("2 keys"));
    assert!(refused(engine.check(ask("p", "ada", 1)).await.map(drop)));
    assert!(refused(engine.peek(ask("p", "ada", 1)).await.map(drop)));
    assert!(refused(engine.debit(ask("p", "ada", 1), None).await.map(drop)));
    assert!(refused(
        engine.admit(&Principal::anyone(), ask("p", "ada", 1), WorkTerms::default()).await.map(drop)
    ));
    assert!(refused(engine.check_many("p", &[vec![b"ada"]], 1).await.map(drop)));
    let both = PolicyCall { others: &[b"acme"], ..ask("p", "ada", 1) };
    assert!(engine.check(both).await.unwrap().decision.allowed);
}

#[tokio::test]
async fn debits_without_a_name_are_not_remembered_and_those_with_one_count_once() {
    let engine = engine("  t: {cost: {budget: 1000000, per: 1d}}\n");
    for _ in 0..100_100 {
        let answer = engine.debit(ask("t", "a", 1), None).await.unwrap();
        assert!(answer.decision.allowed, "no number of debits fills the store");
    }
    let name = Some(DebitId { stream: 7, number: 1 });
    let once = engine.debit(ask("t", "b", 10), name).await.unwrap().decision.remaining;
    assert_eq!(engine.debit(ask("t", "b", 10), name).await.unwrap().decision.remaining, once);
}

#[tokio::test]
async fn many_keys_are_answered_in_order_whatever_holds_for_each() {
    let overrides = r#"overrides: {"pro:*": {rate: {limit: 3, per: 1d}}, root: {unlimited: true}}"#;
    let engine = engine(&format!("  p: {{rate: {{limit: 1, per: 1d}}, {overrides}}}\n"));
    let keys: [&[u8]; 7] = [b"a", b"pro:1", b"root", b"a", b"pro:1", b"b", b"root"];
    let answers = engine.check_many("p", &keys.map(|key| vec![key]), 1).await.unwrap();
    let seen: Vec<_> = answers.iter().map(|a| (a.decision.allowed, a.decision.limit)).collect();
    let free = (true, u64::MAX);
    assert_eq!(seen, [(true, 1), (true, 3), free, (false, 1), (true, 3), (true, 1), free]);
}

#[tokio::test]
async fn a_policy_or_a_key_that_is_blocked_is_denied_by_every_endpoint_and_not_counted() {
    let rate = "rate: {algorithm: fixed_window, limit: 5, per: 1d}, fleet: {}";
    let engine = engine(&format!(
        "  no: {{deny: true}}\n  some: {{{rate}, overrides: {{'bad-*': {{deny: true}}}}}}\n  looks: {{{rate}, deny: true, shadow: true}}\n"
    ));
    let who = Principal::anyone();
    for (policy, key) in [("no", "ada"), ("some", "bad-1")] {
        let ask = || ask(policy, key, 1);
        let admitted = engine.admit(&who, ask(), WorkTerms::default()).await.unwrap();
        assert!(admitted.lease.is_none());
        let answers = [
            engine.check(ask()).await.unwrap(),
            engine.peek(ask()).await.unwrap(),
            engine.debit(ask(), None).await.unwrap(),
            engine.check_many(policy, &[vec![key.as_bytes()]], 1).await.unwrap()[0],
            admitted.answer,
        ];
        for answer in answers {
            let decision = answer.decision;
            assert_eq!((decision.allowed, decision.limit, decision.remaining), (false, 0, 0));
            assert_eq!(
                (decision.retry_after, answer.binding_axis),
                (Retry::Never, Some(throttlekit::Axis::Rate))
            );
        }
        assert_eq!(engine.forecast(ask()).await.unwrap().spendable_now, 0);
        assert_eq!(engine.reserve(&who, ask(), None).await.unwrap().units, 0);
    }
    assert_eq!(allowed(&engine, "some", "good", 9).await, 5);
    let looked = engine.check(ask("looks", "ada", 1)).await.unwrap();
    assert!(looked.decision.allowed && looked.shadow_denied);
    assert!(engine.reserve(&who, ask("looks", "ada", 3), None).await.unwrap().units >= 3);
}

#[tokio::test]
async fn a_policy_that_is_switched_off_or_only_looks_lends_freely() {
    let rate = "rate: {algorithm: fixed_window, limit: 5, per: 1d}, fleet: {}";
    let engine = engine(&format!(
        "  off: {{{rate}, disabled: true}}\n  looks: {{{rate}, shadow: true}}\n  on: {{{rate}}}\n"
    ));
    let who = Principal::anyone();
    for policy in ["off", "looks"] {
        for _ in 0..3 {
            let granted = engine.reserve(&who, ask(policy, "a", 4), None).await.unwrap();
            assert!(granted.units >= 1, "{policy}");
        }
    }
    let units = |granted: throttlekit_server::internals::engine::Granted| (granted.units, granted.loan);
    let (four, loan) = units(engine.reserve(&who, ask("on", "a", 4), None).await.unwrap());
    let (one, _) = units(engine.reserve(&who, ask("on", "a", 4), None).await.unwrap());
    assert_eq!((four, one), (4, 1));
    let back = HandBack { loan: loan.unwrap(), units: 1_000 };
    let stranger = Principal::named("stranger");
    assert_eq!(
        engine.reserve(&stranger, ask("on", "a", 9), Some(back)).await.unwrap().units,
        0,
        "not its own"
    );
    let again = engine.reserve(&who, ask("on", "a", 9), Some(back)).await.unwrap().units;
    assert_eq!(again, 4, "what was lent comes back, and not what is claimed");
    assert_eq!(engine.reserve(&who, ask("on", "a", 9), Some(back)).await.unwrap().units, 0, "once");
}

#[tokio::test(start_paused = true)]
async fn work_that_falls_silent_gives_its_slot_back_and_stays_charged() {
    let engine = engine("  p: {concurrency: {limit: 1, lease_for: 1s}, cost: {budget: 100, per: 1d}}\n");
    let (ada, eve) = (Principal::named("ada"), Principal::named("eve"));
    let held = engine.admit(&ada, ask("p", "k", 30), WorkTerms::default()).await.unwrap().lease.unwrap();
    assert!(
        engine.admit(&ada, ask("p", "k", 1), WorkTerms::default()).await.unwrap().lease.is_none(),
        "one at a time"
    );
    assert!(!engine.release(&eve, held.id, Ended::default()), "another's");
    assert_eq!(engine.heartbeat(&eve, &[held.id]).reclaimed, [held.id]);
    assert!(engine.lease_of(&eve, held.id).is_err());
    assert_eq!(&*engine.lease_of(&ada, held.id).unwrap().0, "p");
    std::thread::sleep(Duration::from_millis(1_100));
    let next = engine.admit(&ada, ask("p", "k", 70), WorkTerms::default()).await.unwrap();
    assert!(next.lease.is_some(), "30 stay charged, and 70 are left: {next:?}");
    assert!(engine.heartbeat(&ada, &[held.id]).live.is_empty());
    let settled = Ended { actual_cost: Some(20), ..Ended::default() };
    assert!(engine.release(&ada, next.lease.unwrap().id, settled));
    // Settled in the background.
    let mut left = 0;
    for _ in 0..6_000 {
        left = engine.peek(ask("p", "k", 1)).await.unwrap().decision.remaining;
        if left == 50 {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("30 and 20 were used, and {left} are left");
}

#[tokio::test]
async fn a_reload_keeps_what_was_used_and_a_bad_one_changes_nothing() {
    let engine =
        engine("  p: {rate: {algorithm: fixed_window, limit: 5, per: 1d}}\n  q: {concurrency: {limit: 1}}\n");
    assert_eq!(allowed(&engine, "p", "a", 9).await, 5);
    let held = engine
        .admit(&Principal::anyone(), ask("q", "a", 1), WorkTerms::default())
        .await
        .unwrap()
        .lease
        .unwrap();
    let more =
        file("  p: {rate: {algorithm: fixed_window, limit: 7, per: 1d}}\n  q: {concurrency: {limit: 2}}\n");
    let reloaded = engine.reload(more).await.unwrap();
    assert_eq!(reloaded.changed, ["p", "q"]);
    assert!(reloaded.warnings.is_empty(), "{reloaded:?}");
    assert_eq!(allowed(&engine, "p", "a", 9).await, 2, "five of seven were used");
    assert!(
        engine
            .admit(&Principal::anyone(), ask("q", "a", 1), WorkTerms::default())
            .await
            .unwrap()
            .lease
            .is_some()
    );
    assert!(
        engine
            .admit(&Principal::anyone(), ask("q", "a", 1), WorkTerms::default())
            .await
            .unwrap()
            .lease
            .is_none()
    );
    assert!(engine.release(&Principal::anyone(), held.id, Ended::default()), "held over the reload");
    let other = file("  p: {rate: {limit: 7, per: 1d}}\n");
    let reloaded = engine.reload(other).await.unwrap();
    assert_eq!(reloaded.removed, ["q"]);
    assert!(reloaded.warnings[0].contains("start from zero"), "{reloaded:?}");
    let mut bad = (*engine.file()).clone();
    bad.policies.insert("bad".into(), policy::PolicySpec::default());
    assert!(engine.reload(bad).await.unwrap_err().to_string().contains("`bad`"));
    assert_eq!(engine.file().policies.len(), 1);
}

#[tokio::test]
async fn a_file_is_loaded_when_it_stands_still_and_never_removes_authentication() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("policies.yaml");
    let text = |limit: u64, access: &str| {
        format!("version: 1\npolicies:\n  p: {{rate: {{limit: {limit}, per: 1d}}}}\n{access}")
    };
    let closed = "access: {anonymous: [{endpoints: [check]}]}\n";
    std::fs::write(&path, text(1, closed)).unwrap();
    let loaded = Loaded::read(&path).unwrap();
    let reloader = Reloader::new(path.clone(), &loaded, Secrets::default()).unwrap();
    let engine = Engine::start(EngineOptions::over(Backend::memory()), loaded.file).unwrap();
    assert!(reloader.look(&engine).await.is_none());

    std::fs::write(&path, text(2, closed)).unwrap();
    assert!(reloader.look(&engine).await.is_none(), "it may be half written");
    assert_eq!(reloader.look(&engine).await.unwrap().unwrap().changed, ["p"]);
    assert_eq!(reloader.status().reloads, 1);

    std::fs::write(&path, text(3, "")).unwrap();
    assert!(reloader.look(&engine).await.is_none());
    assert!(reloader.look(&engine).await.unwrap().unwrap_err().to_string().contains("restart"));
    assert_eq!((reloader.status().reloads, reloader.status().rejected), (1, 1));
    assert!(reloader.look(&engine).await.is_none(), "judged once");
    assert!(policy::load(&text(1, "access:\n")).is_err(), "an empty list does not allow everything");
}

#[tokio::test]
async fn who_looks_and_finds_nothing_left_is_told_to_wait() {
    let engine = engine("  shared: {fair: {limit: 3, per: 1h}}");
    assert_eq!(allowed(&engine, "shared", "acme", 4).await, 3);
    let seen = engine.peek(ask("shared", "acme", 1)).await.unwrap().decision;
    assert!(!seen.allowed && seen.retry_after > Retry::Now, "{seen:?}");
}
