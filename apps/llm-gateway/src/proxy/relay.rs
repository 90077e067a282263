//! A stream on its way from the model to the caller. Every chunk is debited before it is passed on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::time::timeout;

use crate::api::{Problem, Reader, Step, Streaming, Usage};
use crate::ledger::Ledger;
use crate::metering::{Debit, Permit};
use crate::sse::{Event, Events, TooLong};
use crate::tenants::Tenant;
use crate::tokens::Counter;

use super::{Call, Sent};

/// Maximum silence of the model between two chunks.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(60);

/// One stream. If it is dropped before its end, the caller went away: the connection to the model is closed, and the
/// permit settles.
pub(super) struct Relay {
    /// `None` after the last event, or after a cut.
    upstream: Option<Body>,
    permit: Option<Permit>,
    events: Events,
    counter: Counter,
    /// Tokens passed on, by our count.
    usage: Usage,
    streaming: &'static Streaming,
    reader: Box<dyn Reader>,
    ready: VecDeque<Bytes>,
    tenant: Arc<Tenant>,
    pub(super) ledger: Arc<Ledger>,
}

impl Relay {
    /// Begins to relay a response. The prompt was counted before.
    pub(super) fn begin(upstream: Body, call: &Call, streaming: &'static Streaming, sent: &mut Sent) -> Self {
        Self {
            upstream: Some(upstream),
            permit: sent.over(sent.prompt),
            events: Events::default(),
            counter: call.counter,
            usage: Usage::of(sent.prompt, 0),
            streaming,
            reader: (streaming.reader)(&call.request),
            ready: VecDeque::new(),
            tenant: sent.tenant.clone(),
            ledger: sent.ledger.clone(),
        }
    }

