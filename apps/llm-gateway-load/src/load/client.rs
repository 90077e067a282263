//! Callers that ask without pause, read what they get, and sometimes go away in the middle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::process::Http;
use llm_gateway::api::{CHAT, Request};
use llm_gateway::sse::{DONE, Events};
use llm_gateway::tokens::Counter;

/// Longest wait of a denied caller before it retries: others may have returned units.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Every n-th stream is left in the middle, after this number of chunks.
const LEAVES_EVERY: u64 = 16;
const LEAVES_AFTER: u64 = 6;

/// State shared by all callers of a run.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    pub(super) http: Http,
    /// Once this is true everyone leaves.
    pub(super) stop: watch::Sender<bool>,
    pub(super) counts: Counts,
}

/// Counts over all callers.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Tokens of all answers.
    pub(super) received: AtomicU64,
    /// Answers that were heard to their end, and their tokens.
    pub(super) ended: AtomicU64,
    pub(super) received_ended: AtomicU64,
    pub(super) denied: AtomicU64,
    /// Answers that were left in the middle.
    pub(super) left: AtomicU64,
    /// Requests that were left before there was an answer or a denial.
    pub(super) unheard: AtomicU64,
    pub(super) failed: AtomicU64,
}

/// One caller: where it asks, as whom, and for how much.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) gateway: String,
    pub(super) key: String,
    pub(super) max_tokens: u64,
    /// Its number, by which it leaves at other times than the others.
    pub(super) number: u64,
}

impl Caller {
    /// Asks until told to stop, and leaves then, whatever it is in the middle of.
    pub(super) async fn run(self, crowd: Arc<Crowd>) {
        let mut nth = self.number;
        while !*crowd.stop.borrow() {
            nth += 1;
            if let Err(error) = self.ask(&crowd, nth.is_multiple_of(LEAVES_EVERY)).await {
                crowd.counts.failed.fetch_add(1, Relaxed);
                eprintln!("caller {}: {error:#}", self.number);
                sleep(LOOK_AGAIN).await;
            }
        }
    }

    async fn ask(&self, crowd: &Crowd, leaves: bool) -> Result<()> {
        let body = question(self.max_tokens).to_string();
        let mut stop = crowd.stop.subscribe();
        let response = tokio::select! {
            response = crowd.http.post(&self.gateway, &CHAT, &self.key, body) => response?,
            _ = stop.wait_for(|stop| *stop) => {
                crowd.counts.unheard.fetch_add(1, Relaxed);
                return Ok(());
            }
        };
        match response.status() {
            StatusCode::OK => {
                tokio::select! {
                    heard = listen(response.into_body(), &crowd.counts, leaves) => heard,
                    _ = stop.wait_for(|stop| *stop) => {
                        crowd.counts.left.fetch_add(1, Relaxed);
                        Ok(())
                    }
                }
            }
            StatusCode::TOO_MANY_REQUESTS => {
                crowd.counts.denied.fetch_add(1, Relaxed);
                let wait =
                    response.headers().get("retry-after-ms").and_then(|ms| ms.to_str().ok()?.parse().ok());
                let wait = wait.map_or(LOOK_AGAIN, Duration::from_millis);
                response.into_body().collect().await?;
                sleep(wait.min(LOOK_AGAIN)).await;
                Ok(())
            }
            status => {
                let said = response.into_body().collect().await?.to_bytes();
                anyhow::bail!("{status}: {}", String::from_utf8_lossy(&said))
            }
        }
    }
}

/// The request that every caller sends.
fn question(max_tokens: u64) -> Value {
    let messages = json!([{ "role": "user", "content": "Say something of some length." }]);
    json!({ "model": "gpt-4o", "messages": messages, "max_tokens": max_tokens, "stream": true })
}

/// Returns the number of tokens of its prompt.
pub(super) fn prompt() -> u64 {
    let question = Request::parse(&CHAT, question(1).to_string().as_bytes()).expect("it is one");
    Counter::of("gpt-4o").prompt(&question)
}

/// Reads a stream to its end, or leaves it.
async fn listen(mut body: Incoming, counts: &Counts, leaves: bool) -> Result<()> {
    let (mut events, mut chunks, mut received) = (Events::default(), 0, 0);
    loop {
        let frame = body.frame().await.context("the stream ended without its final event")??;
        let Ok(piece) = frame.into_data() else { continue };
        events.push(&piece).ok().context("an event is too long")?;
        while let Some(event) = events.next_event() {
            if event.data == DONE {
                counts.ended.fetch_add(1, Relaxed);
                counts.received_ended.fetch_add(received, Relaxed);
                return Ok(());
            }
            let chunk: Value = serde_json::from_str(&event.data)?;
            let choice = &chunk["choices"][0];
            // Each of the mock's tokens is a word with a space before it.
            let words = choice["delta"]["content"].as_str().unwrap_or_default().matches(' ').count();
            counts.received.fetch_add(words as u64, Relaxed);
            received += words as u64;
            chunks += 1;
        }
        if leaves && chunks >= LEAVES_AFTER {
            counts.left.fetch_add(1, Relaxed);
            return Ok(());
        }
    }
}
