//! A mock model server: it generates filler text of a configured length, at a configured speed, by every API of the
//! gateway.
//!
//! It generates a chunk only when the one before has been taken, and stops at the next when its caller is gone: as a real
//! server does that watches its connections.

mod command;
mod lengths;
mod stats;
mod voice;
mod words;

pub use command::{Mock, run};
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
use futures_util::{StreamExt, stream};
use llm_gateway::api::{APIS, Api, Problem, Request, Usage};
use llm_gateway::sse::Event;
use llm_gateway::tokens::Counter;
use serde_json::json;
use tokio::time::sleep;

use stats::Counts;
use voice::Voice;

/// Behaviour of the model.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Lengths of completions.
    pub lengths: Lengths,
    /// Tokens per chunk.
    pub chunk: u64,
    /// Time to generate a chunk.
    pub delay: Duration,
    /// Windows of the counts.
    pub window_ms: u64,
}

struct Model {
    manner: Manner,
    counts: Counts,
    requests: AtomicU64,
}

/// Returns the routes of the model server.
pub fn app(manner: Manner) -> Router {
    let counts = Counts::new(manner.window_ms);
    let model = Arc::new(Model { manner, counts, requests: AtomicU64::new(0) });
    let each = |router: Router<Arc<Model>>, api: &'static Api| {
        let handler =
            async move |State(model): State<Arc<Model>>, body: Bytes| answer(model, api, &body).await;
        router.route(api.path, post(handler))
    };
    APIS.into_iter()
        .fold(Router::new(), each)
        .route("/stats", get(async |State(model): State<Arc<Model>>| Json(model.counts.read())))
        .with_state(model)
}

async fn answer(model: Arc<Model>, api: &'static Api, body: &[u8]) -> Response {
    let request = match Request::parse(api, body) {
        Ok(request) => request,
        Err(message) => return invalid(api, message),
    };
    if !api.generates() {
        return embeddings(&model, &request);
    }
    let answer = Answer::begin(model, &request);
    if request.streams { answer.streamed() } else { answer.whole().await }
}

fn invalid(api: &Api, message: String) -> Response {
    let status = StatusCode::BAD_REQUEST;
    let problem = Problem { status, kind: "invalid_request_error", code: "invalid_body", message };
    (status, Json(api.family.error_body(&problem))).into_response()
}

/// Returns one vector, whatever the input.
fn embeddings(model: &Model, request: &Request) -> Response {
    model.counts.note(|stats| {
        stats.begun += 1;
        stats.finished += 1;
    });
    let prompt = Counter::of(&request.model).prompt(request);
    let vector = json!({ "object": "embedding", "index": 0, "embedding": [0.25, -0.5, 0.125] });
    let usage = json!({ "prompt_tokens": prompt, "total_tokens": prompt });
    Json(json!({ "object": "list", "data": [vector], "model": request.model, "usage": usage }))
        .into_response()
}

/// One completion while it is generated. If it is dropped before its end, it was abandoned.
struct Answer {
    model: Arc<Model>,
    voice: Voice,
    prompt: u64,
    said: u64,
    length: u64,
    /// `true` if the limit of the request ends it.
    capped: bool,
    ended: bool,
}

impl Answer {
    fn begin(model: Arc<Model>, request: &Request) -> Self {
        let nth = model.requests.fetch_add(1, Relaxed);
        let (wished, cap) = (model.manner.lengths.of(nth), request.limit().unwrap_or(u64::MAX));
        model.counts.note(|stats| stats.begun += 1);
        Self {
            model,
            voice: Voice::new(request, nth),
            prompt: Counter::of(&request.model).prompt(request),
            said: 0,
            length: wished.min(cap),
            capped: cap <= wished,
            ended: false,
        }
    }

    /// Generates the next chunk of text. `None` at the end.
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

    fn end(&mut self) -> Usage {
        self.ended = true;
        self.model.counts.note(|stats| stats.finished += 1);
        Usage::of(self.prompt, self.said)
    }

    async fn whole(mut self) -> Response {
        let mut text = String::new();
        while let Some(more) = self.generate().await {
            text += &more;
        }
        let usage = self.end();
        Json(self.voice.whole(&text, self.capped, usage)).into_response()
    }

    fn streamed(mut self) -> Response {
        let first = encoded(&self.voice.begin(self.prompt));
        let rest = stream::unfold(self, move |mut answer| async move {
            if answer.ended {
                return None;
            }
            let events = answer.next_events().await;
            Some((Ok::<_, Infallible>(encoded(&events)), answer))
        });
        let body = Body::from_stream(stream::iter([Ok(first)]).chain(rest));
        ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
    }

    async fn next_events(&mut self) -> Vec<Event> {
        match self.generate().await {
            Some(text) => vec![self.voice.chunk(&text)],
            None => {
                let usage = self.end();
                self.voice.end(self.capped, usage)
            }
        }
    }
}

fn encoded(events: &[Event]) -> String {
    events.iter().map(Event::encode).collect()
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.ended {
            self.model.counts.note(|stats| stats.abandoned += 1);
        }
    }
}
