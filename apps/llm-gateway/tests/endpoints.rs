//! Every API: as a stream and as one response, cut at the end of a budget, and denied.

use axum::http::StatusCode;
use llm_gateway::api::{APIS, Api, CHAT, EMBEDDINGS, Family, MESSAGES, RESPONSES};
use llm_gateway::sse::{DONE, Events};
use llm_gateway_load::process::Http;
use serde_json::{Value, json};

use crate::common::local::{Local, json, text};
use crate::common::{self, Limits, Model};

const MODEL: Model = Model { length: 50, chunk: 4, delay_ms: 0 };
const PLENTY: Limits = Limits { rpm: 1_000, tpm: 100_000, concurrency: 8 };
/// The APIs that stream.
const STREAMING: [&Api; 3] = [&CHAT, &RESPONSES, &MESSAGES];

async fn gateway(model: Model, limits: Limits) -> Local {
    Local::new(&common::config(&model.serve().await, &limits), &common::redis()).await
}

/// A request of an API, with a limit if it takes one.
fn request(api: &Api, limit: u64, stream: bool) -> Value {
    let mut body = json!({ "model": "gpt-4o", "stream": stream });
    body[api.prompt[0]] = match api.takes_messages {
        true => json!([{ "role": "user", "content": "hello world" }]),
        false => json!("hello world"),
    };
    if let Some(name) = api.limit.names.last() {
        body[*name] = limit.into();
    }
    if api.stream.as_ref().is_some_and(|streaming| streaming.usage_on_request) && stream {
        body["stream_options"] = json!({ "include_usage": true });
    }
    body
}

/// The events of a stream: each is named after its type, if it has one.
fn events(heard: &str) -> Vec<Value> {
    let mut events = Events::default();
    events.push(heard.as_bytes()).unwrap();
    let next = || {
        let event = events.next_event()?;
        let data = serde_json::from_str(&event.data).unwrap_or(Value::String(event.data));
        assert_eq!(event.name.as_deref(), data["type"].as_str(), "{data}");
        Some(data)
    };
    std::iter::from_fn(next).collect()
}

/// Words in the generated text of a stream. The mock's tokens are words with a space before each.
fn words(api: &Api, events: &[Value]) -> u64 {
    let generated = api.stream.as_ref().unwrap().generated;
    let text = |value: &Value| match api.path {
        path if path == CHAT.path => value["content"].as_str().map(str::to_owned),
        path if path == MESSAGES.path => value["text"].as_str().map(str::to_owned),
        _ => value.as_str().map(str::to_owned),
    };
    let texts = events.iter().flat_map(generated).filter_map(text);
    texts.map(|text| text.matches(' ').count() as u64).sum()
}

/// The end of a response, and its output tokens: from the last events of a stream.
fn end_of_stream(api: &Api, events: &[Value]) -> (String, u64) {
    let back = |nth: usize| &events[events.len() - nth];
    let (reason, usage) = match api.path {
        path if path == CHAT.path => {
            assert_eq!(back(1), DONE);
            (&back(3)["choices"][0]["finish_reason"], &back(2)["usage"]["completion_tokens"])
        }
        path if path == MESSAGES.path => {
            assert_eq!(back(1)["type"], "message_stop");
            assert_eq!(back(3)["type"], "content_block_stop");
            (&back(2)["delta"]["stop_reason"], &back(2)["usage"]["output_tokens"])
        }
        _ => return end_of_whole(api, &back(1)["response"]),
    };
    (reason.as_str().unwrap().to_owned(), usage.as_u64().unwrap())
}

/// The end of a response, and its output tokens: from a response that does not stream.
fn end_of_whole(api: &Api, response: &Value) -> (String, u64) {
    let reason = match api.path {
        path if path == CHAT.path => &response["choices"][0]["finish_reason"],
        path if path == MESSAGES.path => &response["stop_reason"],
        _ if response["status"] == "incomplete" => &response["incomplete_details"]["reason"],
        _ => &response["status"],
    };
    (reason.as_str().unwrap().to_owned(), api.usage.read(&response["usage"]).unwrap().output)
}

