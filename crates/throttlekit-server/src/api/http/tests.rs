//! The HTTP API with an engine over memory: every route, and that its responses match the OpenAPI document.

use std::net::SocketAddr;

use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use throttlekit::clock::ManualClock;
use throttlekit::rate::Timestamp;
use tower::{Layer, ServiceExt};

use super::*;
use crate::access::{Access, Identify};
use crate::engine::{Backend, EngineOptions};
use crate::listen::Peer;
use crate::{StoreOptions, StoreUrl};

fn engine() -> Engine {
    let file = json!({
        "version": 1,
        "policies": {
            "api": { "rate": { "algorithm": "fixed_window", "limit": 3, "per": "1m" } },
            "two": { "rate": [
                { "name": "user", "algorithm": "fixed_window", "limit": 3, "per": "1m" },
                { "name": "org", "algorithm": "fixed_window", "limit": 1, "per": "1m", "by": 1 },
            ] },
            "tokens": { "cost": { "budget": 10, "per": "1d" } },
            "learned": { "cost": { "budget": 100_000, "per": "1d" }, "learn": {} },
            "work": { "concurrency": { "limit": 1 }, "rate": { "limit": 100, "per": "1s" } },
            "lent": { "rate": { "algorithm": "fixed_window", "limit": 8, "per": "1h" }, "fleet": {} },
            "off": { "rate": { "limit": 1, "per": "1m" }, "disabled": true },
        },
    });
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000_000_000)));
    let options = EngineOptions::over(Backend::memory_with_clock(clock));
    Engine::start(options, serde_json::from_value(file).unwrap()).unwrap()
}

async fn send(router: &Router, request: Request<Body>) -> Response {
    router.clone().oneshot(request).await.unwrap()
}

async fn text(response: Response) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

fn request(path: &str, body: &Value) -> Request<Body> {
    let request = Request::post(path).header("content-type", "application/json");
    request.body(Body::from(body.to_string())).unwrap()
}

async fn post(router: &Router, path: &str, body: &Value) -> (StatusCode, Value) {
    let response = send(router, request(path, body)).await;
    let status = response.status();
    (status, serde_json::from_str(&text(response).await).unwrap())
}

