use std::path::Path;

use super::*;
use crate::engine::Refusal;
use crate::listen::Peer;
use crate::policy::{AccessSpec, Endpoint};

const BILLING: &str = "the token of billing";
const OPS: &str = "the token of operations";

fn digest(token: &str) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn spec(text: &str) -> AccessSpec {
    serde_saphyr::from_str(text).unwrap()
}

fn access() -> Access {
    let (billing, ops) = (digest(BILLING), digest(OPS));
    let text = format!(
        "principals:
  billing:
    token_sha256: {billing}
    certificate: spiffe://mesh/billing
    allow:
      - endpoints: [check, debit]
        policies: [chat, 'api-*']
        keys: acme/
      - {{endpoints: [peek], policies: [chat]}}
  ops: {{token_sha256: {ops}, certificate: 'dns:Ops.Example', allow: [{{endpoints: [monitor]}}]}}
  idle: {{certificate: 'spiffe://mesh/idle'}}
"
    );
    Access::of(&spec(&text)).unwrap()
}

fn headers(pairs: &[(&'static str, &str)]) -> http::HeaderMap {
    pairs.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())).collect()
}

fn bearer(token: &str) -> http::HeaderMap {
    headers(&[("authorization", &format!("Bearer {token}"))])
}

fn at(address: &str) -> Peer {
    Peer::at(format!("{address}:9").parse().unwrap())
}

fn with_names(names: &[&str]) -> Peer {
    Peer { names: names.iter().map(ToString::to_string).collect(), ..at("192.0.2.1") }
}

#[test]
fn a_principal_may_what_is_listed_and_nothing_else() {
    let caller = access().identify(&bearer(BILLING), None).unwrap();
    assert_eq!(caller.principal().name(), "billing");
    let table = [
        (Endpoint::Check, "chat", "acme/1", true),
        (Endpoint::Check, "api-", "acme/", true),
        (Endpoint::Check, "api-v2", "acme/x", true),
        (Endpoint::Debit, "chat", "acme/1", true),
        (Endpoint::Peek, "chat", "other", true),
        (Endpoint::Peek, "api-v2", "acme/1", false),
        (Endpoint::Check, "chat", "acme", false),
        (Endpoint::Check, "chat", "", false),
        (Endpoint::Check, "chat", "evil/acme/", false),
        (Endpoint::Check, "chats", "acme/1", false),
        (Endpoint::Check, "cha", "acme/1", false),
        (Endpoint::Check, "api", "acme/1", false),
        (Endpoint::Check, "", "acme/1", false),
        (Endpoint::Check, "*", "acme/1", false),
        (Endpoint::Admit, "chat", "acme/1", false),
        (Endpoint::Reserve, "chat", "acme/1", false),
        (Endpoint::Envoy, "chat", "acme/1", false),
        (Endpoint::Monitor, "chat", "acme/1", false),
    ];
    for (endpoint, policy, key, allowed) in table {
        let may = caller.may(endpoint, policy, key.as_bytes());
        assert_eq!(may.is_ok(), allowed, "{endpoint:?} {policy} {key}");
        assert!(allowed || matches!(may, Err(Refusal::Forbidden(_))));
    }
    assert!(caller.may_use(Endpoint::Peek).is_ok());
    assert!(matches!(caller.may_use(Endpoint::Admit), Err(Refusal::Forbidden(_))));
}

#[test]
fn a_refusal_does_not_repeat_the_key() {
    let caller = access().identify(&bearer(BILLING), None).unwrap();
    let refusal = caller.may(Endpoint::Check, "chat", b"secret-key").unwrap_err();
    assert!(!refusal.to_string().contains("secret-key"), "{refusal}");
}

#[test]
fn certificates_are_known_by_their_names() {
    let name = |names: &[&str]| {
        let found = access().identify(&http::HeaderMap::new(), Some(&with_names(names)));
        found.map(|caller| caller.principal().name().to_owned())
    };
    assert_eq!(name(&["dns:x", "spiffe://mesh/billing"]), Ok("billing".into()));
    assert_eq!(name(&["dns:ops.example"]), Ok("ops".into()));
    assert_eq!(name(&["spiffe://mesh/billing/x"]), Err(AuthError::NoToken));
    assert_eq!(name(&["dns:spiffe://mesh/billing"]), Err(AuthError::NoToken));
}