/// The end by the model itself, and by a limit.
fn reasons(api: &Api) -> [&'static str; 2] {
    match api.path {
        path if path == CHAT.path => ["stop", "length"],
        path if path == MESSAGES.path => ["end_turn", "max_tokens"],
        _ => ["completed", "max_output_tokens"],
    }
}

/// The prefix of the rate limit headers, for tokens.
fn remaining(family: Family) -> &'static str {
    match family {
        Family::OpenAi => "x-ratelimit-remaining-tokens",
        Family::Anthropic => "anthropic-ratelimit-tokens-remaining",
    }
}

#[tokio::test]
async fn a_stream_of_each_api_passes_unchanged_and_costs_what_the_model_reports() {
    for api in STREAMING {
        let gateway = gateway(MODEL, PLENTY).await;
        let response = gateway.post(api, &request(api, 500, true)).await;
        assert_eq!(response.status(), StatusCode::OK, "{}", api.path);
        assert!(response.headers().contains_key(remaining(api.family)), "{:?}", response.headers());
        let events = events(&text(response).await);
        assert_eq!(end_of_stream(api, &events), (reasons(api)[0].to_owned(), 50), "{}", api.path);
        assert_eq!(words(api, &events), 50, "{}", api.path);
        let used = gateway.used().await;
        assert_eq!(gateway.books().await["delivered"], json!(used), "{}", api.path);
        assert!((51..70).contains(&used), "{}: {used}", api.path);
    }
}

#[tokio::test]
async fn a_response_of_each_api_costs_what_the_model_reports() {
    for api in STREAMING {
        let gateway = gateway(MODEL, PLENTY).await;
        let response = json(gateway.post(api, &request(api, 20, false)).await).await;
        assert_eq!(end_of_whole(api, &response), (reasons(api)[1].to_owned(), 20), "{}", api.path);
        let total = api.usage.read(&response["usage"]).unwrap().total;
        assert_eq!(gateway.used().await, total, "{}", api.path);
    }
}

#[tokio::test]
async fn a_stream_of_each_api_is_cut_at_the_end_of_the_budget_as_by_its_own_limit() {
    let endless = Model { length: 1_000_000, chunk: 4, delay_ms: 5 };
    for api in STREAMING {
        let gateway = gateway(endless, Limits { tpm: 100, ..PLENTY }).await;
        let events = events(&text(gateway.post(api, &request(api, 5_000, true)).await).await);
        let (reason, output) = end_of_stream(api, &events);
        assert_eq!((reason.as_str(), output), (reasons(api)[1], words(api, &events)), "{}", api.path);
        assert!((70..100).contains(&output), "{}: {output}", api.path);
        assert_eq!(gateway.used().await, 100, "{}", api.path);
        assert_eq!(gateway.books().await["cut"], 1, "{}", api.path);
    }
}

#[tokio::test]
async fn a_cut_of_the_responses_api_repeats_the_text_so_far() {
    let endless = Model { length: 1_000_000, chunk: 4, delay_ms: 5 };
    let gateway = gateway(endless, Limits { tpm: 100, ..PLENTY }).await;
    let events = events(&text(gateway.post(&RESPONSES, &request(&RESPONSES, 5_000, true)).await).await);
    let [.., item, last] = &events[..] else { panic!("{events:?}") };
    assert_eq!(
        (&item["type"], &last["type"]),
        (&json!("response.output_item.done"), &json!("response.incomplete"))
    );
    let deltas = events.iter().filter(|event| event["type"] == "response.output_text.delta");
    let text: String = deltas.map(|event| event["delta"].as_str().unwrap()).collect();
    assert_eq!(item["item"]["content"][0]["text"], text);
    assert_eq!(last["response"]["output"], json!([item["item"]]));
    let numbers: Vec<u64> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
}