async fn ok(router: &Router, path: &str, body: &Value) -> Value {
    let (status, answer) = post(router, path, body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

#[tokio::test]
async fn a_denial_is_an_answer_unless_429_is_asked_for() {
    let router = router(engine());
    let ask = json!({ "policy": "api", "key": "alice" });
    for left in [2, 1, 0] {
        let decision = &ok(&router, "/v1/check", &ask).await["decision"];
        assert_eq!((&decision["allowed"], &decision["remaining"]), (&json!(true), &json!(left)));
    }
    let denied = ok(&router, "/v1/check", &ask).await;
    let expected = json!({ "decision": {
        "allowed": false, "limit": 3, "remaining": 0, "reset_at": 1_000_020_000, "retry_after_ms": 20_000,
        "retry": "after", "guarantee": "exact", "overshoot_bound": 0, "binding_axis": "rate",
        "limit_name": "", "policy_denied": false, "shadow_denied": false,
    } });
    assert_eq!(denied, expected);
    let response = send(&router, request("/v1/check?status=429", &ask)).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["retry-after"], "20");
    assert_eq!(serde_json::from_str::<Value>(&text(response).await).unwrap(), expected);
    let never = ok(&router, "/v1/check", &json!({ "policy": "api", "key": "bob", "cost": 4 })).await;
    assert_eq!(never["decision"]["retry"], "never");
    let off = ok(&router, "/v1/check", &json!({ "policy": "off", "key": "bob" })).await;
    assert_eq!(off["decision"]["remaining"], json!((1_u64 << 53) - 1), "every reader holds it exactly");
}

#[tokio::test]
async fn several_keys_are_asked_together_or_each_by_itself() {
    let router = router(engine());
    let ask = |key: &str| json!({ "policy": "two", "key": key, "keys": ["org"] });
    assert_eq!(ok(&router, "/v1/check", &ask("a")).await["decision"]["allowed"], true);
    assert_eq!(ok(&router, "/v1/check", &ask("b")).await["decision"]["allowed"], false);
    let alone = post(&router, "/v1/check", &json!({ "policy": "two", "key": "b" })).await;
    assert_eq!(alone.0, StatusCode::BAD_REQUEST, "the key that the org's limit goes by has to come along");
    let many = json!({ "policy": "api", "keys": ["x", "y", "x", "x", "x"] });
    let answers = ok(&router, "/v1/check_many", &many).await;
    let allowed: Vec<_> =
        answers["decisions"].as_array().unwrap().iter().map(|one| &one["allowed"]).collect();
    assert_eq!(allowed, [true, true, true, true, false]);
}

#[tokio::test]
async fn a_debit_with_a_name_counts_once() {
    let router = router(engine());
    let debit = |number: u64| json!({ "policy": "tokens", "key": "a", "tokens": 4, "stream": "0123456789abcdef0123456789abcdef", "number": number });
    for (number, left) in [(1, 6), (1, 6), (2, 2)] {
        assert_eq!(ok(&router, "/v1/debit", &debit(number)).await["decision"]["remaining"], left);
    }
    assert_eq!(post(&router, "/v1/debit", &debit(0)).await.0, StatusCode::BAD_REQUEST);
    let peek = ok(&router, "/v1/peek", &json!({ "policy": "tokens", "key": "a" })).await;
    assert_eq!(peek["decision"]["remaining"], 2);
}

#[tokio::test]
async fn a_slot_is_held_until_it_is_released() {
    let router = router(engine());
    let ask = json!({ "policy": "work", "key": "a" });
    let admitted = ok(&router, "/v1/admit", &ask).await;
    assert_eq!(admitted["lease_for_ms"], 2_000, "as long as a client counts by its own clock");
    let lease = admitted["lease_id"].as_str().unwrap().to_owned();
    assert_eq!(lease.len(), 32);
    let full = ok(&router, "/v1/admit", &ask).await;
    assert_eq!(full["decision"]["binding_axis"], "concurrency");
    assert_eq!((&full["decision"]["retry"], &full["lease_id"]), (&json!("on_release"), &json!("")));
    let heartbeats = ok(&router, "/v1/heartbeat", &json!({ "lease_ids": ["nobody's", lease] })).await;
    assert_eq!(
        (&heartbeats["live_ids"], &heartbeats["reclaimed_ids"]),
        (&json!([lease]), &json!(["nobody's"]))
    );
    for _ in 0..2 {
        assert_eq!(ok(&router, "/v1/release", &json!({ "lease_id": lease })).await, json!({}));
    }
    assert_eq!(ok(&router, "/v1/admit", &ask).await["decision"]["allowed"], true);
}

#[tokio::test]
async fn a_call_without_a_cost_reserves_its_input_and_what_was_learned() {
    let router = router(engine());
    let hint = json!({ "input_tokens": 200, "class": "small" });
    let ask = json!({ "policy": "learned", "key": "a", "hint": hint });
    for used in [210; 42] {
        let admitted = ok(&router, "/v1/admit", &ask).await;
        ok(&router, "/v1/release", &json!({ "lease_id": admitted["lease_id"], "actual_cost": used })).await;
    }
    let reserved = async |ask: &Value| ok(&router, "/v1/admit", ask).await["reserved"].as_u64().unwrap();
    let learned = reserved(&ask).await;
    assert!((205..=210).contains(&learned), "{learned}");
    let mut ask = ask;
    ask["hint"]["max_tokens"] = 4.into();
    assert_eq!(reserved(&ask).await, 204);
    ask["cost"] = 7.into();
    assert_eq!(reserved(&ask).await, 0, "the cost of the call is reserved");
}

#[tokio::test]
async fn units_are_lent_and_handed_back() {
    let router = router(engine());
    let first = ok(&router, "/v1/reserve", &json!({ "policy": "lent", "key": "a", "wants": 8 })).await;
    assert_eq!(first["lease"]["capacity"], 8);
    let back = json!({ "return_id": first["lease"]["return_id"], "units": 5 });
    let second = json!({ "policy": "lent", "key": "a", "wants": 8, "returned": back });
    assert_eq!(ok(&router, "/v1/reserve", &second).await["lease"]["capacity"], 5);
    let none = ok(&router, "/v1/reserve", &json!({ "policy": "lent", "key": "a" })).await;
    assert_eq!(none["lease"]["capacity"], 0);
    assert!(none["lease"]["retry_after_ms"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn what_is_not_understood_is_a_problem_that_says_what_to_do() {
    let router = router(engine());
    let big = json!({ "policy": "api", "key": "x".repeat(BODY_BYTES_MAX) });
    let cases = [
        ("/v1/check", json!({ "policy": "api", "key": "a", "costs": 1 }), 400, "unknown field `costs`"),
        ("/v1/check", json!({ "policy": "api" }), 400, "missing field `key`"),
        ("/v1/check", json!({ "policy": "api", "key": "a", "cost": -1 }), 400, "expected u64"),
        ("/v1/check", json!({ "policy": "nobody", "key": "a" }), 404, "load a policy file"),
        ("/v1/check", json!({ "policy": "work", "key": "a" }), 422, "use Admit"),
        ("/v1/check", big, 413, "send several"),
        ("/v1/check", json!({ "policy": "api", "key": "x".repeat(1_025) }), 400, "send a hash"),
        ("/v1/check?status=500", json!({ "policy": "api", "key": "a" }), 400, "`status=429`"),
        ("/v1/check?stat=429", json!({ "policy": "api", "key": "a" }), 400, "`status=429`"),
        ("/v1/debit", json!({ "lease_id": "x" }), 400, "not issued by admit"),
        ("/v1/checks", json!({}), 404, "/openapi.json"),
    ];
    for (path, body, status, about) in cases {
        let response = send(&router, request(path, &body)).await;
        assert_eq!((response.status().as_u16(), about), (status, about), "{path}");
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        let problem: Value = serde_json::from_str(&text(response).await).unwrap();
        assert!(problem["detail"].as_str().unwrap().contains(about), "{problem}");
        assert_eq!(problem["status"], status);
    }
    let plain = Request::post("/v1/check").body(Body::from("{}")).unwrap();
    assert_eq!(send(&router, plain).await.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(send(&router, get("/v1/check")).await.status(), StatusCode::METHOD_NOT_ALLOWED);
    let left = ok(&router, "/v1/peek", &json!({ "policy": "api", "key": "a" })).await;
    assert_eq!(left["decision"]["remaining"], 3, "nothing of this was charged");
}

#[tokio::test]
async fn a_proxy_is_told_yes_or_no_with_headers() {
    let router = router(engine());
    for left in ["2", "1", "0"] {
        let response = send(&router, get("/v1/forward-auth/api?key=alice")).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["x-ratelimit-remaining"], left);
        assert_eq!(response.headers()["ratelimit-policy"], r#""api";q=3;w=60"#);
    }
    let denied = send(&router, get("/v1/forward-auth/api?key=alice")).await;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(denied.headers()["retry-after"], "20");
    assert_eq!(denied.headers()["content-type"], "application/problem+json");
    let problem: Value = serde_json::from_str(&text(denied).await).unwrap();
    assert_eq!(problem["violated-policies"], json!(["api"]));
    let nginx = send(&router, get("/v1/forward-auth/api?key=alice&deny=403")).await;
    assert_eq!(
        (nginx.status(), &nginx.headers()["retry-after"]),
        (StatusCode::FORBIDDEN, &"20".parse().unwrap())
    );
    assert_eq!(send(&router, get("/v1/forward-auth/off?key=alice")).await.status(), StatusCode::OK);
    for wrong in ["nobody?key=a", "api?deny=500", "api?key=a&key_header=b", "api?keys=a", "work?key=a"] {
        let status = send(&router, get(&format!("/v1/forward-auth/{wrong}"))).await.status();
        assert!(status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS, "{wrong}: {status}");
    }
}

#[tokio::test]
async fn a_grpc_call_is_denied_by_the_status_that_proxies_read() {
    let router = router(engine());
    let ask = || {
        let request = Request::builder().method(Method::PUT).uri("/v1/forward-auth/api?key=a&cost=2");
        request.header("content-type", "application/grpc").body(Body::empty()).unwrap()
    };
    assert_eq!(send(&router, ask()).await.status(), StatusCode::OK);
    assert_eq!(send(&router, ask()).await.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn a_proxy_counts_by_a_header_sent_once() {
    let router = router(engine());
    let ask = |tenants: &[&str]| {
        let request = tenants
            .iter()
            .fold(Request::get("/v1/forward-auth/api?key_header=x-tenant"), |r, t| r.header("x-tenant", *t));
        request.body(Body::empty()).unwrap()
    };
    assert_eq!(send(&router, ask(&["acme"])).await.headers()["x-ratelimit-remaining"], "2");
    let same = ok(&router, "/v1/check", &json!({ "policy": "api", "key": "acme" })).await;
    assert_eq!(same["decision"]["remaining"], 1, "the key is the header's value, through every API");
    for none in [&[][..], &[""], &["acme", "other"]] {
        assert_eq!(send(&router, ask(none)).await.status(), StatusCode::BAD_REQUEST, "{none:?}");
    }
}

#[tokio::test]
async fn an_address_is_read_past_trusted_proxies_and_no_further() {
    let ask = |forwarded: &str| {
        let request = Request::get("/v1/forward-auth/api").header("x-forwarded-for", forwarded);
        request.extension(Peer::at(SocketAddr::from(([10, 0, 0, 1], 9)))).body(Body::empty()).unwrap()
    };
    let left = |response: &Response| response.headers()["x-ratelimit-remaining"].to_str().unwrap().to_owned();
    let behind = HttpApi::new(engine()).trusted_hops(1).into_router();
    for (forwarded, remaining) in [("192.0.2.1", "2"), ("6.6.6.6, 192.0.2.1", "1"), ("192.0.2.2", "2")] {
        assert_eq!(left(&send(&behind, ask(forwarded)).await), remaining, "{forwarded}");
    }
    let direct = router(engine());
    for (forwarded, remaining) in [("192.0.2.1", "2"), ("192.0.2.2", "1")] {
        assert_eq!(left(&send(&direct, ask(forwarded)).await), remaining, "nobody's word is taken");
    }
    let unknown = send(&direct, get("/v1/forward-auth/api")).await;
    assert_eq!(unknown.status(), StatusCode::INTERNAL_SERVER_ERROR);
}

/// Checks a value against a schema. Fails on an unknown keyword, so that nothing goes unchecked.
fn fits(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let wrong = |why: String| Err(format!("{why}: {value} is not {schema}"));
    let Some(schema) = schema.as_object() else { return wrong("no schema".into()) };
    for (word, says) in schema {
        let holds = match word.as_str() {
            "$ref" => {
                let place = says.as_str().unwrap().strip_prefix('#').unwrap();
                fits(document, document.pointer(place).ok_or(format!("{place} is nowhere"))?, value)
                    .map(|()| true)?
            }
            "type" => {
                let kinds = says.as_array().cloned().unwrap_or_else(|| vec![says.clone()]);
                kinds.iter().any(|kind| match kind.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "integer" => value.is_u64(),
                    "null" => value.is_null(),
                    _ => false,
                })
            }
            "required" => {
                says.as_array().unwrap().iter().all(|name| value.get(name.as_str().unwrap()).is_some())
            }
            "additionalProperties" => {
                assert_eq!(says, &json!(false));
                let known = schema.get("properties").and_then(Value::as_object);
                let mut names = value.as_object().into_iter().flat_map(|object| object.keys());
                names.all(|name| known.is_some_and(|known| known.contains_key(name)))
            }
            "properties" => {
                for (name, schema) in says.as_object().unwrap() {
                    value.get(name).map_or(Ok(()), |value| fits(document, schema, value))?;
                }
                true
            }
            "items" => value
                .as_array()
                .into_iter()
                .flatten()
                .try_for_each(|value| fits(document, says, value))
                .map(|()| true)?,
            "minimum" => !value.is_number() || value.as_f64() >= says.as_f64(),
            "maximum" => !value.is_number() || value.as_f64() <= says.as_f64(),
            "const" => value == says,
            "enum" => says.as_array().unwrap().contains(value),
            "oneOf" | "anyOf" => {
                says.as_array().unwrap().iter().any(|one| fits(document, one, value).is_ok())
            }
            "description" | "format" | "default" | "title" => true,
            _ => return wrong(format!("`{word}` is not known here")),
        };
        if !holds {
            return wrong(format!("`{word}`"));
        }
    }
    Ok(())
}

#[tokio::test]
async fn every_route_is_described_and_answers_as_described() {
    let router = router(engine());
    let document: Value =
        serde_json::from_str(&text(send(&router, get("/openapi.json")).await).await).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let asks = [
        ("/v1/check", json!({ "policy": "api", "key": "a", "cost": 1, "keys": [] })),
        ("/v1/check_many", json!({ "policy": "api", "keys": ["a", "b", "a", "a"], "cost": 0, "others": [] })),
        ("/v1/peek", json!({ "policy": "api", "key": "a", "keys": [] })),
        ("/v1/forecast", json!({ "policy": "api", "key": "a", "cost": 2, "keys": [] })),
        (
            "/v1/debit",
            json!({ "policy": "tokens", "key": "a", "tokens": 3, "stream": "", "number": 0, "lease_id": "", "keys": [] }),
        ),
        (
            "/v1/admit",
            json!({ "policy": "work", "key": "a", "cost": 1, "hold": 5, "value": 1, "keys": [], "wait_ms": 0, "priority": 0,
                "hint": { "input_tokens": 3, "max_tokens": 9, "class": "small" } }),
        ),
        (
            "/v1/release",
            json!({ "lease_id": "x", "dropped": true, "actual_cost": null, "ignored": false, "latency_ms": 3 }),
        ),
        ("/v1/heartbeat", json!({ "lease_ids": ["x"] })),
        ("/v1/admin/reset", json!({ "policy": "api", "key": "a", "keys": [] })),
        ("/v1/admin/grant", json!({ "policy": "api", "key": "a", "keys": [], "units": 1, "id": "x" })),
        (
            "/v1/admin/set_plan",
            json!({ "policy": "api", "name": "gold", "limits": { "rates": [{ "limit": 9 }] } }),
        ),
        ("/v1/admin/list_plans", json!({ "policy": "api" })),
        (
            "/v1/admin/set_override",
            json!({ "policy": "api", "key": "b", "limits": null, "plan": "gold", "for_ms": 9_000, "expires_at": 0 }),
        ),
        (
            "/v1/admin/list_overrides",
            json!({ "policy": "api", "prefix": "", "page_size": 5, "page_token": "" }),
        ),
        ("/v1/admin/remove_override", json!({ "policy": "api", "key": "b" })),
        ("/v1/admin/remove_plan", json!({ "policy": "api", "name": "gold" })),
        (
            "/v1/admin/list_leases",
            json!({ "filter": { "policy": "work" }, "page_size": 5, "page_token": "" }),
        ),
        ("/v1/admin/release_leases", json!({ "filter": { "policy": "work" } })),
        ("/v1/admin/reload", json!({})),
        ("/v1/admin/set_log_filter", json!({ "filter": "info" })),
        ("/v1/admin/get_config", json!({})),
        ("/v1/admin/drain", json!({})),
        ("/v1/reserve", json!({ "policy": "lent", "key": "a", "wants": 1, "returned": null, "keys": [] })),
    ];
    let looks = ["/healthz", "/readyz", "/openapi.json", "/v1/forward-auth/{policy}"];
    let mut described: Vec<_> = document["paths"].as_object().unwrap().keys().cloned().collect();
    described.sort();
    let mut known: Vec<_> = asks.iter().map(|(path, _)| *path).chain(looks).collect();
    known.sort_unstable();
    assert_eq!(described, known);
    for (path, body) in &asks {
        let ask = &document["paths"][path]["post"];
        let taken = &ask["requestBody"]["content"]["application/json"]["schema"];
        fits(&document, taken, body).unwrap();
        let reads = |name: &str| {
            document.pointer(&taken["$ref"].as_str().unwrap()[1..]).unwrap()["properties"].get(name).is_some()
        };
        assert!(body.as_object().unwrap().keys().all(|name| reads(name)), "{path}");
        for body in [body, &json!({ "policy": "nobody", "keys": [], "key": "a" })] {
            let response = send(&router, request(path, body)).await;
            let status = response.status();
            let (status, kind) = if status.is_success() {
                ("200", "application/json")
            } else {
                ("default", "application/problem+json")
            };
            assert_eq!(response.headers()["content-type"], kind);
            let answer: Value = serde_json::from_str(&text(response).await).unwrap();
            let given = &ask["responses"][status]["content"][kind]["schema"];
            fits(&document, given, &answer).unwrap_or_else(|why| panic!("{path}: {why}"));
        }
    }
    for path in &looks[..3] {
        let response = send(&router, get(path)).await;
        assert_eq!(response.status(), StatusCode::OK);
        let schema =
            &document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"];
        let answer = serde_json::from_str(&text(response).await).unwrap();
        fits(&document, schema, &answer).unwrap();
    }
    let strange = json!({ "decision": { "allowed": 1 } });
    let schema =
        &document["paths"]["/v1/check"]["post"]["responses"]["200"]["content"]["application/json"]["schema"];
    assert!(fits(&document, schema, &strange).is_err(), "a check that passes everything finds nothing");
}

/// An engine whose store does not respond.
async fn without_store(policies: Value) -> Engine {
    let nowhere = StoreUrl::parse("redis://127.0.0.1:1").unwrap();
    let nowhere = nowhere.connect(&StoreOptions::default()).await.unwrap();
    let file = serde_json::from_value(json!({ "version": 1, "policies": policies })).unwrap();
    Engine::start(EngineOptions::over(nowhere), file).unwrap()
}

#[tokio::test]
async fn a_proxy_is_told_that_the_store_is_away() {
    let api = json!({ "rate": { "limit": 1, "per": "1d" }, "on_outage": "closed" });
    let router = router(without_store(json!({ "api": api })).await);
    for request in [
        get("/v1/forward-auth/api?key=alice"),
        request("/v1/check", &json!({ "policy": "api", "key": "alice" })),
    ] {
        let response = send(&router, request).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        let problem: Value = serde_json::from_str(&text(response).await).unwrap();
        assert_eq!(problem["cause"], "store_outage", "{problem}");
    }
}

#[tokio::test]
async fn a_thousand_who_ask_whether_it_is_ready_make_few_calls_to_the_store() {
    let engine = without_store(json!({})).await;
    let asked = || engine.store_health().outages;
    let (router, before) = (router(engine.clone()), asked());
    for _ in 0..1_000 {
        assert_eq!(send(&router, get("/readyz")).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    let calls = asked() - before;
    assert!((1..=20).contains(&calls), "{calls} calls");
}

/// A proxy forwards its client's headers; they are for the upstream service, and neither checked nor revealed.
#[tokio::test]
async fn a_proxy_shows_its_own_token_and_the_clients_authorization_is_not_looked_at() {
    const TOKEN: &str = "the-proxys-own-token";
    const OF_USER: &str = "Bearer of-the-user";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, TOKEN).unwrap();
    let allow = json!([{ "endpoints": ["check"], "policies": ["api"] }]);
    let spec = json!({ "principals": { "edge": { "token_file": path, "allow": allow } } });
    let access = Access::of(&serde_json::from_value(spec).unwrap()).unwrap();
    let identify = Identify::by(Arc::new(ArcSwap::from_pointee(access)));
    let ask = async |identify: Identify, headers: &[(&str, &str)], policy: &str| {
        let request = Request::get(format!("/v1/forward-auth/{policy}?key=alice"));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let answer = identify.layer(router(engine())).oneshot(request.body(Body::empty()).unwrap()).await;
        let answer = answer.unwrap();
        let (status, headers) = (answer.status(), format!("{:?}", answer.headers()));
        let said = headers + &text(answer).await;
        assert!(!said.contains(TOKEN) && !said.contains("of-the-user"), "{said}");
        (status.as_u16(), said)
    };
    let own = ("x-throttlekit-token", TOKEN);
    assert_eq!(ask(identify.clone(), &[own], "api").await.0, 200);
    assert_eq!(ask(identify.clone(), &[own, ("authorization", OF_USER)], "api").await.0, 200);
    assert_eq!(ask(identify.clone(), &[own], "two").await.0, 403);
    let theirs = format!("Bearer {TOKEN}");
    let (status, said) = ask(identify.clone(), &[("authorization", &theirs)], "api").await;
    assert!(status == 401 && !said.contains("www-authenticate"), "the client has nothing to show: {said}");
    // The client's protocol must not matter to the API: a gRPC error would be a 200, which allows the request.
    let speaks = ("content-type", "application/grpc");
    assert_eq!(ask(identify.clone(), &[speaks], "api").await.0, 401);
    let other = identify.proxy_token(http::HeaderName::from_static("x-edge"));
    assert_eq!(ask(other.clone(), &[("x-edge", TOKEN)], "api").await.0, 200);
    assert_eq!(ask(other, &[own], "api").await.0, 401);
}
