//! Tests of the service with an engine over memory and a manual clock.

use std::sync::Arc;

use proptest::prelude::*;
use prost_types::value::Kind;
use throttlekit::clock::ManualClock;
use throttlekit_proto::envoy::{
    Code, DescriptorStatus, Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest,
    RateLimitResponse, Unit,
};

use super::*;
use crate::access::Access;
use crate::engine::{Backend, EngineOptions};
use crate::policy::{DomainSpec, EntrySpec, HeadersSpec, PolicyFile, RuleSpec};

fn entry(key: &str, value: Option<&str>) -> EntrySpec {
    EntrySpec { key: key.into(), value: value.map(Into::into), ..EntrySpec::default() }
}

fn rule(entries: &[EntrySpec], policy: &str) -> RuleSpec {
    RuleSpec { entries: entries.to_vec(), policy: Some(policy.into()), ..RuleSpec::default() }
}

/// Returns a file with windows of ten a minute and three an hour, a smooth rate, a budget, and rules for them.
fn file() -> PolicyFile {
    let file = serde_json::json!({
        "version": 1,
        "policies": {
            "minute": { "rate": { "algorithm": "fixed_window", "limit": 10, "per": "1m" } },
            "hour": { "rate": { "algorithm": "fixed_window", "limit": 3, "per": "1h" } },
            "smooth": { "rate": { "limit": 2, "per": "1s", "burst": 3 } },
            "tokens": { "cost": { "budget": 100, "per": "1d" } },
            "trial": { "rate": { "algorithm": "fixed_window", "limit": 1, "per": "1m" }, "shadow": true },
            "own": { "rate": { "algorithm": "fixed_window", "limit": 10, "per": "1m" } },
            "paced": { "rate": { "limit": 10, "per": "1m" } },
            "blocked": { "deny": true },
            "off": { "rate": { "limit": 1, "per": "1m" }, "disabled": true },
            "both": { "rate": [
                { "name": "tenant", "algorithm": "fixed_window", "limit": 5, "per": "1m" },
                { "name": "user", "algorithm": "fixed_window", "limit": 2, "per": "1m", "by": 1 },
            ] },
        },
        "envoy": [{
            "domain": "edge",
            "metadata": true,
            "rules": [
                { "entries": [{ "key": "user" }], "policy": "minute" },
                { "entries": [{ "key": "user", "value": "root" }], "unlimited": true },
                { "entries": [{ "key": "ip" }], "policy": "hour" },
                { "entries": [{ "key": "smooth" }], "policy": "smooth" },
                { "entries": [{ "key": "model" }], "policy": "tokens" },
                { "entries": [{ "key": "trial" }], "policy": "trial" },
                { "entries": [{ "key": "own" }], "policy": "own", "allow_limit_override": true },
                { "entries": [{ "key": "paced" }], "policy": "paced", "allow_limit_override": true },
                { "entries": [{ "key": "back" }], "policy": "minute", "allow_refunds": true },
                { "entries": [{ "key": "tokens_back" }], "policy": "tokens", "allow_refunds": true },
                { "entries": [{ "key": "done" }], "policy": "minute", "debit": true },
                { "entries": [{ "key": "off" }], "policy": "off" },
                { "entries": [{ "key": "blocked" }], "policy": "blocked", "debit": true, "allow_refunds": true },
                { "entries": [{ "key": "partner" }], "policy": "hour", "replaces": ["minute"] },
                { "entries": [{ "key": "staff" }], "unlimited": true, "replaces": ["minute", "hour"] },
                { "entries": [{ "key": "tenant" }, { "key": "member", "by": 1 }], "policy": "both" },
            ],
        }, {
            "domain": "plain",
            "rules": [{ "entries": [{ "key": "user" }], "policy": "minute" }],
        }],
    });
    serde_json::from_value(file).unwrap()
}

fn api() -> EnvoyRls {
    let clock = Arc::new(ManualClock::at(WallClock.now()));
    let options = EngineOptions::over(Backend::memory_with_clock(clock));
    EnvoyRls::new(Engine::start(options, file()).unwrap())
}

fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).into(), value: value.to_string().into() };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..Default::default() }
}

fn hits(units: u64, entries: &[(&str, &str)]) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(units), ..descriptor(entries) }
}

fn request(descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: "edge".into(), descriptors, hits_addend: 0 }
}

