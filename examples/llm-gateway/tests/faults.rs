//! What callers see when the model or the store fails, and what they have paid then.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use axum::routing::post;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use llm_gateway::gate::Meter;
use llm_gateway::headers::Rooms;
use llm_gateway::process::Http;
use llm_gateway::proxy::Gateway;
use llm_gateway::sse;
use llm_gateway::tenants::Config;
use serde_json::{Value, json};
use throttlekit_redis::RedisStore;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

mod common;

/// Of "hello", with what frames it.
const PROMPT: u64 = 8;

#[tokio::test]
async fn an_error_of_the_model_is_passed_on_as_it_is_and_costs_no_tokens() {
    let said = r#"{"error":{"message":"teapot","type":"tea","param":null,"code":"short"}}"#;
    let gateway = before(said, StatusCode::IM_A_TEAPOT, "application/json").await;
    let answer = ask(&gateway, false).await;
    assert_eq!(answer.status(), StatusCode::IM_A_TEAPOT);
    assert!(answer.headers().contains_key("x-ratelimit-remaining-tokens"));
    assert_eq!(text(answer).await, said);
    settles_at(&gateway, 0).await;
}

#[tokio::test]
async fn a_model_that_cannot_be_reached_is_a_bad_gateway_and_costs_no_tokens() {
    let gateway = gateway("http://127.0.0.1:9", &common::redis()).await;
    let answer = ask(&gateway, true).await;
    assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
    let error: Value = serde_json::from_str(&text(answer).await).unwrap();
    assert_eq!(error["error"]["code"], "upstream_unreachable");
    settles_at(&gateway, 0).await;
}

#[tokio::test]
async fn the_models_own_count_is_what_is_charged_in_the_end() {
    let chunk = json!({ "id": "x", "choices": [{ "index": 0, "delta": { "content": " hello world" } }] });
    let usage = json!({ "id": "x", "choices": [], "usage": {
        "prompt_tokens": 70, "completion_tokens": 30, "total_tokens": 100 } });
    let said =
        [chunk.to_string(), usage.to_string(), sse::DONE.to_owned()].map(|data| sse::event(&data)).concat();
    let gateway = before(&said, StatusCode::OK, "text/event-stream").await;
    let heard = text(ask(&gateway, true).await).await;
    assert_eq!(heard, [chunk.to_string(), sse::DONE.to_owned()].map(|data| sse::event(&data)).concat());
    settles_at(&gateway, 100).await;

    let whole = json!({ "choices": [], "usage": usage["usage"] }).to_string();
    let gateway = before(&whole, StatusCode::OK, "application/json").await;
    assert_eq!(text(ask(&gateway, false).await).await, whole);
    settles_at(&gateway, 100).await;
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
    settles_at(&gateway, PROMPT + 2).await;
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
        let answer = Http::default().complete(&gateway, "sk-test", body.to_string()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{body}");
    }
    // Odd, but understood: they get as far as the model, which is not there.
    let odd = [
        json!({ "model": "", "messages": [], "max_tokens": u64::MAX, "n": u64::MAX }),
        json!({ "model": "x", "messages": messages, "stream": true, "stream_options": [true] }),
    ];
    for body in odd {
        let answer = Http::default().complete(&gateway, "sk-test", body.to_string()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::BAD_GATEWAY, "{body}");
    }
    settles_at(&gateway, 0).await;
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
    let books: Value = Http::default().get(&format!("{gateway}/admin/stats")).await.unwrap();
    assert_eq!(books["tenants"]["test"]["denied"], json!({ "outage": 1 }));
}

/// A gateway before a model that always says the same.
async fn before(said: &str, status: StatusCode, kind: &'static str) -> String {
    type Said = (StatusCode, &'static str, Arc<str>);
    let answers = async |State((status, kind, said)): State<Said>| {
        let answer = Response::builder().status(status).header("content-type", kind);
        answer.body(Body::from(said.to_string())).unwrap()
    };
    let routes =
        Router::new().route("/v1/chat/completions", post(answers)).with_state((status, kind, said.into()));
    let model = served(routes).await;
    gateway(&model, &common::redis()).await
}

async fn gateway(upstream: &str, redis: &str) -> String {
    let limits = common::Limits { rpm: 1_000, tpm: 10_000, concurrency: 4 };
    let config = Config::parse(&common::config(upstream, &limits).to_string()).unwrap();
    let store = RedisStore::builder(redis).deadline(Duration::from_secs(2)).connect().await.unwrap();
    let policy = format!("gateway-faults-{:x}", RandomState::new().hash_one(1));
    served(Gateway::new(&config, Meter::Stream, &store, &policy, "here").unwrap().routes()).await
}

async fn served(routes: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = routes.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    format!("http://{address}")
}

async fn ask(gateway: &str, stream: bool) -> Response<Incoming> {
    let messages = json!([{ "role": "user", "content": "hello" }]);
    let body = json!({ "model": "gpt-4o", "messages": messages, "max_tokens": 50, "stream": stream });
    Http::default().complete(gateway, "sk-test", body.to_string()).await.unwrap()
}

async fn text(answer: Response<Incoming>) -> String {
    String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// What is dropped is settled in the background, soon.
async fn settles_at(gateway: &str, tokens: u64) {
    let mut used = u64::MAX;
    for _ in 0..200 {
        let rooms: BTreeMap<String, Rooms> =
            Http::default().get(&format!("{gateway}/admin/rooms")).await.unwrap();
        let room = rooms["test"].tokens.unwrap();
        used = room.limit - room.remaining;
        if used == tokens {
            return;
        }
        sleep(Duration::from_millis(25)).await;
    }
    assert_eq!(used, tokens, "what the store has charged");
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
