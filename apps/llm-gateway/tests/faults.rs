//! What callers see when the model or the store fails, and what they have paid then.

use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::common::local::{Local, text};
use crate::common::{self, served};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use axum::routing::post;
use futures_util::{StreamExt, stream};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use llm_gateway::api::CHAT;
use llm_gateway::sse;
use llm_gateway_load::process::Http;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

/// Of "hello", with what frames it.
const PROMPT: u64 = 8;

#[tokio::test]
async fn an_error_of_the_model_is_passed_on_as_it_is_and_costs_no_tokens() {
    let said = r#"{"error":{"message":"teapot","type":"tea","param":null,"code":"short"}}"#;
    let gateway = before(said, StatusCode::IM_A_TEAPOT, "application/json").await;
    let answer = ask(&gateway, false).await;
    assert_eq!(answer.status(), StatusCode::IM_A_TEAPOT);
    for (name, value) in HEADS {
        assert_eq!(answer.headers()[name], value);
    }
    assert!(answer.headers().contains_key("x-ratelimit-remaining-tokens"));
    assert_eq!(text(answer).await, said);
    gateway.settles_at(0).await;
}

#[tokio::test]
async fn a_model_that_cannot_be_reached_is_a_bad_gateway_and_costs_no_tokens() {
    let gateway = gateway("http://127.0.0.1:9", &common::redis()).await;
    let answer = ask(&gateway, true).await;
    assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
    let error: Value = serde_json::from_str(&text(answer).await).unwrap();
    assert_eq!(error["error"]["code"], "upstream_unreachable");
    gateway.settles_at(0).await;
}

#[tokio::test]
async fn the_models_own_count_is_what_is_charged_in_the_end() {
    let chunk = json!({ "id": "x", "choices": [{ "index": 0, "delta": { "content": " hello world" } }] });
    let usage = json!({ "id": "x", "choices": [], "usage": {
        "prompt_tokens": 70, "completion_tokens": 30, "total_tokens": 100 } });
    let said =
        [chunk.to_string(), usage.to_string(), sse::DONE.to_owned()].map(|data| sse::event(&data)).concat();
    let gateway = before(&said, StatusCode::OK, "text/event-stream").await;
    let answer = ask(&gateway, true).await;
    assert_eq!(answer.headers()["x-request-id"], "r-7");
    assert!(!answer.headers().contains_key("retry-after"), "only with a refusal");
    let heard = text(answer).await;
    assert_eq!(heard, [chunk.to_string(), sse::DONE.to_owned()].map(|data| sse::event(&data)).concat());
    gateway.settles_at(100).await;

    let whole = json!({ "choices": [], "usage": usage["usage"] }).to_string();
    let gateway = before(&whole, StatusCode::OK, "application/json").await;
    assert_eq!(text(ask(&gateway, false).await).await, whole);
    gateway.settles_at(100).await;
}

#[tokio::test]
async fn a_stream_that_breaks_off_says_so_and_costs_what_was_passed_on() {
    let chunk = json!({ "choices": [{ "index": 0, "delta": { "content": " hello world" } }] }).to_string();
    let gateway = before(&sse::event(&chunk), StatusCode::OK, "text/event-stream").await;
    let answer = ask(&gateway, true).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let heard = text(answer).await;
    let (whole, rest) = heard.split_once("\n\n").unwrap();
    assert_eq!(whole, format!("data: {chunk}"));
    assert!(rest.contains("upstream_broke_off") && !rest.contains(sse::DONE), "{rest}");
    gateway.settles_at(PROMPT + 2).await;
}

#[tokio::test]
async fn a_stream_that_is_cut_ends_every_choice_that_has_begun() {
    let chunk = |index: u64, words: usize| {
        let delta = json!({ "content": " hello".repeat(words) });
        let chunk =
            json!({ "id": "x", "created": 7, "model": "m", "choices": [{ "index": index, "delta": delta }] });
        sse::event(&chunk.to_string())
    };
    let said = [chunk(0, 2), chunk(1, 2), chunk(2, 2), chunk(0, 9_999), chunk(1, 1)].concat();
    let gateway = before(&said, StatusCode::OK, "text/event-stream").await;
    let heard = text(ask(&gateway, true).await).await;
    let rest = heard
        .strip_prefix(&said[..said.len() - chunk(1, 1).len()])
        .expect("the chunk that crosses the edge passes");
    let ends: Vec<&str> =
        rest.trim_end().split("\n\n").map(|event| event.trim_start_matches("data: ")).collect();
    let (&done, ends) = ends.split_last().unwrap();
    assert_eq!((done, ends.len()), (sse::DONE, 3));
    for (index, end) in ends.iter().enumerate() {
        let end: Value = serde_json::from_str(end).unwrap();
        assert_eq!((&end["id"], &end["created"], &end["model"]), (&json!("x"), &json!(7), &json!("m")));
        let choice = &end["choices"][0];
        assert_eq!((&choice["index"], &choice["finish_reason"]), (&json!(index), &json!("length")));
    }
}