async fn ask(api: &EnvoyRls, descriptors: Vec<RateLimitDescriptor>) -> RateLimitResponse {
    api.decide(&Caller::anyone(), &request(descriptors)).await.unwrap()
}

fn remaining(response: &RateLimitResponse) -> Vec<u32> {
    response.statuses.iter().map(|status| status.limit_remaining).collect()
}

fn said(response: &RateLimitResponse, field: &str) -> Option<Kind> {
    response.dynamic_metadata.as_ref()?.fields.get(field)?.kind.clone()
}

fn words(text: &str) -> Option<Kind> {
    Some(Kind::StringValue(text.into()))
}

#[tokio::test]
async fn the_tenth_passes_and_the_eleventh_is_over_the_limit() {
    let api = api();
    for left in (0..10).rev() {
        let response = ask(&api, vec![descriptor(&[("user", "alice")])]).await;
        assert_eq!((response.overall_code(), remaining(&response)), (Code::Ok, vec![left]));
    }
    let over = ask(&api, vec![descriptor(&[("user", "alice")])]).await;
    assert_eq!(over.overall_code(), Code::OverLimit);
    let limit = over.statuses[0].current_limit.clone().unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit(), limit.name.as_str()), (10, Unit::Minute, "minute"));
    let reset = over.statuses[0].duration_until_reset.unwrap();
    assert!((1..=60).contains(&reset.seconds) && reset.nanos == 0, "{reset:?}");
    let header = &over.response_headers_to_add[..];
    assert_eq!(header.iter().map(|header| header.key.as_str()).collect::<Vec<_>>(), ["retry-after"]);
    assert_eq!(said(&over, "binding_axis"), words("rate"));
    assert_eq!((said(&over, "limit_name"), said(&over, "policy")), (None, words("minute")));
    assert_eq!(said(&over, "guarantee"), words("exact"));
    assert_eq!(said(&over, "overshoot_bound"), Some(Kind::NumberValue(0.0)));
    assert!(matches!(said(&over, "retry_after_ms"), Some(Kind::NumberValue(wait)) if wait > 0.0));
    let bob = ask(&api, vec![descriptor(&[("user", "bob")])]).await;
    assert_eq!(remaining(&bob), [9]);
}

#[tokio::test]
async fn a_rule_replaces_the_policies_of_other_descriptors_of_the_request() {
    let api = api();
    let [user, ip] = [descriptor(&[("user", "a")]), descriptor(&[("ip", "b")])];
    let [partner, staff] = [descriptor(&[("partner", "p")]), descriptor(&[("staff", "s")])];
    for left in (0..3).rev() {
        let response = ask(&api, vec![user.clone(), partner.clone()]).await;
        assert_eq!(remaining(&response), [0, left], "the first is not counted");
    }
    assert_eq!(ask(&api, vec![partner.clone()]).await.overall_code(), Code::OverLimit);
    let response = ask(&api, vec![user.clone(), ip.clone(), partner, staff]).await;
    assert_eq!((response.overall_code(), remaining(&response)), (Code::Ok, vec![0, 0, 0, u32::MAX]));
    assert_eq!(remaining(&ask(&api, vec![user, ip]).await), [9, 2], "alone they are counted");
    assert_eq!(api.stats().unmatched, 0);
}

#[tokio::test]
async fn a_policy_that_denies_is_over_a_limit_of_zero() {
    let api = api();
    for units in [0, 1, 5] {
        let response = ask(&api, vec![hits(units, &[("blocked", "x")])]).await;
        assert_eq!((response.overall_code(), remaining(&response)), (Code::OverLimit, vec![0]));
        assert_eq!(response.statuses[0].current_limit.as_ref().map(|limit| limit.requests_per_unit), Some(0));
        assert_eq!(response.response_headers_to_add, [], "no wait helps");
    }
    let back = RateLimitDescriptor { is_negative_hits: true, ..hits(1, &[("blocked", "x")]) };
    assert_eq!(ask(&api, vec![back]).await.overall_code(), Code::OverLimit);
}

