//! A stream on its way from the model to the caller, with every chunk debited before it is passed on.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use axum::body::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::api::{Envelope, Usage, error_body};
use crate::gate::Permit;
use crate::ledger::Ledger;
use crate::sse::{self, Events, TooLong};
use crate::tenants::Tenant;
use crate::tokens::Counter;

/// For how long the model may be silent between two chunks.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// One stream. Dropped before its end, the caller went away: the model's connection is closed, and the permit settles.
pub(super) struct Relay {
    /// Until it has said all, or is cut.
    upstream: Option<Incoming>,
    permit: Option<Permit>,
    events: Events,
    counter: Counter,
    /// What was passed on, by our count.
    usage: Usage,
    /// By the model's, if it has told.
    reported: Option<Usage>,
    wants_usage: bool,
    envelope: Envelope,
    /// Choices that have begun and have not ended.
    open: BTreeSet<u64>,
    ready: VecDeque<Bytes>,
    tenant: Arc<Tenant>,
    ledger: Arc<Ledger>,
}

impl Relay {
    /// The model has begun to answer: from here on the prompt counts.
    pub(super) async fn begin(
        upstream: Incoming,
        mut permit: Permit,
        counter: Counter,
        prompt: u64,
        wants_usage: bool,
        tenant: &Arc<Tenant>,
        ledger: Arc<Ledger>,
    ) -> Self {
        let may_begin = permit.debit(prompt).await;
        let mut relay = Self {
            upstream: Some(upstream),
            permit: Some(permit),
            events: Events::default(),
            counter,
            usage: Usage::of(prompt, 0),
            reported: None,
            wants_usage,
            envelope: Envelope::default(),
            open: BTreeSet::new(),
            ready: VecDeque::new(),
            tenant: tenant.clone(),
            ledger,
        };
        match may_begin {
            true => relay.ledger.delivered(&relay.tenant.name, prompt),
            false => relay.cut().await,
        }
        relay
    }

    /// What the caller gets next.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Some(bytes);
            }
            match self.events.next_data() {
                Some(data) => self.take(data).await,
                None => {
                    if let Err(error) = self.read().await? {
                        self.break_off(&error);
                    }
                }
            }
        }
    }

    /// Reads on. Nothing once the stream is over.
    async fn read(&mut self) -> Option<Result<()>> {
        let upstream = self.upstream.as_mut()?;
        Some(match timeout(SILENCE_MAX, upstream.frame()).await {
            Ok(Some(Ok(frame))) => match frame.data_ref() {
                Some(data) => self.events.push(data).map_err(|TooLong| anyhow!("an event without an end")),
                None => Ok(()),
            },
            Ok(Some(Err(error))) => Err(error.into()),
            Ok(None) => Err(anyhow!("its answer ended in the middle")),
            Err(_) => Err(anyhow!("it fell silent")),
        })
    }

    /// The caller is told that the answer is not whole, as OpenAI does it: by an event, and no end after it. What was passed
    /// on stays counted.
    fn break_off(&mut self, error: &anyhow::Error) {
        self.upstream = None;
        self.permit = None;
        self.say(&error_body("server_error", "upstream_broke_off", &format!("The model: {error:#}.")));
    }

    /// One event: debited, then passed on.
    async fn take(&mut self, data: String) {
        if data == sse::DONE {
            return self.end(None).await;
        }
        let chunk: Option<Value> = serde_json::from_str(&data).ok();
        // What cannot be understood still counts as the text it is.
        let tokens =
            chunk.as_ref().map_or_else(|| self.counter.text(&data), |chunk| self.counter.chunk(chunk));
        if tokens > 0 && !self.debit(tokens).await {
            return self.cut().await;
        }
        if chunk.is_some_and(|chunk| self.note(&chunk)) && !self.wants_usage {
            return;
        }
        self.ready.push_back(sse::event(&data).into());
    }

    async fn debit(&mut self, tokens: u64) -> bool {
        let allowed = match &mut self.permit {
            Some(permit) => permit.debit(tokens).await,
            None => false,
        };
        if allowed {
            self.usage = Usage::of(self.usage.prompt_tokens, self.usage.completion_tokens + tokens);
            self.ledger.delivered(&self.tenant.name, tokens);
        }
        allowed
    }

    /// Remembers what an end of our own would need. Whether it is the chunk that only tells what was used.
    fn note(&mut self, chunk: &Value) -> bool {
        if self.envelope.id.is_empty() {
            self.envelope = serde_json::from_value(chunk.clone()).unwrap_or_default();
        }
        let choices = chunk["choices"].as_array().map_or(&[][..], Vec::as_slice);
        for choice in choices {
            let index = choice["index"].as_u64().unwrap_or(0);
            if choice["finish_reason"].is_null() {
                self.open.insert(index)
            } else {
                self.open.remove(&index)
            };
        }
        let usage = chunk.get("usage").and_then(|usage| serde_json::from_value(usage.clone()).ok());
        self.reported = usage.or(self.reported);
        usage.is_some() && choices.is_empty()
    }

    /// Ends where the budget does: the model is stopped at once, and the caller gets an end like any other.
    async fn cut(&mut self) {
        self.upstream = None;
        self.events = Events::default();
        self.ledger.cut(&self.tenant.name);
        if self.open.is_empty() {
            self.open.insert(0);
        }
        for index in std::mem::take(&mut self.open) {
            self.say(&self.envelope.chunk(index, &json!({}), Some("length")));
        }
        if self.wants_usage {
            self.say(&self.envelope.usage(self.usage));
        }
        self.end(Some(self.usage)).await;
    }

    /// Settles, and only then says so: whoever has seen the end can rely on the books.
    async fn end(&mut self, counted: Option<Usage>) {
        self.upstream = None;
        if let Some(permit) = self.permit.take() {
            permit.finish(counted.or(self.reported).map(|usage| usage.total_tokens)).await;
        }
        self.ready.push_back(sse::event(sse::DONE).into());
    }

    fn say(&mut self, chunk: &Value) {
        self.ready.push_back(sse::event(&chunk.to_string()).into());
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if self.upstream.is_some() {
            self.ledger.gone(&self.tenant.name);
        }
    }
}
