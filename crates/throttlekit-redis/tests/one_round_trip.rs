//! One script call for each decision, one for each pipeline and slot: counted by the server itself.

use std::collections::HashSet;

use crate::rig::{self, DAY, Server};
use throttlekit::guard::Ending;
use throttlekit::store::{KeySpace, Store};
use throttlekit::{Call, Limit, Rate, SharedLimiter, SharedPolicy};
use throttlekit_core::rate::shared::ScriptEncoding;
use throttlekit_redis::{RedisStore, slot_of};

const POLICY: &str = "trip";

fn limits() -> [(&'static str, Limit); 3] {
    [
        ("a", Limit::gcra(Rate::per_second(100)).unwrap()),
        ("b", Limit::fixed_window(1_000, DAY).unwrap()),
        ("c", Limit::sliding_window(1_000, DAY).unwrap()),
    ]
}

/// Returns the number of script calls of the server.
async fn script_calls(server: &Server) -> u64 {
    let info: String = server.ask("INFO commandstats").await;
    let calls = |line: &str| -> Option<u64> {
        let rest = line.strip_prefix("cmdstat_evalsha:calls=").or(line.strip_prefix("cmdstat_eval:calls="))?;
        rest.split(',').next()?.parse().ok()
    };
    info.lines().filter_map(calls).sum()
}

/// Decides one by one, then all at once. Returns the script calls of each.
async fn count(store: impl Store, server: &Server, keys: &[String]) -> (u64, u64) {
    let [(_, first), (b, second), (c, third)] = limits();
    let limiter = SharedLimiter::builder(store, POLICY, first).limit_by(1, b, second).limit_by(2, c, third);
    let limiter = limiter.route_by(0).build().unwrap();
    let call = |key| Call::by(key).and(&["b", "c"]);
    // The script is not cached yet: the first call is sent twice, once by hash and once in full.
    limiter.check(call("first")).await.unwrap();

    let before = script_calls(server).await;
    for key in keys {
        assert!(limiter.check(call(key)).await.unwrap().outage.is_none());
    }
    let between = script_calls(server).await;
    let answers = limiter.check_many(keys.iter().map(|key| call(key))).await;
    assert!(answers.len() == keys.len() && answers.iter().all(Result::is_ok));
    (between - before, script_calls(server).await - between)
}

fn keys() -> Vec<String> {
    (0..100).map(|i| format!("key-{i}")).collect()
}

#[tokio::test]
async fn one_script_call_for_each_decision_and_each_pipeline() {
    let server = Server::start(&[]).await;
    let store = RedisStore::builder(server.url()).connect().await.unwrap();
    assert_eq!(count(store, &server, &keys()).await, (100, 1));
}

#[tokio::test]
async fn one_script_call_for_each_pipeline_and_slot() {
    let server = Server::start(&["--cluster-enabled", "yes"]).await;
    server.ask::<()>("CLUSTER ADDSLOTSRANGE 0 16383").await;
    rig::until("the cluster is whole", DAY, async || {
        server.ask::<String>("CLUSTER INFO").await.contains("cluster_state:ok")
    })
    .await;
    let store = RedisStore::cluster([server.url()]).connect().await.unwrap();
    let space = KeySpace::new("tk", POLICY, "a", &ScriptEncoding::of(&limits()[0].1).unwrap());
    let slot = |key: &String| slot_of(&space.key(key.as_bytes(), key.as_bytes()));
    let slots: HashSet<u16> = keys().iter().map(slot).collect();
    assert!(slots.len() > 90, "{} slots", slots.len());
    assert_eq!(count(store, &server, &keys()).await, (100, slots.len() as u64));
}

/// With a policy of three charges: the admission is one call, a debit that the estimate covers is none, and
/// the settlement at most one.
#[tokio::test]
async fn one_script_call_for_each_admission_none_for_a_covered_debit_and_one_to_settle() {
    let server = Server::start(&[]).await;
    let store = RedisStore::builder(server.url()).connect().await.unwrap();
    let policy = SharedPolicy::builder(store, POLICY)
        .rate(Rate::per_second(100))
        .tokens(Limit::token_budget(100_000, DAY).unwrap())
        .rate(Limit::sliding_window(1_000, DAY).unwrap())
        .build()
        .unwrap();
    // Scripts that are not cached yet are sent twice.
    let mut first = policy.admit(Call::by("first").cost(100)).await.unwrap().permit.unwrap();
    first.debit(40).await.unwrap();
    first.close(Ending::Success).await.unwrap();

    for key in keys() {
        let before = script_calls(&server).await;
        let mut permit = policy.admit(Call::by(&key).cost(100)).await.unwrap().permit.unwrap();
        let admitted = script_calls(&server).await;
        assert!(permit.debit(40).await.unwrap().allowed);
        let debited = script_calls(&server).await;
        permit.close(Ending::Success).await.unwrap();
        let calls = [admitted - before, debited - admitted, script_calls(&server).await - debited];
        assert_eq!(calls, [1, 0, 1], "{key}");

        let used_up = policy.admit(Call::by(&key).cost(100)).await.unwrap().permit.unwrap();
        let before = script_calls(&server).await;
        used_up.close(Ending::Success).await.unwrap();
        assert_eq!(script_calls(&server).await - before, 0, "what was set aside was used: nothing to tell");
    }
}