#[tokio::test]
async fn each_descriptor_is_charged_by_itself_and_told_in_its_place() {
    let api = api();
    let all = || vec![descriptor(&[("user", "a")]), descriptor(&[("who", "?")]), descriptor(&[("ip", "b")])];
    for left in (0..3).rev() {
        let response = ask(&api, all()).await;
        assert_eq!(remaining(&response), [7 + left, 0, left]);
    }
    let over = ask(&api, all()).await;
    let codes: Vec<_> = over.statuses.iter().map(DescriptorStatus::code).collect();
    assert_eq!((over.overall_code(), codes), (Code::OverLimit, vec![Code::Ok, Code::Ok, Code::OverLimit]));
    assert_eq!(said(&over, "policy"), words("hour"));
    // The first charge stays: this is what envoyproxy/ratelimit does.
    assert_eq!(remaining(&over), [6, 0, 0]);
    let Some(Kind::ListValue(list)) = said(&over, "descriptors") else { panic!("no list") };
    assert_eq!(list.values.len(), 3);
    assert_eq!(api.stats(), EnvoyStats { requests: 4, unmatched: 4, ..EnvoyStats::default() });
}

#[tokio::test]
async fn limits_of_one_policy_are_charged_together_or_not_at_all() {
    let api = api();
    let ask = async |member| ask(&api, vec![descriptor(&[("tenant", "acme"), ("member", member)])]).await;
    for _ in 0..2 {
        assert_eq!(ask("alice").await.overall_code(), Code::Ok);
    }
    for _ in 0..20 {
        let over = ask("alice").await;
        assert_eq!((over.overall_code(), said(&over, "limit_name")), (Code::OverLimit, words("user")));
    }
    // Alice's denials charged nothing to her tenant, which has three of five left.
    for (member, code) in
        [("bob", Code::Ok), ("bob", Code::Ok), ("carol", Code::Ok), ("carol", Code::OverLimit)]
    {
        assert_eq!(ask(member).await.overall_code(), code, "{member}");
    }
    assert_eq!(said(&ask("carol").await, "limit_name"), words("tenant"));
}

#[tokio::test]
async fn a_descriptors_own_addend_wins_and_zero_only_looks() {
    let api = api();
    let user = [("user", "alice")];
    let both =
        RateLimitRequest { hits_addend: 2, ..request(vec![hits(5, &user), descriptor(&[("ip", "b")])]) };
    let response = api.decide(&Caller::anyone(), &both).await.unwrap();
    assert_eq!(remaining(&response), [5, 1]);
    assert_eq!(remaining(&ask(&api, vec![hits(0, &user)]).await), [5]);
    assert_eq!(remaining(&ask(&api, vec![hits(0, &user)]).await), [5]);
    let more = ask(&api, vec![hits(6, &user)]).await;
    assert_eq!((more.overall_code(), remaining(&more)), (Code::OverLimit, vec![5]));
    let never = ask(&api, vec![hits(11, &user)]).await;
    assert_eq!(said(&never, "retry"), words("never"));
    assert_eq!(said(&never, "retry_after_ms"), None);
    assert!(never.response_headers_to_add.is_empty(), "waiting does not help");
    let empty = ask(&api, vec![hits(5, &user)]).await;
    assert_eq!(remaining(&empty), [0]);
    assert_eq!(ask(&api, vec![hits(0, &user)]).await.overall_code(), Code::OverLimit);
}

#[tokio::test]
async fn a_budget_is_debited_past_its_edge_once() {
    let api = api();
    let model = [("model", "m1")];
    assert_eq!(remaining(&ask(&api, vec![hits(0, &model)]).await), [100]);
    assert_eq!(remaining(&ask(&api, vec![hits(99, &model)]).await), [1]);
    let crossed = ask(&api, vec![hits(500, &model)]).await;
    assert_eq!((crossed.overall_code(), remaining(&crossed)), (Code::Ok, vec![0]));
    let over = ask(&api, vec![hits(0, &model)]).await;
    assert_eq!(over.overall_code(), Code::OverLimit);
    assert_eq!(over.statuses[0].current_limit.as_ref().unwrap().unit(), Unit::Day);
    let debit = ask(&api, vec![hits(1, &model)]).await;
    assert_eq!((debit.overall_code(), said(&debit, "binding_axis")), (Code::OverLimit, words("cost")));
}

#[tokio::test]
async fn a_domain_without_metadata_gets_none() {
    let plain =
        RateLimitRequest { domain: "plain".into(), ..request(vec![descriptor(&[("user", "alice")])]) };
    let response = api().decide(&Caller::anyone(), &plain).await.unwrap();
    assert_eq!((remaining(&response), response.dynamic_metadata), (vec![9], None));
}

