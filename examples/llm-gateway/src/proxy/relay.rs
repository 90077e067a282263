//! A stream on its way from the model to the caller, with every chunk debited before it is passed on.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use axum::body::{Body, Bytes};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::api::{Envelope, Usage, error_body};
use crate::gate::{Debit, Permit};
use crate::ledger::Ledger;
use crate::sse::{self, Events, TooLong};
use crate::tenants::Tenant;
use crate::tokens::Counter;

use super::{Call, Sent};

/// For how long the model may be silent between two chunks.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(60);

/// One stream. Dropped before its end, the caller went away: the model's connection is closed, and the permit settles.
pub(super) struct Relay {
    /// Until it has said all, or is cut.
    upstream: Option<Body>,
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
    /// Whether any has ended.
    finished: bool,
    ready: VecDeque<Bytes>,
    tenant: Arc<Tenant>,
    pub(super) ledger: Arc<Ledger>,
}

impl Relay {
    /// The model has begun to answer. The prompt was counted before.
    pub(super) fn begin(upstream: Body, call: &Call, sent: &mut Sent) -> Self {
        Self {
            upstream: Some(upstream),
            permit: sent.over(sent.prompt),
            events: Events::default(),
            counter: call.counter,
            usage: Usage::of(sent.prompt, 0),
            reported: None,
            wants_usage: call.request.wants_usage(),
            envelope: Envelope::default(),
            open: BTreeSet::new(),
            finished: false,
            ready: VecDeque::new(),
            tenant: sent.tenant.clone(),
            ledger: sent.ledger.clone(),
        }
    }

    /// What the caller gets next.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Some(bytes);
            }
            match self.events.next_data() {
                Some(data) => self.take(data).await,
                None => match self.read().await? {
                    Ok(true) => {}
                    Ok(false) => self.end(None).await,
                    Err(error) => self.break_off("upstream_broke_off", &format!("The model: {error:#}.")),
                },
            }
        }
    }

    /// Reads on, and says whether there may be more. Nothing once the stream is over.
    async fn read(&mut self) -> Option<Result<bool>> {
        let upstream = self.upstream.as_mut()?;
        Some(match timeout(SILENCE_MAX, upstream.frame()).await {
            Ok(Some(Ok(frame))) => match frame.data_ref() {
                Some(data) => {
                    let pushed = self.events.push(data).map(|()| true);
                    pushed.map_err(|TooLong| anyhow!("an event without an end"))
                }
                None => Ok(true),
            },
            Ok(Some(Err(error))) => Err(error.into()),
            // Some models say no more than that every choice has ended.
            Ok(None) if self.finished && self.open.is_empty() => Ok(false),
            Ok(None) => Err(anyhow!("its answer ended in the middle")),
            Err(_) => Err(anyhow!("it fell silent")),
        })
    }

    /// The caller is told that the answer is not whole, as OpenAI does it: by an event, and nothing after it. What was passed
    /// on stays counted.
    fn break_off(&mut self, code: &str, why: &str) {
        self.upstream = None;
        self.permit = None;
        self.events = Events::default();
        self.say(&error_body("server_error", code, why));
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
        match self.debit(tokens).await {
            Debit::Allow => {}
            Debit::Deny => return self.cut().await,
            Debit::Lost(why) => {
                self.ledger.lost(&self.tenant.name);
                return self.break_off("limits_unavailable", &format!("Broken off: {why}. Try again soon."));
            }
        }
        if chunk.is_some_and(|chunk| self.note(&chunk)) && !self.wants_usage {
            return;
        }
        self.ready.push_back(sse::event(&data).into());
    }

    async fn debit(&mut self, tokens: u64) -> Debit {
        if tokens == 0 {
            return Debit::Allow;
        }
        let debit = match &mut self.permit {
            Some(permit) => permit.debit(tokens).await,
            None => Debit::Deny,
        };
        if debit == Debit::Allow {
            self.usage = Usage::of(self.usage.prompt_tokens, self.usage.completion_tokens + tokens);
            self.ledger.delivered(&self.tenant.name, tokens);
        }
        debit
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
                self.finished = true;
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
            self.ledger.gone(&self.tenant.name, self.usage.total_tokens);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use futures_util::{Stream, StreamExt, stream};
    use std::convert::Infallible;

    /// A stream of frames that cost nothing.
    pub(in super::super) fn relay(frames: impl Stream<Item = String> + Send + 'static) -> Relay {
        let body = Body::from_stream(frames.map(Ok::<_, Infallible>));
        let text = r#"{"model":"gpt-4o","messages":[],"stream":true}"#;
        let tenant = json!({ "name": "x", "key": "x", "weight": 1, "rpm": 1, "tpm": 1, "concurrency": 1 });
        let mut sent = Sent {
            permit: None,
            prompt: 1,
            tenant: Arc::new(serde_json::from_value(tenant).unwrap()),
            ledger: Arc::new(Ledger::new(Duration::from_secs(60))),
        };
        Relay::begin(body, &Call::read(text.as_bytes(), 9).unwrap(), &mut sent)
    }

    /// What a caller hears of it.
    async fn heard(frames: Vec<String>) -> String {
        let (mut relay, mut heard) = (relay(stream::iter(frames)), Vec::new());
        while let Some(bytes) = relay.next().await {
            heard.extend_from_slice(&bytes);
        }
        String::from_utf8(heard).unwrap()
    }

    pub(in super::super) fn chunk(finish_reason: Option<&str>) -> String {
        sse::event(&Envelope::default().chunk(0, &json!({}), finish_reason).to_string())
    }

    #[tokio::test]
    async fn after_an_error_nothing_is_said() {
        // The line is as long as one may be, then longer; the frame that ends it has more events.
        let long = format!("data: {}", "x".repeat((1 << 20) - 6));
        let rest = format!("\n\n{}{}", chunk(Some("stop")), sse::event(sse::DONE));
        let heard = heard(vec![chunk(None), long, "y".to_owned(), rest]).await;
        let rest = heard.strip_prefix(&chunk(None)).unwrap();
        assert!(rest.starts_with("data: {\"error\""), "{rest}");
        assert!(rest.matches("data: ").count() == 1 && rest.contains("upstream_broke_off"), "{rest}");
    }

    #[tokio::test]
    async fn an_answer_whose_choices_have_ended_has_ended() {
        let done = sse::event(sse::DONE);
        let whole = chunk(None) + &chunk(Some("stop"));
        assert_eq!(heard(vec![whole.clone()]).await, whole.clone() + &done);
        assert_eq!(heard(vec![whole.clone() + &done]).await, whole + &done);
        assert!(heard(vec![chunk(None)]).await.contains("upstream_broke_off"));
        assert!(heard(vec![]).await.contains("upstream_broke_off"));
    }

    #[tokio::test]
    async fn an_event_of_several_lines_passes_as_it_is() {
        let lines =
            serde_json::to_string_pretty(&Envelope::default().chunk(0, &json!({}), Some("stop"))).unwrap();
        let said = sse::event(&lines) + &sse::event(sse::DONE);
        assert!(said.matches("data: ").count() > 5);
        assert_eq!(heard(vec![said.clone()]).await, said);
    }
}