#[test]
fn a_wrong_token_is_refused_even_with_a_good_certificate() {
    let peer = with_names(&["spiffe://mesh/billing"]);
    for wrong in ["", "x", "the token of billin", "the token of billing!"] {
        let refused = access().identify(&bearer(wrong), Some(&peer)).unwrap_err();
        assert_eq!(refused, AuthError::WrongToken, "{wrong}");
    }
    let basic = headers(&[("authorization", "Basic dGhlIHRva2VuIG9mIGJpbGxpbmc=")]);
    assert_eq!(access().identify(&basic, Some(&peer)).unwrap_err(), AuthError::WrongToken);
    let two = headers(&[("x-fleet-secret", OPS), ("authorization", &format!("Bearer {BILLING}"))]);
    assert_eq!(access().identify(&two, None).unwrap_err(), AuthError::WrongToken);
}

#[test]
fn a_proxy_is_known_by_a_header_of_its_own_and_never_by_what_its_client_shows() {
    let name = |pairs: &[(&'static str, &str)], peer: Option<&Peer>| {
        let found = access().identify_proxy(&headers(pairs), &PROXY_TOKEN, peer);
        found.map(|caller| caller.principal().name().to_owned())
    };
    let (own, users) = (("x-throttlekit-token", BILLING), ("authorization", "Bearer of the user's own"));
    let stolen = format!("Bearer {OPS}");
    assert_eq!(name(&[own], None), Ok("billing".into()));
    assert_eq!(name(&[own, users], None), Ok("billing".into()));
    assert_eq!(
        name(&[own, ("authorization", &stolen), ("x-monitor-secret", OPS)], None),
        Ok("billing".into())
    );
    assert_eq!(name(&[("authorization", &stolen)], None), Err(AuthError::NoToken));
    assert_eq!(name(&[users], Some(&with_names(&["dns:ops.example"]))), Ok("ops".into()));
    assert_eq!(name(&[("x-throttlekit-token", "x"), users], None), Err(AuthError::WrongToken));
    let mut two = headers(&[own]);
    two.append("x-throttlekit-token", OPS.parse().unwrap());
    assert_eq!(access().identify_proxy(&two, &PROXY_TOKEN, None).unwrap_err(), AuthError::WrongToken);
    let open = Access::open(Secrets { monitor: Secret::of(b"look"), ..Secrets::default() });
    let caller = open.identify_proxy(&bearer("look"), &PROXY_TOKEN, Some(&at("127.0.0.1"))).unwrap();
    assert!(
        caller.may(Endpoint::Check, "p", b"k").is_ok() && caller.may(Endpoint::Monitor, "p", b"k").is_err()
    );
}

#[test]
fn nobody_in_particular_may_nothing_unless_stated() {
    let none = http::HeaderMap::new();
    assert_eq!(access().identify(&none, Some(&at("127.0.0.1"))).unwrap_err(), AuthError::NoToken);
    assert_eq!(
        Access::of(&AccessSpec::default()).unwrap().identify(&none, None).unwrap_err(),
        AuthError::NoToken
    );
    let some = Access::of(&spec("anonymous: [{endpoints: [check], policies: [public]}]")).unwrap();
    let caller = some.identify(&none, None).unwrap();
    assert!(caller.may(Endpoint::Check, "public", b"k").is_ok());
    assert!(caller.may(Endpoint::Check, "chat", b"k").is_err());
    assert!(caller.may(Endpoint::Peek, "public", b"k").is_err());
}

#[test]
fn old_clients_show_their_token_in_headers_of_their_own() {
    let caller = access().identify(&headers(&[("x-monitor-secret", OPS)]), None).unwrap();
    assert_eq!(caller.principal().name(), "ops");
    assert!(caller.may(Endpoint::Monitor, "any", b"any").is_ok());
}

#[test]
fn without_a_list_the_monitor_and_reserving_are_for_nobody() {
    let open = Access::open(Secrets::default());
    for endpoint in [Endpoint::Monitor, Endpoint::Reserve] {
        for peer in [None, Some(&at("127.0.0.1")), Some(&at("192.0.2.1"))] {
            let refused =
                open.identify(&bearer("guess"), peer).unwrap().may(endpoint, "p", b"k").unwrap_err();
            for remedy in ["-secret-file", "`access`", "--trust-loopback"] {
                assert!(refused.to_string().contains(remedy), "{refused}");
            }
        }
    }
    assert!(open.identify(&http::HeaderMap::new(), None).unwrap().may(Endpoint::Check, "p", b"k").is_ok());
}

#[test]
fn with_loopback_trust_the_monitor_and_reserving_are_for_this_machine() {
    let open = Access::open(Secrets { trust_loopback: true, ..Secrets::default() });
    let may = |peer: Option<&Peer>, headers: &http::HeaderMap, endpoint| {
        open.identify(headers, peer).unwrap().may(endpoint, "p", b"k").is_ok()
    };
    let none = http::HeaderMap::new();
    // Headers that a remote client could send to impersonate this machine.
    let forged = headers(&[
        ("x-forwarded-for", "127.0.0.1"),
        ("forwarded", "for=127.0.0.1"),
        ("x-real-ip", "127.0.0.1"),
        ("host", "localhost"),
        ("x-monitor-secret", ""),
    ]);
    for endpoint in [Endpoint::Monitor, Endpoint::Reserve] {
        for local in ["127.0.0.1", "127.8.8.8", "[::1]", "[::ffff:127.0.0.1]"] {
            assert!(may(Some(&at(local)), &none, endpoint), "{local}");
        }
        assert!(!may(Some(&at("192.0.2.1")), &none, endpoint));
        assert!(!may(Some(&at("192.0.2.1")), &forged, endpoint));
        assert!(!may(None, &forged, endpoint));
    }
    for endpoint in [Endpoint::Check, Endpoint::Peek, Endpoint::Debit, Endpoint::Admit, Endpoint::Envoy] {
        assert!(may(Some(&at("192.0.2.1")), &none, endpoint));
    }
}

#[test]
fn a_secret_is_demanded_from_everybody() {
    let monitor = Secret::of(b"look");
    let open = Access::open(Secrets { monitor, fleet: Secret::of(b"lend"), trust_loopback: true });
    let may = |headers: &http::HeaderMap, endpoint| {
        open.identify(headers, Some(&at("127.0.0.1"))).unwrap().may(endpoint, "p", b"k").is_ok()
    };
    assert!(!may(&http::HeaderMap::new(), Endpoint::Monitor));
    assert!(may(&headers(&[("x-monitor-secret", "look")]), Endpoint::Monitor));
    assert!(may(&bearer("look"), Endpoint::Monitor));
    assert!(!may(&bearer("look"), Endpoint::Reserve));
    assert!(may(&headers(&[("x-fleet-secret", "lend")]), Endpoint::Reserve));
    assert!(!may(&headers(&[("x-fleet-secret", "lend")]), Endpoint::Monitor));
    assert!(may(&bearer("nonsense"), Endpoint::Check));
}

#[test]
fn a_list_that_cannot_work_is_refused_with_its_reason() {
    let same = digest(BILLING);
    let table = [
        ("principals: {a: {}}".into(), "no credential"),
        ("principals: {a: {token_sha256: abc}}".into(), "64 hexadecimal digits"),
        ("principals: {a: {tokens: [{}]}}".into(), "no source"),
        ("principals: {a: {tokens: [{env: A, file: B}]}}".into(), "several sources"),
        ("principals: {a: {tokens: [{env: A}, {env: B}, {env: C}]}}".into(), "at most 2"),
        (format!("principals: {{a: {{tokens: [{{sha256: {same}, expires: tomorrow}}]}}}}"), "RFC 3339"),
        ("principals: {a: {certificate: 'spiffe://*'}}".into(), "at the end only"),
        ("principals: {a: {token_env: THROTTLEKIT_NO_SUCH}}".into(), "THROTTLEKIT_NO_SUCH"),
        ("principals: {a: {token_file: /no/such/file}}".into(), "/no/such/file"),
        ("principals: {a: {certificate: 'cn:x'}}".into(), "neither `dns:host`"),
        ("anonymous: [{endpoints: []}]".into(), "allows nothing"),
        ("anonymous: [{endpoints: [check], policies: ['a*b']}]".into(), "at the end"),
        (
            format!("principals: {{a: {{token_sha256: {same}}}, b: {{token_sha256: {same}}}}}"),
            "duplicate token",
        ),
        (
            "principals: {a: {certificate: 'dns:x'}, b: {certificate: 'dns:X'}}".into(),
            "duplicate certificate",
        ),
    ];
    for (text, why) in table {
        let error = Access::of(&spec(&text)).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
    assert!(serde_saphyr::from_str::<AccessSpec>("anonymous: [{endpoints: [everything]}]").is_err());
    assert!(serde_saphyr::from_str::<AccessSpec>("principal: {}").is_err());
}

#[test]
fn tokens_come_from_files_without_white_space_and_not_short() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let text =
        format!("principals: {{a: {{token_file: '{}', allow: [{{endpoints: [check]}}]}}}}", path.display());
    std::fs::write(&path, "short\n").unwrap();
    assert!(Access::of(&spec(&text)).unwrap_err().to_string().contains("too short"));
    std::fs::write(&path, format!("{BILLING}\n")).unwrap();
    let access = Access::of(&spec(&text)).unwrap();
    assert_eq!(access.identify(&bearer(BILLING), None).unwrap().principal().name(), "a");
    assert!(!format!("{access:?}").contains("token of"), "{access:?}");
}

#[test]
fn secrets_show_nothing() {
    let secret = Secret::of(b"hunter2hunter2").unwrap();
    assert_eq!(format!("{secret:?}"), "Secret(…)");
    assert!(Secret::of(b"").is_none());
}

#[test]
fn the_list_in_the_documentation_is_one() {
    let page = include_str!("../../../../docs/operate/security.md");
    let block = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let (file, warnings) = crate::policy::load(block).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    let access = Access::of(&file.access.unwrap()).unwrap();
    let caller = access.identify(&bearer("an-example-draw-your-own-with-openssl-rand-hex-32"), None).unwrap();
    assert!(caller.may(Endpoint::Check, "api-v1", b"acme/1").is_ok());
    assert!(caller.may(Endpoint::Check, "api-v1", b"other").is_err());
    let rotating = page.split("```yaml\n").nth(2).and_then(|rest| rest.split("```").next()).unwrap();
    let (file, warnings) = crate::policy::load(rotating).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    Access::of(&file.access.unwrap()).unwrap();
}

/// An API that was built without the identification layer is closed if the file lists principals.
#[tokio::test]
async fn where_nobody_looked_who_asks_nobody_may_once_there_is_a_list() {
    use crate::engine::{Backend, Engine, EngineOptions};
    let engine = |access: &str| {
        let text = format!("version: 1\npolicies: {{p: {{rate: {{limit: 5, per: 1m}}}}}}\n{access}");
        let (file, _) = crate::policy::load(&text).unwrap();
        Engine::start(EngineOptions::over(Backend::memory()), file).unwrap()
    };
    let endpoints = [
        Endpoint::Check,
        Endpoint::Peek,
        Endpoint::Debit,
        Endpoint::Admit,
        Endpoint::Reserve,
        Endpoint::Envoy,
        Endpoint::Monitor,
    ];
    let (open, listed) = (engine(""), engine("access: {anonymous: [{endpoints: [check]}]}"));
    for endpoint in endpoints {
        let may = |engine: &Engine| Caller::of(&http::Extensions::new(), engine).may(endpoint, "p", b"k");
        assert!(may(&open).is_ok(), "{endpoint:?}");
        assert!(matches!(may(&listed), Err(Refusal::Forbidden(_))), "{endpoint:?}");
        assert!(Caller::of(&http::Extensions::new(), &listed).may_use(endpoint).is_err(), "{endpoint:?}");
    }
    let body = serde_json::json!({ "policy": "p", "key": "k" }).to_string();
    let request = http::Request::post("/v1/check").header("content-type", "application/json");
    let request = request.body(axum::body::Body::from(body)).unwrap();
    let answer = tower::ServiceExt::oneshot(crate::api::http::router(listed), request).await.unwrap();
    assert_eq!(answer.status(), http::StatusCode::FORBIDDEN);
}

/// The author of the policy file chooses these paths: an endless or blocking file must not block the server.
#[test]
fn a_token_stands_in_an_ordinary_file_of_its_size() {
    let folder = tempfile::tempdir().unwrap();
    let long = folder.path().join("long");
    std::fs::write(&long, "x".repeat(5_000)).unwrap();
    let short = folder.path().join("short");
    std::fs::write(&short, "fifteen letters").unwrap();
    for path in [Path::new("/dev/zero"), folder.path(), &long, &short] {
        assert!(Secret::in_file(path).is_err(), "{}", path.display());
    }
    let good = folder.path().join("good");
    std::fs::write(&good, " sixteen letters!\n").unwrap();
    assert!(bool::from(Secret::in_file(&good).unwrap().is(&Secret::of(b"sixteen letters!").unwrap())));
}

#[test]
fn of_two_tokens_each_is_good_until_it_expires() {
    let (old, new) = (digest(BILLING), digest(OPS));
    let text = format!(
        "principals: {{a: {{allow: [{{endpoints: [check]}}], tokens: [
           {{sha256: {old}, expires: '2026-12-01T00:00:00Z'}}, {{sha256: {new}}}]}}}}"
    );
    let access = Access::of(&spec(&text)).unwrap();
    let clock =
        throttlekit::clock::ManualClock::at(throttlekit::rate::Timestamp::from_millis(1_796_083_199_999));
    let name = |token: &str| {
        let found = access.identify_at(&bearer(token), None, &clock);
        found.map(|caller| caller.principal().name().to_owned())
    };
    assert_eq!((name(BILLING), name(OPS)), (Ok("a".into()), Ok("a".into())));
    clock.advance(std::time::Duration::from_millis(1));
    assert_eq!((name(BILLING), name(OPS)), (Err(AuthError::ExpiredToken), Ok("a".into())));
    assert_eq!(name("another"), Err(AuthError::WrongToken));
}

