//! A model server that knows no answers, but how long they take and how many tokens they are.
//!
//! It generates a chunk only when the one before has been taken, and stops at the next when its caller is gone: as a real
//! server does that watches its connections.

mod lengths;
mod stats;
mod words;

pub use lengths::Lengths;
pub use stats::MockStats;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream;
use serde_json::json;
use tokio::time::sleep;

use crate::api::{ChatRequest, Envelope, Usage, error_body};
use crate::sse;
use crate::tokens::Counter;
use stats::Counts;

/// How the model behaves.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// How long its answers are.
    pub lengths: Lengths,
    /// How many tokens each chunk has.
    pub chunk: u64,
    /// How long it takes to generate one.
    pub delay: Duration,
    /// By which windows it counts what it generated.
    pub window_ms: u64,
}

struct Model {
    manner: Manner,
    counts: Counts,
    requests: AtomicU64,
}

/// The routes of the model server.
pub fn app(manner: Manner) -> Router {
    let counts = Counts::new(manner.window_ms);
    let model = Arc::new(Model { manner, counts, requests: AtomicU64::new(0) });
    Router::new()
        .route("/v1/chat/completions", post(complete))
        .route("/stats", get(async |State(model): State<Arc<Model>>| Json(model.counts.read())))
        .with_state(model)
}

async fn complete(State(model): State<Arc<Model>>, body: Bytes) -> Response {
    let request: ChatRequest = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(error) => {
            let body = error_body("invalid_request_error", "invalid_body", &error.to_string());
            return (StatusCode::BAD_REQUEST, Json(body)).into_response();
        }
    };
    let answer = Answer::begin(model, &request);
    if request.streams() { answer.streamed(request.wants_usage()) } else { answer.whole().await }
}

/// One answer while it is generated. Dropped before its end, it was abandoned.
struct Answer {
    model: Arc<Model>,
    envelope: Envelope,
    prompt: u64,
    said: u64,
    length: u64,
    /// Whether the caller's limit ends it, and not the model.
    capped: bool,
    ended: bool,
}

impl Answer {
    fn begin(model: Arc<Model>, request: &ChatRequest) -> Self {
        let nth = model.requests.fetch_add(1, Relaxed);
        let (wished, cap) = (model.manner.lengths.of(nth), request.max_each().unwrap_or(u64::MAX));
        model.counts.note(|stats| stats.begun += 1);
        let id = format!("chatcmpl-mock-{nth}");
        let envelope = Envelope { id, created: 1_700_000_000 + nth, model: request.model.clone() };
        let prompt = Counter::of(&request.model).prompt(request);
        Self {
            model,
            envelope,
            prompt,
            said: 0,
            length: wished.min(cap),
            capped: cap <= wished,
            ended: false,
        }
    }

    /// The next chunk's text, when it is there; nothing at the end.
    async fn generate(&mut self) -> Option<String> {
        let tokens = self.model.manner.chunk.max(1).min(self.length - self.said);
        if tokens == 0 {
            return None;
        }
        if !self.model.manner.delay.is_zero() {
            sleep(self.model.manner.delay).await;
        }
        self.model.counts.generated(tokens);
        self.said += tokens;
        Some(words::text(self.said - tokens, tokens))
    }

    fn end(&mut self) -> (&'static str, Usage) {
        self.ended = true;
        self.model.counts.note(|stats| stats.finished += 1);
        (if self.capped { "length" } else { "stop" }, Usage::of(self.prompt, self.said))
    }

    async fn whole(mut self) -> Response {
        let mut text = String::new();
        while let Some(more) = self.generate().await {
            text += &more;
        }
        let (finish_reason, usage) = self.end();
        let message = json!({ "role": "assistant", "content": text, "refusal": null });
        let choice =
            json!({ "index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason });
        let Envelope { id, created, model } = &self.envelope;
        let object = "chat.completion";
        let choices = [choice];
        Json(json!({ "id": id, "object": object, "created": created, "model": model, "choices": choices, "usage": usage }))
            .into_response()
    }

    fn streamed(self, wants_usage: bool) -> Response {
        let hello = self.envelope.chunk(0, &json!({ "role": "assistant", "content": "" }), None);
        let rest = stream::unfold(self, move |mut answer| async move {
            if answer.ended {
                return None;
            }
            let events = match answer.generate().await {
                Some(text) => {
                    sse::event(&answer.envelope.chunk(0, &json!({ "content": text }), None).to_string())
                }
                None => answer.last_events(wants_usage),
            };
            Some((Ok::<_, Infallible>(events), answer))
        });
        let first = stream::iter([Ok(sse::event(&hello.to_string()))]);
        let body = Body::from_stream(futures_util::StreamExt::chain(first, rest));
        ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
    }

    fn last_events(&mut self, wants_usage: bool) -> String {
        let (finish_reason, usage) = self.end();
        let end = self.envelope.chunk(0, &json!({}), Some(finish_reason)).to_string();
        let usage = wants_usage.then(|| sse::event(&self.envelope.usage(usage).to_string()));
        sse::event(&end) + &usage.unwrap_or_default() + &sse::event(sse::DONE)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.ended {
            self.model.counts.note(|stats| stats.abandoned += 1);
        }
    }
}