#[tokio::test]
async fn what_has_no_limit_passes() {
    let api = api();
    for _ in 0..20 {
        let root = ask(&api, vec![descriptor(&[("user", "root")])]).await;
        assert_eq!((root.overall_code(), remaining(&root)), (Code::Ok, vec![u32::MAX]));
        let off = ask(&api, vec![descriptor(&[("off", "x")])]).await;
        assert_eq!((off.overall_code(), off.statuses[0].current_limit.clone()), (Code::Ok, None));
    }
    let elsewhere =
        RateLimitRequest { domain: "elsewhere".into(), ..request(vec![descriptor(&[("user", "a")])]) };
    let response = api.decide(&Caller::anyone(), &elsewhere).await.unwrap();
    assert_eq!((response.overall_code(), response.statuses.len()), (Code::Ok, 1));
    assert_eq!(response.dynamic_metadata, None);
}

#[tokio::test]
async fn a_policy_that_only_looks_marks_what_it_would_have_denied() {
    let api = api();
    let trial = || vec![descriptor(&[("trial", "x")])];
    assert_eq!(said(&ask(&api, trial()).await, "shadow_denied"), Some(Kind::BoolValue(false)));
    let response = ask(&api, trial()).await;
    assert_eq!(response.overall_code(), Code::Ok);
    assert_eq!(said(&response, "shadow_denied"), Some(Kind::BoolValue(true)));
    assert_eq!(said(&response, "binding_axis"), words("rate"));
}

#[tokio::test]
async fn a_smooth_rate_is_told_by_its_pace_and_its_burst() {
    let response = ask(&api(), vec![descriptor(&[("smooth", "x")])]).await;
    let limit = response.statuses[0].current_limit.clone().unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit()), (2, Unit::Second));
    assert_eq!(remaining(&response), [2]);
    assert_eq!(
        response.statuses[0].duration_until_reset.unwrap().seconds,
        1,
        "a part of a second is a whole one"
    );
}

#[tokio::test]
async fn what_cannot_be_done_is_counted_and_charges_nothing() {
    let api = api();
    let refund = RateLimitDescriptor { is_negative_hits: true, ..hits(3, &[("user", "a")]) };
    assert_eq!(remaining(&ask(&api, vec![refund]).await), [10]);
    let limit = Some(RateLimitOverride { requests_per_unit: 1, unit: 1 });
    let own = RateLimitDescriptor { limit, ..descriptor(&[("user", "a")]) };
    assert_eq!(remaining(&ask(&api, vec![own]).await), [9]);
    let stats = api.stats();
    assert_eq!((stats.refunds_ignored, stats.overrides_ignored), (1, 1));
}

fn own_limit(requests_per_unit: u32, unit: i32, entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let limit = Some(RateLimitOverride { requests_per_unit, unit });
    RateLimitDescriptor { limit, ..descriptor(entries) }
}

fn code(response: &RateLimitResponse) -> Code {
    response.statuses[0].code()
}

#[tokio::test]
async fn a_descriptor_brings_its_own_limit_where_the_rule_allows_it() {
    let api = api();
    for (key, unit) in [("own", Unit::Minute), ("own", Unit::Year), ("paced", Unit::Minute)] {
        let name = format!("{key}{}", unit as i32);
        let three = || own_limit(3, unit as i32, &[(key, &name)]);
        for left in [2, 1, 0] {
            let response = ask(&api, vec![three()]).await;
            assert_eq!((code(&response), remaining(&response)), (Code::Ok, vec![left]), "{name}");
            let limit = response.statuses[0].current_limit.clone().unwrap();
            assert_eq!((limit.requests_per_unit, limit.unit()), (3, unit));
        }
        assert_eq!(code(&ask(&api, vec![three()]).await), Code::OverLimit);
        let peek = RateLimitDescriptor { hits_addend: Some(0), ..three() };
        assert_eq!(code(&ask(&api, vec![peek]).await), Code::OverLimit);
    }
    // The counts are those of the key: its three requests count by the limit of the policy, and by another of its own.
    assert_eq!(remaining(&ask(&api, vec![descriptor(&[("own", "own2")])]).await), [6]);
    assert_eq!(remaining(&ask(&api, vec![own_limit(20, 2, &[("own", "own2")])]).await), [15]);
    assert_eq!(code(&ask(&api, vec![own_limit(0, 2, &[("own", "none")])]).await), Code::OverLimit);
    assert_eq!(api.stats().overrides_ignored, 0);
    // A unit that is not known leaves the limit of the policy.
    assert_eq!(remaining(&ask(&api, vec![own_limit(3, 99, &[("own", "odd")])]).await), [9]);
    assert_eq!(api.stats().overrides_ignored, 1);
}

