//! The format of a completion by each API that generates text.

use llm_gateway::api::{CHAT, Envelope, MESSAGES, RESPONSES, Request, Usage};
use llm_gateway::sse::{DONE, Event};
use serde_json::{Value, json};

/// Formats one completion.
pub(super) struct Voice {
    kind: Kind,
    envelope: Envelope,
    /// Text so far, which the last events of some APIs repeat.
    text: String,
    sequence_number: u64,
}

#[derive(Clone, Copy)]
enum Kind {
    Chat { wants_usage: bool },
    Responses,
    Messages,
}

impl Voice {
    pub(super) fn new(request: &Request, nth: u64) -> Self {
        let kind = match request.api.path {
            path if path == RESPONSES.path => Kind::Responses,
            path if path == MESSAGES.path => Kind::Messages,
            _ => Kind::Chat { wants_usage: request.wants_usage },
        };
        let id = format!("mock-{nth}");
        let envelope = Envelope { id, created: 1_700_000_000 + nth, model: request.model.clone() };
        Self { kind, envelope, text: String::new(), sequence_number: 0 }
    }

    /// Returns the events before the text.
    pub(super) fn begin(&mut self, prompt: u64) -> Vec<Event> {
        match self.kind {
            Kind::Chat { .. } => {
                vec![unnamed(&self.envelope.chunk(0, &json!({ "role": "assistant", "content": "" }), None))]
            }
            Kind::Responses => {
                let response = self.response("in_progress", &json!([]), &Value::Null);
                let item = self.item("in_progress", &json!([]));
                let part = output_text("");
                vec![
                    self.numbered(json!({ "type": "response.created", "response": response })),
                    self.numbered(
                        json!({ "type": "response.output_item.added", "output_index": 0, "item": item }),
                    ),
                    self.numbered(json!({ "type": "response.content_part.added", "item_id": "msg_0",
                        "output_index": 0, "content_index": 0, "part": part })),
                ]
            }
            Kind::Messages => {
                let usage = json!({ "input_tokens": prompt, "output_tokens": 1 });
                let message = self.message(&json!([]), &Value::Null, &usage);
                let block = json!({ "type": "text", "text": "" });
                vec![
                    Event::typed(&json!({ "type": "message_start", "message": message })),
                    Event::typed(
                        &json!({ "type": "content_block_start", "index": 0, "content_block": block }),
                    ),
                    Event::typed(&json!({ "type": "ping" })),
                ]
            }
        }
    }

    /// Returns the event with more text.
    pub(super) fn chunk(&mut self, text: &str) -> Event {
        match self.kind {
            Kind::Chat { .. } => unnamed(&self.envelope.chunk(0, &json!({ "content": text }), None)),
            Kind::Responses => {
                self.text += text;
                self.numbered(json!({ "type": "response.output_text.delta", "item_id": "msg_0",
                    "output_index": 0, "content_index": 0, "delta": text, "logprobs": [] }))
            }
            Kind::Messages => {
                let delta = json!({ "type": "text_delta", "text": text });
                Event::typed(&json!({ "type": "content_block_delta", "index": 0, "delta": delta }))
            }
        }
    }

    /// Returns the events after the text.
    pub(super) fn end(&mut self, capped: bool, usage: Usage) -> Vec<Event> {
        match self.kind {
            Kind::Chat { wants_usage } => {
                let finish_reason = if capped { "length" } else { "stop" };
                let end = self.envelope.chunk(0, &json!({}), Some(finish_reason));
                let usage = wants_usage.then(|| unnamed(&self.envelope.usage(usage)));
                [unnamed(&end)].into_iter().chain(usage).chain([Event::unnamed(DONE)]).collect()
            }
            Kind::Responses => {
                let text = std::mem::take(&mut self.text);
                let item = self.item(status(capped), &json!([output_text(&text)]));
                let response = self.whole(&text, capped, usage);
                let last = if capped { "response.incomplete" } else { "response.completed" };
                vec![
                    self.numbered(json!({ "type": "response.output_text.done", "item_id": "msg_0",
                        "output_index": 0, "content_index": 0, "text": text, "logprobs": [] })),
                    self.numbered(
                        json!({ "type": "response.output_item.done", "output_index": 0, "item": item }),
                    ),
                    self.numbered(json!({ "type": last, "response": response })),
                ]
            }
            Kind::Messages => {
                let delta = json!({ "stop_reason": stop_reason(capped), "stop_sequence": null });
                let usage = json!({ "output_tokens": usage.output });
                vec![
                    Event::typed(&json!({ "type": "content_block_stop", "index": 0 })),
                    Event::typed(&json!({ "type": "message_delta", "delta": delta, "usage": usage })),
                    Event::typed(&json!({ "type": "message_stop" })),
                ]
            }
        }
    }

    /// Returns the response that does not stream.
    pub(super) fn whole(&self, text: &str, capped: bool, usage: Usage) -> Value {
        match self.kind {
            Kind::Chat { .. } => self.completion(text, capped, usage),
            Kind::Responses => {
                let output = json!([self.item(status(capped), &json!([output_text(text)]))]);
                let usage = RESPONSES.usage.write(usage);
                self.response(status(capped), &output, &usage)
            }
            Kind::Messages => {
                let content = json!([{ "type": "text", "text": text }]);
                let usage = json!({ "input_tokens": usage.input, "output_tokens": usage.output });
                self.message(&content, &json!(stop_reason(capped)), &usage)
            }
        }
    }

    fn completion(&self, text: &str, capped: bool, usage: Usage) -> Value {
        let Envelope { id, created, model } = &self.envelope;
        let message = json!({ "role": "assistant", "content": text, "refusal": null });
        let finish_reason = if capped { "length" } else { "stop" };
        let choice =
            json!({ "index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason });
        let (object, usage) = ("chat.completion", CHAT.usage.write(usage));
        json!({ "id": id, "object": object, "created": created, "model": model, "choices": [choice], "usage": usage })
    }

    fn response(&self, status: &str, output: &Value, usage: &Value) -> Value {
        let Envelope { id, created, model } = &self.envelope;
        let details = (status == "incomplete").then(|| json!({ "reason": "max_output_tokens" }));
        json!({ "id": id, "object": "response", "created_at": created, "model": model, "status": status,
            "error": null, "incomplete_details": details, "output": output, "usage": usage,
            "parallel_tool_calls": true, "tool_choice": "auto", "tools": [] })
    }

    fn item(&self, status: &str, content: &Value) -> Value {
        json!({ "id": "msg_0", "type": "message", "role": "assistant", "status": status, "content": content })
    }

    fn message(&self, content: &Value, stop_reason: &Value, usage: &Value) -> Value {
        let Envelope { id, model, .. } = &self.envelope;
        json!({ "id": id, "type": "message", "role": "assistant", "model": model, "content": content,
            "stop_reason": stop_reason, "stop_sequence": null, "usage": usage })
    }

    fn numbered(&mut self, mut event: Value) -> Event {
        event["sequence_number"] = self.sequence_number.into();
        self.sequence_number += 1;
        Event::typed(&event)
    }
}

fn unnamed(data: &Value) -> Event {
    Event::unnamed(data.to_string())
}

fn output_text(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [] })
}

fn status(capped: bool) -> &'static str {
    if capped { "incomplete" } else { "completed" }
}

fn stop_reason(capped: bool) -> &'static str {
    if capped { "max_tokens" } else { "end_turn" }
}
