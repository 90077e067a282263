//! A real Envoy in front of a real service, run by the files in `ops/envoy`: limits hold exactly, clients and access
//! logs learn why, and an outage of ours is what the filter's `failure_mode_deny` says.

mod hostile;
mod kubernetes;
mod stand;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use futures_util::future::join_all;

use serde_json::json;
use stand::{Reply, Stand};

fn statuses(replies: &[Reply]) -> BTreeMap<u16, usize> {
    let mut counts = BTreeMap::new();
    replies.iter().for_each(|reply| *counts.entry(reply.status).or_default() += 1);
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_is_reached_exactly_and_told() {
    let stand = Stand::start("exact", false).await;
    for left in (0..20).rev() {
        let reply = stand.get("/", &[("x-user", "alice")]).await;
        assert_eq!((reply.status, reply.header("x-ratelimit-remaining")), (200, left.to_string()));
        assert_eq!(reply.header("x-ratelimit-limit"), "20, 20;w=3600;name=\"per-user\"");
        assert!((1..=3_600).contains(&reply.header("x-ratelimit-reset").parse().unwrap()));
    }
    let denied = stand.get("/", &[("x-user", "alice")]).await;
    assert_eq!((denied.status, denied.header("x-ratelimit-remaining")), (429, "0".into()));
    assert_eq!(denied.header("x-envoy-ratelimited"), "true");
    let wait: u64 = denied.header("retry-after").parse().unwrap();
    assert!((1..=3_600).contains(&wait));
    assert_eq!(denied.header("x-ratelimit-reset"), wait.to_string(), "both say when it passes");
    assert_eq!(stand.served(), 20, "what was denied did not reach the service");
    for _ in 0..30 {
        assert_eq!(stand.get("/", &[("x-user", "health")]).await.status, 200);
    }
    let line = stand.logged(|line| line["status"] == 429).await;
    assert_eq!((&line["policy"], &line["binding_axis"]), (&json!("per-user"), &json!("rate")));
    assert_eq!((&line["guarantee"], &line["overshoot_bound"]), (&json!("exact"), &json!(0)));
    assert!(line["retry_after_ms"].as_u64().is_some_and(|wait| wait > 0), "{line}");
    let line = stand.logged(|line| line["status"] == 200).await;
    assert_eq!((&line["policy"], &line["binding_axis"]), (&json!("per-user"), &json!(null)));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_fifty_at_once_exactly_as_many_pass_as_may() {
    let stand = Stand::start("fifty", false).await;
    let replies = stand.get_at_once(50, "/", &[("x-user", "bob")]).await;
    assert_eq!(statuses(&replies), BTreeMap::from([(200, 20), (429, 30)]));
    assert_eq!(stand.served(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_descriptor_has_its_own_addend() {
    let stand = Stand::start("addend", false).await;
    for (rows, status, left) in [("60", 200, "19"), ("41", 429, "0"), ("40", 200, "0"), ("1", 429, "0")] {
        let reply = stand.get("/batch", &[("x-user", "carol"), ("x-rows", rows)]).await;
        assert_eq!(reply.status, status, "{rows} rows");
        if status == 200 {
            assert_eq!(
                reply.header("x-ratelimit-remaining"),
                left,
                "{rows} rows: the tighter of both limits"
            );
        }
    }
    // Each descriptor is charged by itself: the denied requests counted for the user all the same.
    assert_eq!(stand.get("/", &[("x-user", "carol")]).await.header("x-ratelimit-remaining"), "15");
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_one_policy_are_charged_together_or_not_at_all() {
    let stand = Stand::start("together", false).await;
    let ask = async |member| stand.get("/", &[("x-tenant", "acme"), ("x-member", member)]).await.status;
    for _ in 0..3 {
        assert_eq!(ask("a").await, 200);
    }
    for _ in 0..10 {
        assert_eq!(ask("a").await, 429);
    }
    // A denied member took nothing from its tenant: seven of ten are left.
    for member in ["b", "b", "b", "c", "c", "c", "d"] {
        assert_eq!(ask(member).await, 200, "{member}");
    }
    assert_eq!(ask("d").await, 429);
}

/// Envoy lets a request pass whose answer is an error, so no header may cause one.
#[tokio::test(flavor = "multi_thread")]
async fn no_header_takes_a_client_past_a_limit_that_it_has_used_up() {
    let stand = Stand::start("hostile", false).await;
    let mallory = [("x-tenant", "acme"), ("x-member", "mallory")];
    for _ in 0..3 {
        assert_eq!(stand.get("/", &mallory).await.status, 200);
    }
    let long = |length: usize| vec![b'a'; length];
    let values =
        [long(0), long(1_025), long(8_193), long(50 << 10), vec![0xff, 0xfe, 0x80], b"|\\#\t*".to_vec()];
    for value in values {
        let reply = stand.get_with(&mallory, "x-user", &value).await;
        assert_eq!(reply.status, 429, "{} bytes: {:?}", value.len(), &value[..value.len().min(4)]);
    }
    assert_eq!(stand.served(), 3);
}

/// Default number of hostile requests; `HOSTILE_REQUESTS` overrides it.
const HOSTILE: u64 = 2_000;
/// Number of concurrent hostile requests.
const HOSTILE_AT_ONCE: u64 = 4;

/// Whatever else a client writes, a limit that it has used up is used up. `cargo xtask verify envoy-hostile` sends more.
#[tokio::test(flavor = "multi_thread")]
async fn no_set_of_headers_passes_a_limit_that_is_used_up() {
    let requests = std::env::var("HOSTILE_REQUESTS").ok().and_then(|text| text.parse().ok());
    let requests = requests.unwrap_or(HOSTILE);
    let stand = Stand::start("headers", false).await;
    let mallory = [("x-tenant", "acme"), ("x-member", "mallory")];
    for _ in 0..3 {
        assert_eq!(stand.get("/", &mallory).await.status, 200);
    }
    let next = AtomicU64::new(0);
    let answered = Mutex::new(BTreeMap::<u16, u64>::new());
    let sends = async || {
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= requests {
                return;
            }
            // None at all is told as 0.
            let status = stand.status_of(&hostile::headers(seed)).await.unwrap_or(0);
            *answered.lock().unwrap().entry(status).or_default() += 1;
            assert_eq!(stand.served(), 3, "the headers of seed {seed}, or of one shortly before, passed");
            if seed > 0 && seed.is_multiple_of(10_000) {
                println!("{seed} of {requests}");
            }
        }
    };
    join_all((0..HOSTILE_AT_ONCE).map(|_| sends())).await;
    let answered = answered.into_inner().unwrap();
    let (denied, refused) = (answered.get(&429).copied().unwrap_or(0), requests - answered[&429]);
    assert!(denied * 4 > requests, "most are well formed: {answered:?}");
    let passed = stand.served() - 3;
    let figure = json!({"name": "verify-envoy-hostile", "requests": requests, "passed": passed, "denied": denied,
        "refused_by_envoy": refused});
    println!("figure: {figure}");
    assert_eq!(passed, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_counted_when_the_response_has_ended() {
    let stand = Stand::start("tokens", false).await;
    let ask = async || stand.get("/model", &[("x-user", "dave"), ("x-answer-tokens", "40")]).await;
    for used in [40, 80, 120] {
        assert_eq!(ask().await.status, 200);
        stand.until_debited("model-tokens", "dave", used).await;
    }
    let denied = ask().await;
    assert_eq!(denied.status, 429);
    let line = stand.logged(|line| line["status"] == 429).await;
    assert_eq!(line["policy"], "model-tokens");
    assert_eq!(stand.served(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_from_metadata_are_counted_in_full_when_the_response_has_ended() {
    let stand = Stand::start("gateway", false).await;
    for used in [30, 60, 90, 120] {
        assert_eq!(stand.get("/gateway", &[("x-user", "gil")]).await.status, 200, "{used} after it");
        stand.until_debited("gateway-tokens", "gil", used).await;
    }
    assert_eq!(stand.get("/gateway", &[("x-user", "gil")]).await.status, 429, "120 of 100 are used");
    assert_eq!(stand.served(), 4);
}

/// A request takes ten, and four come back when its response has ended.
#[tokio::test(flavor = "multi_thread")]
async fn units_that_were_not_needed_come_back_when_the_response_has_ended() {
    let stand = Stand::start("refund", false).await;
    let ask = async || stand.get("/reserve", &[("x-user", "rita"), ("x-answer-tokens", "4")]).await;
    for used in [6, 12, 18, 24] {
        assert_eq!(ask().await.status, 200);
        stand.until_debited("reserved-rows", "rita", used).await;
    }
    assert_eq!(ask().await.status, 429, "24 of 30 are used, and ten are needed");
    assert_eq!(stand.served(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_get_the_headers_of_the_draft_for_each_policy() {
    let stand = Stand::start("draft", false).await;
    let reply = stand.get("/batch", &[("x-user", "dora"), ("x-rows", "60")]).await;
    let policies = r#""per-user";q=20;w=3600, "rows";q=100;w=86400"#;
    assert_eq!(reply.header("ratelimit-policy"), policies);
    let left = reply.header("ratelimit");
    assert!(left.starts_with(r#""per-user";r=19;t="#) && left.contains(r#", "rows";r=40;t="#), "{left}");
    let denied = stand.get("/batch", &[("x-user", "dora"), ("x-rows", "60")]).await;
    assert_eq!((denied.status, denied.header("ratelimit-policy")), (429, policies.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_envoy_brings_along_applies() {
    let stand = Stand::start("partner", false).await;
    for left in ["2", "1", "0"] {
        let reply = stand.get("/partner", &[("x-user", "pia")]).await;
        assert_eq!((reply.status, reply.header("x-ratelimit-remaining")), (200, left.into()));
        assert_eq!(reply.header("x-ratelimit-limit"), "3, 3;w=3600;name=\"partners\"");
    }
    assert_eq!(stand.get("/partner", &[("x-user", "pia")]).await.status, 429, "three, and not ten");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_server_is_gone_requests_pass_or_fail_as_envoy_was_told_and_limits_hold_after() {
    for (name, denies) in [("open", false), ("shut", true)] {
        let mut stand = Stand::start(name, denies).await;
        let ask = async |stand: &Stand| stand.get("/", &[("x-user", "erin")]).await.status;
        for _ in 0..5 {
            assert_eq!(ask(&stand).await, 200);
        }
        stand.kill_server();
        for _ in 0..30 {
            assert_eq!(ask(&stand).await, if denies { 500 } else { 200 }, "failure_mode_deny: {denies}");
        }
        stand.start_server().await;
        stand.until_asked().await;
        // What the store had counted stands; what passed meanwhile was not counted.
        let replies = stand.get_at_once(50, "/", &[("x-user", "erin")]).await;
        assert_eq!(statuses(&replies), BTreeMap::from([(200, 15), (429, 35)]), "failure_mode_deny: {denies}");
    }
}

/// External authorization: each route names its policy.
#[tokio::test(flavor = "multi_thread")]
async fn routes_ask_for_authorization() {
    let change = ("failure_mode_allow: true", "failure_mode_allow: true");
    let mut stand = Stand::of("ext-authz.yaml", "authorization", change).await;
    let ask = async |stand: &Stand, path: &str, user: &str| stand.get(path, &[("x-user", user)]).await;
    for left in (0..20).rev() {
        let reply = ask(&stand, "/", "alice").await;
        assert_eq!((reply.status, reply.header("x-ratelimit-remaining")), (200, left.to_string()));
    }
    let denied = ask(&stand, "/", "alice").await;
    assert_eq!((denied.status, denied.header("content-type")), (429, "application/problem+json".into()));
    let wait: u64 = denied.header("retry-after").parse().unwrap();
    assert!((1..=3_600).contains(&wait));
    assert_eq!(ask(&stand, "/", "bob").await.status, 200);
    assert_eq!(stand.get("/", &[]).await.status, 400, "no key: denied, and not an error");
    // A request without a decision is forwarded too, so only the denial shows that the long key is counted.
    let long = "a".repeat(50 << 10);
    for left in (0..20).rev() {
        let reply = ask(&stand, "/", &long).await;
        assert_eq!((reply.status, reply.header("x-ratelimit-remaining")), (200, left.to_string()));
    }
    assert_eq!(ask(&stand, "/", &long).await.status, 429, "a long key is a key");
    let strange = stand.get_with(&[("x-user", "alice")], "x-other", &[0xff, 0xfe, 0x80]).await;
    assert_eq!(strange.status, 429, "bytes that are no UTF-8 are no error");
    let by_address = stand.get_at_once(50, "/open", &[]).await;
    assert_eq!(statuses(&by_address), BTreeMap::from([(200, 20), (429, 30)]));
    for _ in 0..30 {
        assert_eq!(ask(&stand, "/health", "alice").await.status, 200);
    }
    stand.kill_server();
    assert_eq!(ask(&stand, "/", "alice").await.status, 200, "failure_mode_allow: true");
}