#[tokio::test]
async fn a_response_that_does_not_stream_is_limited_to_what_is_left() {
    let endless = Model { length: 1_000_000, chunk: 100, delay_ms: 0 };
    for api in STREAMING {
        let gateway = gateway(endless, Limits { tpm: 200, ..PLENTY }).await;
        let response = json(gateway.post(api, &request(api, 5_000, false)).await).await;
        let (reason, output) = end_of_whole(api, &response);
        assert_eq!(reason, reasons(api)[1], "{}", api.path);
        assert!((100..200).contains(&output), "{}: {output}", api.path);
        assert_eq!(gateway.used().await, 200, "{}", api.path);
    }
}

#[tokio::test]
async fn embeddings_cost_their_prompt_and_are_denied_by_the_same_budget() {
    let gateway = gateway(MODEL, Limits { tpm: 5, ..PLENTY }).await;
    // `stream` means nothing to this API.
    for (stream, used) in [(false, 2), (true, 4)] {
        let response = gateway.post(&EMBEDDINGS, &request(&EMBEDDINGS, 0, stream)).await;
        assert_eq!(response.headers()["x-ratelimit-limit-tokens"], "5");
        assert_eq!(json(response).await["data"][0]["object"], "embedding");
        gateway.settles_at(used).await;
    }
    let denied = gateway.post(&EMBEDDINGS, &request(&EMBEDDINGS, 0, false)).await;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(json(denied).await["error"]["type"], "tokens");
    gateway.settles_at(4).await;
}

#[tokio::test]
async fn a_denial_of_each_api_has_the_errors_and_headers_of_its_provider() {
    for api in APIS {
        let gateway = gateway(MODEL, Limits { rpm: 1, ..PLENTY }).await;
        for stream in [false, true] {
            let response = gateway.post(api, &request(api, 5, stream)).await;
            let status = if stream { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK };
            assert_eq!(response.status(), status, "{}", api.path);
            if !stream {
                text(response).await;
                continue;
            }
            let headers = response.headers().clone();
            let seconds: u64 = headers["retry-after"].to_str().unwrap().parse().unwrap();
            assert!((1..=60).contains(&seconds), "{seconds}");
            let error = json(response).await;
            match api.family {
                Family::OpenAi => {
                    assert_eq!(
                        (&error["error"]["type"], &error["error"]["code"]),
                        (&json!("requests"), &json!("rate_limit_exceeded"))
                    );
                    assert_eq!(headers["x-ratelimit-remaining-requests"], "0");
                }
                Family::Anthropic => {
                    assert_eq!(
                        (&error["type"], &error["error"]["type"]),
                        (&json!("error"), &json!("rate_limit_error"))
                    );
                    assert_eq!(headers["anthropic-ratelimit-requests-remaining"], "0");
                    assert!(headers["anthropic-ratelimit-requests-reset"].to_str().unwrap().ends_with('Z'));
                    assert!(!headers.contains_key("x-ratelimit-remaining-requests"));
                }
            }
        }
        assert_eq!(gateway.books().await["denied"], json!({ "rate": 1 }), "{}", api.path);
    }
}

#[tokio::test]
async fn an_unknown_key_and_an_invalid_request_are_errors_of_the_provider() {
    let gateway = gateway(MODEL, PLENTY).await;
    for api in APIS {
        let body = request(api, 5, false).to_string();
        let unknown = Http::default().post(&gateway.url, api, "sk-unknown", body).await.unwrap();
        assert_eq!(unknown.status(), StatusCode::UNAUTHORIZED);
        let invalid = gateway.post(api, &json!({ "model": "gpt-4o" })).await;
        assert_eq!(invalid.status(), StatusCode::BAD_REQUEST);
        let types = [json(unknown).await, json(invalid).await].map(|error| error["error"]["type"].clone());
        match api.family {
            Family::OpenAi => assert_eq!(types, ["invalid_request_error", "invalid_request_error"]),
            Family::Anthropic => assert_eq!(types, ["authentication_error", "invalid_request_error"]),
        }
    }
}