#[test]
fn a_token_that_two_principals_come_to_share_is_nobodys_and_others_stay() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, token: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, token).unwrap();
        path.display().to_string()
    };
    let (a, b) = (file("a", BILLING), file("b", BILLING));
    let spec = spec(&format!(
        "principals: {{a: {{token_file: '{a}'}}, b: {{token_file: '{b}'}}, c: {{token_sha256: {}}}}}",
        digest(OPS)
    ));
    assert!(
        Access::of(&spec)
            .unwrap_err()
            .to_string()
            .contains("principals.b: token_file: duplicate token, also of another principal: `a`")
    );
    let held = SecretCache::of(read_secrets(sources(&spec)));
    let built = Access::build(Some(&spec), &Secrets::default(), &held, &Default::default()).unwrap();
    assert_eq!(built.failing.len(), 1);
    assert_eq!(built.access.identify(&bearer(BILLING), None).unwrap_err(), AuthError::WrongToken);
    assert_eq!(built.access.identify(&bearer(OPS), None).unwrap().principal().name(), "c");
}

#[test]
fn refusals_are_counted_by_reason_and_looking_is_none() {
    let access = access();
    let counted = |reason: &str| {
        let counts = access.refusals().counts();
        counts.into_iter().find(|(label, _)| *label == reason).unwrap().1
    };
    let caller = access.identify(&bearer(BILLING), None).unwrap();
    assert!(caller.may(Endpoint::Check, "chat", b"acme/1").is_ok());
    assert!(!caller.allows(Endpoint::Check, "chat", b"other"));
    assert_eq!(counted("forbidden"), 0);
    assert!(caller.may(Endpoint::Check, "chat", b"other").is_err());
    assert!(caller.may(Endpoint::Monitor, "chat", b"").is_err());
    assert!(caller.may_use(Endpoint::Admit).is_err());
    assert_eq!(counted("forbidden"), 3);
    let open = Access::open(Secrets::default());
    assert!(open.identify(&http::HeaderMap::new(), None).unwrap().may_use(Endpoint::Reserve).is_err());
    assert!(open.refusals().counts().contains(&("no_secret", 1)));
}