#[tokio::test]
async fn requests_that_make_no_sense_are_refused_and_cost_nothing() {
    let gateway = gateway("http://127.0.0.1:9", &common::redis()).await;
    let messages = json!([{ "role": "user", "content": "hello" }]);
    let nonsense = [
        json!([]),
        json!({ "model": "gpt-4o" }),
        json!({ "model": "gpt-4o", "messages": [7] }),
        json!({ "model": "gpt-4o", "messages": messages, "max_tokens": -1 }),
        json!({ "model": "gpt-4o", "messages": messages, "stream": true, "stream_options": "x" }),
    ];
    for body in nonsense {
        let answer = gateway.post(&CHAT, &body).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{body}");
    }
    // Odd, but understood: they get as far as the model, which is not there.
    let odd = [
        json!({ "model": "", "messages": [], "max_tokens": u64::MAX, "n": u64::MAX }),
        json!({ "model": "x", "messages": messages, "stream": true, "stream_options": [true] }),
    ];
    for body in odd {
        let answer = gateway.post(&CHAT, &body).await;
        assert_eq!(answer.status(), StatusCode::BAD_GATEWAY, "{body}");
    }
    gateway.settles_at(0).await;
}

#[tokio::test]
async fn without_its_store_the_gateway_lets_nobody_in_and_says_so() {
    let (redis, cut) = cable(&common::redis()).await;
    let gateway = gateway("http://127.0.0.1:9", &redis).await;
    cut.send(true).unwrap();
    let answer = ask(&gateway, false).await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.headers()["retry-after"], "1");
    let error: Value = serde_json::from_str(&text(answer).await).unwrap();
    assert_eq!(error["error"]["code"], "limits_unavailable");
    assert_eq!(gateway.books().await["denied"], json!({ "outage": 1 }));
}

#[tokio::test]
async fn a_store_that_is_lost_in_the_middle_of_a_stream_is_an_error_and_no_end() {
    let chunk = |words: usize| {
        let delta = json!({ "content": " hello".repeat(words) });
        sse::event(&json!({ "id": "x", "choices": [{ "index": 0, "delta": delta }] }).to_string())
    };
    let go_on = Arc::new(Notify::new());
    let rest = [chunk(5_000), chunk(1), sse::event(sse::DONE)].concat();
    let model = model_that_waits(chunk(2), go_on.clone(), rest).await;
    let (redis, cut) = cable(&common::redis()).await;
    let gateway = gateway(&model, &redis).await;
    let mut body = ask(&gateway, true).await.into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), chunk(2));
    cut.send(true).unwrap();
    go_on.notify_one();
    let rest = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    assert!(rest.starts_with("data: {\"error\"") && rest.contains("limits_unavailable"), "{rest}");
    assert!(!rest.contains("length") && !rest.contains(sse::DONE), "{rest}");
    let books = gateway.books().await;
    assert_eq!(
        (&books["lost"], &books["cut"], &books["delivered"]),
        (&json!(1), &json!(0), &json!(PROMPT + 2))
    );
}

#[tokio::test]
async fn a_caller_that_hangs_up_before_the_answer_has_begun_has_paid_its_prompt() {
    for streams in [false, true] {
        let (reached, is_reached) = watch::channel(false);
        let never = async move |State(reached): State<watch::Sender<bool>>| {
            reached.send_replace(true);
            std::future::pending::<()>().await;
        };
        let model =
            served(Router::new().route("/v1/chat/completions", post(never)).with_state(reached)).await;
        let gateway = gateway(&model, &common::redis()).await;
        tokio::select! {
            _ = ask(&gateway, streams) => panic!("it has no answer"),
            seen = { let mut seen = is_reached.clone(); async move { seen.wait_for(|seen| *seen).await.is_ok() } } => assert!(seen),
        }
        gateway.settles_at(PROMPT).await;
        let books = gateway.books().await;
        assert_eq!((&books["gone"], &books["delivered"]), (&json!(1), &json!(PROMPT)), "{streams}");
    }
}