#[tokio::test]
async fn negative_hits_are_returned_where_the_rule_allows_it_and_never_beyond_the_limit() {
    let api = api();
    let back = |key: &'static str, units| RateLimitDescriptor {
        is_negative_hits: true,
        ..hits(units, &[(key, "a")])
    };
    for (key, limit) in [("back", 10), ("tokens_back", 100)] {
        assert_eq!(remaining(&ask(&api, vec![hits(7, &[(key, "a")])]).await), [limit - 7]);
        assert_eq!(remaining(&ask(&api, vec![back(key, 4)]).await), [limit - 3]);
        assert_eq!(remaining(&ask(&api, vec![back(key, 50)]).await), [limit], "at most what was used");
    }
    assert_eq!(api.stats().refunds_ignored, 0);
}

#[tokio::test]
async fn hits_of_work_that_is_done_are_counted_in_full_beyond_the_limit() {
    let api = api();
    assert_eq!(remaining(&ask(&api, vec![hits(9, &[("done", "a")])]).await), [1]);
    assert_eq!(code(&ask(&api, vec![hits(30, &[("done", "a")])]).await), Code::Ok, "one was left");
    // It counts though nothing is left, and a return of as much as went beyond leaves nothing either.
    assert_eq!(code(&ask(&api, vec![hits(5, &[("done", "a")])]).await), Code::OverLimit);
    let back = RateLimitDescriptor { is_negative_hits: true, ..hits(34, &[("back", "a")]) };
    assert_eq!(remaining(&ask(&api, vec![back]).await), [0], "44 were counted");
    let back = RateLimitDescriptor { is_negative_hits: true, ..hits(1, &[("back", "a")]) };
    assert_eq!(remaining(&ask(&api, vec![back]).await), [1]);
}

#[tokio::test]
async fn a_new_file_brings_new_rules_and_counts_go_on() {
    let api = api();
    assert_eq!(remaining(&ask(&api, vec![hits(4, &[("user", "a")])]).await), [6]);
    let mut next = file();
    next.envoy[0].headers = HeadersSpec::All;
    next.envoy[0].rules = vec![rule(&[entry("member", None)], "minute")];
    api.shared.engine.reload(next).await.unwrap();
    let before = api.table();
    let gone = ask(&api, vec![descriptor(&[("user", "a")])]).await;
    assert_eq!(gone.statuses[0].current_limit, None);
    let response = ask(&api, vec![descriptor(&[("member", "a")])]).await;
    assert_eq!(remaining(&response), [5]);
    let headers: Vec<_> = response.response_headers_to_add.iter().map(|header| header.key.as_str()).collect();
    assert_eq!(headers, ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]);
    assert!(Arc::ptr_eq(&before, &api.table()), "one file is compiled once");
}

/// Returns the headers of a style, about a window with seven of ten left and a smooth rate.
async fn headers_of(style: HeadersSpec) -> Vec<(String, String)> {
    let api = api();
    let mut file = file();
    file.envoy[0].headers = style;
    api.shared.engine.reload(file).await.unwrap();
    let descriptors =
        vec![descriptor(&[("smooth", "a")]), hits(3, &[("user", "a")]), hits(0, &[("user", "b")])];
    let response = ask(&api, descriptors).await;
    let each = response.response_headers_to_add.into_iter().map(|header| (header.key, header.value));
    // A reset depends on the time of the test.
    each.filter(|(key, _)| !key.ends_with("reset")).collect()
}