/// The old list compared a token with all of them: with a thousand, a request cost four times as much as with one.
#[test]
fn finding_a_caller_costs_the_same_among_a_thousand_and_alone() {
    use throttlekit::clock::{Clock, PreciseClock};
    let list = |count: usize| {
        let one = |i| format!("p{i}: {{token_sha256: {}}}", digest(&format!("the token number {i:04}")));
        let all: Vec<_> = (0..count).map(one).collect();
        Access::of(&spec(&format!("principals: {{{}}}", all.join(", ")))).unwrap()
    };
    let (one, many, clock) = (list(1), list(1_000), PreciseClock::new());
    let (right, wrong) = (bearer("the token number 0000"), bearer("the token number none"));
    let time = |access: &Access, headers: &http::HeaderMap| {
        let start = clock.now();
        (0..200).for_each(|_| drop(std::hint::black_box(access.identify(headers, None))));
        clock.now().since(start)
    };
    // The minimum of interleaved rounds: other work on the machine only adds time.
    let (mut alone, mut among, mut nobody) = ([std::time::Duration::MAX; 3]).into();
    for _ in 0..200 {
        alone = alone.min(time(&one, &right));
        among = among.min(time(&many, &right));
        nobody = nobody.min(time(&many, &wrong));
    }
    assert!(among <= 2 * alone && nobody <= 2 * alone, "{alone:?} {among:?} {nobody:?}");
}