    /// Returns what the caller gets next.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Some(bytes);
            }
            match self.events.next_event() {
                Some(event) => self.take(event).await,
                None => match self.read().await? {
                    Ok(true) => {}
                    Ok(false) => self.end().await,
                    Err(error) => self.break_off(
                        StatusCode::BAD_GATEWAY,
                        "upstream_broke_off",
                        format!("The upstream failed: {error:#}."),
                    ),
                },
            }
        }
    }

    /// Reads on, and returns whether there may be more. `None` once the stream is over.
    async fn read(&mut self) -> Option<Result<bool>> {
        let upstream = self.upstream.as_mut()?;
        Some(match timeout(SILENCE_MAX, upstream.frame()).await {
            Ok(Some(Ok(frame))) => match frame.data_ref() {
                Some(data) => {
                    let pushed = self.events.push(data).map(|()| true);
                    pushed.map_err(|TooLong| anyhow!("an event is too long"))
                }
                None => Ok(true),
            },
            Ok(Some(Err(error))) => Err(error.into()),
            Ok(None) if self.reader.is_complete() => Ok(false),
            Ok(None) => Err(anyhow!("the response ended before it was complete")),
            Err(_) => Err(anyhow!("no data within the timeout")),
        })
    }

    /// Takes one event: debits it, then passes it on.
    async fn take(&mut self, event: Event) {
        if self.streaming.end_marker == Some(event.data.as_str()) {
            return self.end().await;
        }
        let json: Option<Value> = serde_json::from_str(&event.data).ok();
        match self.debit(self.tokens(json.as_ref(), &event)).await {
            Debit::Allow => {}
            Debit::Deny => return self.cut().await,
            Debit::Lost(why) => {
                self.ledger.lost(&self.tenant.name);
                let why = format!("The stream was interrupted: {why}. Try again later.");
                return self.break_off(StatusCode::SERVICE_UNAVAILABLE, "limits_unavailable", why);
            }
        }
        match json.map_or(Step::Continue, |json| self.reader.read(&json)) {
            Step::Hide => return,
            Step::Continue => {}
            Step::End => self.settle(self.reader.reported(self.usage)).await,
            Step::Error => self.stop(),
        }
        self.send(&event);
    }

    /// Counts an event. One that is not JSON counts as the text that it is.
    fn tokens(&self, json: Option<&Value>, event: &Event) -> u64 {
        match json {
            Some(json) => self.counter.generated(&(self.streaming.generated)(json)),
            None => self.counter.text(&event.data),
        }
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
            self.usage = Usage::of(self.usage.input, self.usage.output + tokens);
            self.ledger.delivered(&self.tenant.name, tokens);
        }
        debit
    }

    /// Ends where the budget does: the model is stopped at once, and the caller gets an end like any other.
    async fn cut(&mut self) {
        self.ledger.cut(&self.tenant.name);
        let last = self.reader.cut(self.usage);
        self.settle(Some(self.usage)).await;
        last.iter().for_each(|event| self.send(event));
        self.send_end_marker();
    }

    /// Ends as the model did.
    async fn end(&mut self) {
        self.settle(self.reader.reported(self.usage)).await;
        self.send_end_marker();
    }

    /// Reports that the response is not complete: by an error, and nothing after it. What was passed on stays charged.
    fn break_off(&mut self, status: StatusCode, code: &'static str, message: String) {
        self.stop();
        let problem = Problem { status, kind: "server_error", code, message };
        self.send(&self.reader.fail(&problem));
    }

    fn stop(&mut self) {
        self.upstream = None;
        self.permit = None;
        self.events = Events::default();
    }

    /// Settles. Only then the end is sent, so that a caller that has seen it can rely on the counts.
    async fn settle(&mut self, usage: Option<Usage>) {
        self.upstream = None;
        self.events = Events::default();
        if let Some(permit) = self.permit.take() {
            permit.finish(usage.map(|usage| usage.total)).await;
        }
    }

    fn send(&mut self, event: &Event) {
        self.ready.push_back(event.encode().into());
    }

    fn send_end_marker(&mut self) {
        if let Some(marker) = self.streaming.end_marker {
            self.send(&Event::unnamed(marker));
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if self.upstream.is_some() {
            self.ledger.gone(&self.tenant.name, self.usage.total);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::api::{Api, CHAT, Envelope, MESSAGES, RESPONSES};
    use crate::sse;
    use futures_util::{Stream, StreamExt, stream};
    use serde_json::json;
    use std::convert::Infallible;

    /// A stream of frames that cost nothing.
    pub(in super::super) fn relay(frames: impl Stream<Item = String> + Send + 'static) -> Relay {
        relay_of(&CHAT, r#"{"model":"gpt-4o","messages":[],"stream":true}"#, frames)
    }

    fn relay_of(api: &'static Api, text: &str, frames: impl Stream<Item = String> + Send + 'static) -> Relay {
        let body = Body::from_stream(frames.map(Ok::<_, Infallible>));
        let tenant = json!({ "name": "x", "key": "x", "weight": 1, "rpm": 1, "tpm": 1, "concurrency": 1 });
        let mut sent = Sent {
            permit: None,
            prompt: 1,
            tenant: Arc::new(serde_json::from_value(tenant).unwrap()),
            ledger: Arc::new(Ledger::new(Duration::from_secs(60))),
        };
        let call = Call::read(api, text.as_bytes(), 9).unwrap();
        Relay::begin(body, &call, call.streaming().unwrap(), &mut sent)
    }

    /// The text that a caller receives.
    async fn heard(frames: Vec<String>) -> String {
        drain(relay(stream::iter(frames))).await
    }

    async fn drain(mut relay: Relay) -> String {
        let mut heard = Vec::new();
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

    #[tokio::test]
    async fn typed_streams_pass_as_they_are_and_end_with_their_last_event() {
        let responses = [
            json!({ "type": "response.created", "response": { "id": "r", "usage": null } }),
            json!({ "type": "response.completed", "response": { "id": "r", "usage": { "input_tokens": 1 } } }),
        ];
        let messages = [
            json!({ "type": "message_start", "message": { "usage": { "input_tokens": 1, "output_tokens": 1 } } }),
            json!({ "type": "ping" }),
            json!({ "type": "message_stop" }),
        ];
        let cases = [
            (&RESPONSES, r#"{"model":"gpt-4o","input":"x","stream":true}"#, &responses[..]),
            (&MESSAGES, r#"{"model":"gpt-4o","messages":[],"stream":true}"#, &messages[..]),
        ];
        for (api, request, events) in cases {
            let frames: Vec<String> = events.iter().map(|event| Event::typed(event).encode()).collect();
            let late = Event::typed(&json!({ "type": "late" })).encode();
            let all = stream::iter(frames.clone().into_iter().chain([late]));
            assert_eq!(drain(relay_of(api, request, all)).await, frames.concat());
            let cut_short = stream::iter(frames[..1].to_vec());
            let heard = drain(relay_of(api, request, cut_short)).await;
            let rest = heard.strip_prefix(&frames[0]).unwrap();
            assert!(
                rest.starts_with("event: error\ndata: ") && rest.contains("ended before it was complete"),
                "{rest}"
            );
        }
    }

    #[tokio::test]
    async fn an_error_of_the_model_in_a_stream_is_passed_on_once() {
        let overloaded =
            json!({ "type": "error", "error": { "type": "overloaded_error", "message": "busy" } });
        let event = Event::typed(&overloaded).encode();
        let request = r#"{"model":"gpt-4o","messages":[],"stream":true}"#;
        let frames = stream::iter([event.clone(), event.clone()]);
        assert_eq!(drain(relay_of(&MESSAGES, request, frames)).await, event);
        let error = sse::event(r#"{"error":{"message":"busy"}}"#);
        assert_eq!(heard(vec![error.clone()]).await, error);
    }
}