#[tokio::test]
async fn each_style_has_its_headers_and_the_draft_has_a_member_for_each_policy() {
    let keys = |headers: &[(String, String)]| headers.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>();
    let legacy = ["x-ratelimit-limit", "x-ratelimit-remaining"];
    let draft = ["ratelimit-policy", "ratelimit"];
    assert!(
        headers_of(HeadersSpec::RetryAfter).await.is_empty()
            && headers_of(HeadersSpec::None).await.is_empty()
    );
    assert_eq!(keys(&headers_of(HeadersSpec::All).await), legacy);
    assert_eq!(keys(&headers_of(HeadersSpec::Both).await), [legacy, draft].concat());
    let headers = headers_of(HeadersSpec::Draft).await;
    assert_eq!(keys(&headers), draft);
    assert!(headers[0].1.starts_with(r#""minute";q=10;w=60, "smooth";q="#), "{}", headers[0].1);
    // Of both users with the policy, the one with less left.
    assert!(headers[1].1.starts_with(r#""minute";r=7;t="#), "{}", headers[1].1);
    assert!(headers[1].1.contains(r#", "smooth";r=2;t="#), "{}", headers[1].1);
}

#[tokio::test]
async fn descriptors_are_counted_by_their_rule() {
    let api = api();
    for _ in 0..12 {
        ask(&api, vec![descriptor(&[("user", "a")]), descriptor(&[("nobody", "a")])]).await;
    }
    ask(&api, vec![descriptor(&[("tenant", "t"), ("member", "m")])]).await;
    let counts = |entries: &str| {
        let all = api.rule_stats();
        let one = all.iter().find(|stats| &*stats.domain == "edge" && &*stats.entries == entries).unwrap();
        (one.within_limit, one.over_limit)
    };
    assert_eq!(counts("user"), (10, 2));
    assert_eq!(counts("tenant,member"), (1, 0));
    assert_eq!(counts("user=root"), (0, 0));
}

#[tokio::test]
async fn what_only_a_proxy_can_send_wrongly_is_refused_before_anything_is_charged() {
    let api = api();
    let one = || descriptor(&[("user", "a")]);
    let wrong = [
        request(vec![]),
        request(vec![one(); DESCRIPTORS_MAX + 1]),
        RateLimitRequest { domain: String::new(), ..request(vec![one()]) },
        RateLimitRequest { domain: "d".repeat(DOMAIN_BYTES_MAX + 1), ..request(vec![one()]) },
    ];
    for request in wrong {
        let status = api.decide(&Caller::anyone(), &request).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status:?}");
    }
    assert_eq!(remaining(&ask(&api, vec![one()]).await), [9]);
}

/// Sends everything that a client of the proxy can choose, beside a limit that is used up.
#[tokio::test]
async fn no_value_takes_a_client_past_a_limit() {
    let api = api();
    let ip = || descriptor(&[("ip", "mallory")]);
    for _ in 0..3 {
        assert_eq!(ask(&api, vec![ip()]).await.overall_code(), Code::Ok);
    }
    let long = |length: usize| vec![b'a'; length];
    let values = [long(0), long(1_025), long(8_193), long(60 << 10), vec![0xff, 0xfe], b"\0\n|\\#".to_vec()];
    for value in values {
        let hostile = RateLimitDescriptor {
            entries: vec![Entry { key: "user".into(), value: value.clone().into() }],
            ..Default::default()
        };
        for _ in 0..10 {
            let response = ask(&api, vec![hostile.clone(), ip()]).await;
            let codes: Vec<_> = response.statuses.iter().map(DescriptorStatus::code).collect();
            assert_eq!(codes, [Code::Ok, Code::OverLimit], "{} bytes", value.len());
            assert_eq!(response.overall_code(), Code::OverLimit);
        }
        let counted = ask(&api, vec![hostile]).await;
        assert_eq!(counted.overall_code(), Code::OverLimit, "ten a minute of {} bytes too", value.len());
    }
    let beyond = ask(&api, vec![hits(u64::MAX, &[("user", "b")]), descriptor(&[("smooth", "x")])]).await;
    let codes: Vec<_> = beyond.statuses.iter().map(DescriptorStatus::code).collect();
    assert_eq!(codes, [Code::OverLimit, Code::Ok]);
    let many = ask(&api, vec![descriptor(&[("user", "a"); 1_000]), ip()]).await;
    assert_eq!(many.overall_code(), Code::OverLimit);
}

/// Tests a proxy that may use keys of one prefix. Long values are compared before they are hashed.
#[tokio::test]
async fn keys_that_are_not_the_proxys_do_not_pass_and_the_others_are_charged() {
    let api = api();
    let access = serde_json::json!({
        "anonymous": [{ "endpoints": ["envoy"], "policies": ["minute"], "keys": "acme/" }],
    });
    let access = Access::of(&serde_json::from_value(access).unwrap()).unwrap();
    let caller = access.identify(&http::HeaderMap::new(), None).unwrap();
    let ask = async |values: &[&str]| {
        let descriptors = values.iter().map(|value| descriptor(&[("user", value)])).collect();
        let response = api.decide(&caller, &request(descriptors)).await.unwrap();
        response.statuses.iter().map(DescriptorStatus::code).collect::<Vec<_>>()
    };
    let long = format!("acme/{}", "x".repeat(2_000));
    assert_eq!(ask(&["acme/a", "other/a", &long]).await, [Code::Ok, Code::OverLimit, Code::Ok]);
    for _ in 0..9 {
        assert_eq!(ask(&[&long]).await, [Code::Ok]);
    }
    assert_eq!(ask(&[&long, "acme/a"]).await, [Code::OverLimit, Code::Ok]);
    assert_eq!(api.stats().refused, 1);
}

#[tokio::test]
async fn a_caller_without_the_endpoint_does_not_learn_which_descriptors_have_rules() {
    let api = api();
    let access = serde_json::json!({ "anonymous": [{ "endpoints": ["check"] }] });
    let access = Access::of(&serde_json::from_value(access).unwrap()).unwrap();
    let caller = access.identify(&http::HeaderMap::new(), None).unwrap();
    let malformed = RateLimitRequest::default();
    let (ruled, unruled) = (descriptor(&[("user", "a")]), descriptor(&[("nobody", "knows")]));
    for request in [request(vec![ruled]), request(vec![unruled]), request(vec![]), malformed] {
        let refused = api.decide(&caller, &request).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::PermissionDenied);
        assert_eq!(refused.message(), "an anonymous caller may not use Envoy");
    }
}

#[tokio::test]
async fn it_is_served_over_grpc() {
    use throttlekit_proto::envoy::rate_limit_service_client::RateLimitServiceClient;
    let mut client = RateLimitServiceClient::new(api().into_service());
    let response = client.should_rate_limit(request(vec![descriptor(&[("user", "a")])])).await.unwrap();
    assert_eq!(remaining(response.get_ref()), [9]);
}

fn domain(rules: Vec<RuleSpec>, tree: bool) -> Matcher {
    Matcher::of(&[DomainSpec { domain: "d".into(), rules, tree, ..DomainSpec::default() }])
}

fn found(matcher: &Matcher, entries: &[(&str, &str)]) -> Option<(String, String)> {
    let found = matcher.find("d", entries)?;
    let keys: Vec<_> = found.keys.iter().map(|key| String::from_utf8_lossy(key)).collect();
    Some((found.policy.unwrap_or("-").to_owned(), keys.join(" + ")))
}

#[test]
fn an_exact_value_comes_before_the_longest_prefix_before_any() {
    let rules = vec![
        rule(&[entry("path", None)], "any"),
        rule(&[entry("path", Some("/a*"))], "short"),
        rule(&[entry("path", Some("/api*"))], "long"),
        rule(&[entry("path", Some("/api/x"))], "exact"),
        rule(&[EntrySpec { shared: true, ..entry("path", Some("/s*")) }], "shared"),
    ];
    let matcher = domain(rules, false);
    let cases = [
        ("/api/x", "exact", ""),
        ("/api/y", "long", "/api/y"),
        ("/api", "long", "/api"),
        ("/ap", "short", "/ap"),
        ("/b", "any", "/b"),
        ("/static", "shared", ""),
        ("", "any", "\\e"),
    ];
    for (path, policy, key) in cases {
        assert_eq!(found(&matcher, &[("path", path)]), Some((policy.into(), key.into())), "{path}");
    }
    assert_eq!(found(&matcher, &[("path", "/b"), ("more", "x")]), None);
    assert_eq!(found(&matcher, &[]), None);
}

#[test]
fn a_tree_keeps_its_best_match_and_a_list_looks_on() {
    let rules = vec![
        rule(&[entry("tenant", Some("acme")), entry("path", Some("/x"))], "strict"),
        rule(&[entry("tenant", None), entry("path", None)], "general"),
    ];
    let off_the_path = [("tenant", "acme"), ("path", "/y")];
    assert_eq!(found(&domain(rules.clone(), true), &off_the_path), None);
    assert_eq!(found(&domain(rules, false), &off_the_path), Some(("general".into(), "acme|/y".into())));
}

#[test]
fn values_go_to_the_keys_that_their_entries_name() {
    let entries = [entry("a", None), EntrySpec { by: 2, ..entry("b", None) }, entry("c", None)];
    let matcher = domain(vec![rule(&entries, "p")], false);
    let found = matcher.find("d", &[("a", "1"), ("b", "2"), ("c", "3")]).unwrap();
    assert_eq!(found.keys, [&b"1|3"[..], b"", b"2"]);
}

#[test]
fn ten_thousand_rules_are_found_one_by_one() {
    let rules = (0..10_000).map(|n| rule(&[entry("id", Some(&n.to_string()))], &format!("p{n}"))).collect();
    let matcher = domain(rules, false);
    for n in 0..10_000 {
        let id = n.to_string();
        assert_eq!(matcher.find("d", &[("id", &id)]).unwrap().policy, Some(format!("p{n}").as_str()));
    }
    assert_eq!(matcher.find("d", &[("id", "10000")]), None);
}

/// Ranks how a rule matches a descriptor, best first: the reference for the matcher.
fn rank(rule: &RuleSpec, entries: &[(&str, &str)]) -> Option<Vec<(u8, usize)>> {
    if rule.entries.len() != entries.len() {
        return None;
    }
    let one = |(spec, (key, value)): (&EntrySpec, &(&str, &str))| {
        let same_key = spec.key == **key;
        match spec.value.as_deref().map(|value| value.strip_suffix('*').ok_or(value)) {
            _ if !same_key => None,
            None => Some((2, 0)),
            Some(Err(exact)) => (exact == *value).then_some((0, 0)),
            Some(Ok(prefix)) => value.starts_with(prefix).then_some((1, usize::MAX - prefix.len())),
        }
    };
    rule.entries.iter().zip(entries).map(one).collect()
}

fn any_entry() -> impl Strategy<Value = EntrySpec> {
    ("[kl]", prop::option::of("[ab]{0,2}[*]?")).prop_map(|(key, value)| entry(&key, value.as_deref()))
}

proptest! {
    #[test]
    fn the_rule_found_is_the_best_of_all(
        entries in prop::collection::vec(prop::collection::vec(any_entry(), 1..4), 0..12),
        asked in prop::collection::vec(("[kl]", "[abc]{0,3}"), 0..4),
    ) {
        let rules: Vec<_> = entries.iter().enumerate().map(|(n, e)| rule(e, &format!("p{n}"))).collect();
        let asked: Vec<_> = asked.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let matcher = domain(rules.clone(), false);
        let ranked = rules.iter().filter_map(|rule| Some((rank(rule, &asked)?, rule)));
        let best = ranked.min_by(|(one, _), (other, _)| one.cmp(other)).and_then(|(_, rule)| rule.policy.clone());
        let found = matcher.find("d", &asked).and_then(|found| found.policy);
        prop_assert_eq!(found, best.as_deref());
    }

    #[test]
    fn descriptors_of_one_rule_share_a_key_only_if_they_are_alike(
        one in prop::collection::vec("[a|\\\\e]{0,3}", 3), other in prop::collection::vec("[a|\\\\e]{0,3}", 3),
    ) {
        let matcher = domain(vec![rule(&["x", "y", "z"].map(|key| entry(key, None)), "p")], false);
        let keys = |values: &[String]| {
            let entries: Vec<_> = ["x", "y", "z"].into_iter().zip(values.iter().map(String::as_str)).collect();
            matcher.find("d", &entries).map(|found| found.keys)
        };
        prop_assert_eq!(keys(&one) == keys(&other), one == other);
    }
}

/// Envoy allows a request whose response is an error, also one of a proxy that exceeds its share.
#[tokio::test]
async fn a_proxy_that_gets_no_turn_is_told_that_the_limit_is_reached() {
    let api = api();
    let mut caller = Caller::anyone();
    caller.gets_no_turn();
    let answer = api.decide(&caller, &RateLimitRequest::default()).await.unwrap();
    assert_eq!(answer.overall_code(), Code::OverLimit);
    assert_eq!(api.stats().refused, 1);
}