#[tokio::test]
async fn a_stranger_is_refused_before_the_rest_of_its_request_is_there() {
    let gateway = gateway("http://127.0.0.1:9", &common::redis()).await;
    let mut stranger = TcpStream::connect(gateway.url.trim_start_matches("http://")).await.unwrap();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer no\r\ncontent-length: 1000\r\n\r\n";
    stranger.write_all(head.as_bytes()).await.unwrap();
    let mut said = [0; 12];
    stranger.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"HTTP/1.1 401");
}

#[tokio::test]
async fn what_it_did_is_told_on_the_other_port_only() {
    let gateway = gateway("http://127.0.0.1:9", &common::redis()).await;
    for page in ["admin/stats", "admin/allowances", "admin/slots"] {
        assert!(Http::default().get::<Value>(&format!("{}/{page}", gateway.admin)).await.is_ok(), "{page}");
        assert!(Http::default().get::<Value>(&format!("{}/{page}", gateway.url)).await.is_err(), "{page}");
    }
}

#[tokio::test]
async fn every_tenant_of_the_configuration_that_is_shipped_gets_an_answer() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("gateway.json");
    let shipped: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let model = model(&sse::event(sse::DONE), StatusCode::OK, "text/event-stream").await;
    let mut config = shipped.clone();
    config["upstream"] = json!(model);
    let gateway = Local::new(&config, &common::redis()).await;
    let body = json!({ "model": "gpt-4o", "messages": [{ "role": "user", "content": "hello" }],
        "max_tokens": 2_000, "stream": true });
    for tenant in shipped["tenants"].as_array().unwrap() {
        let key = tenant["key"].as_str().unwrap();
        let answer = Http::default().post(&gateway.url, &CHAT, key, body.to_string()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{tenant}: {}", text(answer).await);
    }
}

/// What the model's answers have in their head.
const HEADS: [(&str, &str); 3] = [("retry-after", "7"), ("x-should-retry", "false"), ("x-request-id", "r-7")];

/// A gateway before a model that always says the same.
async fn before(said: &str, status: StatusCode, kind: &'static str) -> Local {
    gateway(&model(said, status, kind).await, &common::redis()).await
}

async fn model(said: &str, status: StatusCode, kind: &'static str) -> String {
    type Said = (StatusCode, &'static str, Arc<str>);
    let answers = async |State((status, kind, said)): State<Said>| {
        let answer = Response::builder().status(status).header("content-type", kind);
        let answer = HEADS.into_iter().fold(answer, |answer, (name, value)| answer.header(name, value));
        answer.body(Body::from(said.to_string())).unwrap()
    };
    served(Router::new().route("/v1/chat/completions", post(answers)).with_state((status, kind, said.into())))
        .await
}

/// A model that says something, waits until it is told to go on, and says the rest.
async fn model_that_waits(first: String, go_on: Arc<Notify>, rest: String) -> String {
    let answers = async move || {
        let rest = async move {
            go_on.notified().await;
            Ok::<_, Infallible>(rest)
        };
        Body::from_stream(stream::iter([Ok(first)]).chain(stream::once(rest)))
    };
    served(Router::new().route("/v1/chat/completions", post(answers))).await
}

async fn gateway(upstream: &str, redis: &str) -> Local {
    let limits = common::Limits { rpm: 1_000, tpm: 10_000, concurrency: 4 };
    Local::new(&common::config(upstream, &limits), redis).await
}

async fn ask(gateway: &Local, stream: bool) -> Response<Incoming> {
    let messages = json!([{ "role": "user", "content": "hello" }]);
    let body = json!({ "model": "gpt-4o", "messages": messages, "max_tokens": 50, "stream": stream });
    gateway.post(&CHAT, &body).await
}

/// A way to the store that can be cut.
async fn cable(redis: &str) -> (String, watch::Sender<bool>) {
    let store = redis.trim_start_matches("redis://").to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (cut, is_cut) = watch::channel(false);
    tokio::spawn(async move {
        while let Ok((mut here, _)) = listener.accept().await {
            let (store, mut is_cut) = (store.clone(), is_cut.clone());
            tokio::spawn(async move {
                let Ok(mut there) = TcpStream::connect(store).await else { return };
                tokio::select! {
                    _ = copy_bidirectional(&mut here, &mut there) => {}
                    _ = is_cut.wait_for(|cut| *cut) => {}
                }
            });
        }
    });
    (format!("redis://{address}"), cut)
}
