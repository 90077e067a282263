//! OpenAI Responses: typed events, the last of which has the whole response.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{Api, Family, OutputLimit, Problem, Reader, Step, Streaming, Usage, UsageFields};
use crate::sse::Event;

/// `POST /v1/responses`.
pub static RESPONSES: Api = Api {
    path: "/v1/responses",
    family: Family::OpenAi,
    prompt: &["input", "instructions", "tools"],
    takes_messages: false,
    limit: OutputLimit { names: &["max_output_tokens"], added: Some("max_output_tokens"), min: 16 },
    usage: USAGE,
    stream: Some(Streaming {
        end_marker: None,
        usage_on_request: false,
        generated,
        reader: |_| Box::<ResponsesReader>::default(),
    }),
};

const USAGE: UsageFields = UsageFields { input: "input_tokens", output: "output_tokens" };

/// Text, refusals, reasoning and arguments of tools all come in events of their own kind, with a `delta`.
fn generated(event: &Value) -> Vec<&Value> {
    if kind(event).ends_with(".delta") { vec![&event["delta"]] } else { Vec::new() }
}

fn kind(event: &Value) -> &str {
    event["type"].as_str().unwrap_or_default()
}

/// Keeps what the last event repeats: the response, and the text so far. That is at most what was debited.
#[derive(Default)]
struct ResponsesReader {
    response: Value,
    /// Output items by index.
    items: BTreeMap<u64, Value>,
    /// Items that have begun and have not ended.
    open: BTreeSet<u64>,
    /// Text by item and part.
    texts: BTreeMap<(u64, u64), String>,
    sequence_number: u64,
    reported: Option<Usage>,
}

impl Reader for ResponsesReader {
    fn read(&mut self, event: &Value) -> Step {
        self.sequence_number = event["sequence_number"].as_u64().unwrap_or(self.sequence_number);
        let item = event["output_index"].as_u64().unwrap_or(0);
        match kind(event) {
            "response.created" => self.response = event["response"].clone(),
            "response.output_item.added" => {
                self.open.insert(item);
                self.items.insert(item, event["item"].clone());
            }
            "response.output_item.done" => {
                self.open.remove(&item);
                self.items.insert(item, event["item"].clone());
            }
            "response.output_text.delta" => {
                let part = event["content_index"].as_u64().unwrap_or(0);
                let text = self.texts.entry((item, part)).or_default();
                text.push_str(event["delta"].as_str().unwrap_or_default());
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                self.reported = USAGE.read(&event["response"]["usage"]);
                return Step::End;
            }
            "error" => return Step::Error,
            _ => {}
        }
        Step::Continue
    }

    fn reported(&self, _: Usage) -> Option<Usage> {
        self.reported
    }

    fn cut(&mut self, counted: Usage) -> Vec<Event> {
        let open = std::mem::take(&mut self.open);
        let mut events: Vec<Event> = open.into_iter().map(|item| self.end_item(item)).collect();
        events.push(self.end_response(counted));
        events
    }

    fn fail(&self, problem: &Problem) -> Event {
        let (code, message) = (problem.code, &problem.message);
        let sequence_number = self.sequence_number + 1;
        let error = json!({ "type": "error", "code": code, "message": message, "param": null,
            "sequence_number": sequence_number });
        Event::typed(&error)
    }
}

impl ResponsesReader {
    fn next_number(&mut self) -> u64 {
        self.sequence_number += 1;
        self.sequence_number
    }

    /// Ends an item with the text so far.
    fn end_item(&mut self, index: u64) -> Event {
        let number = self.next_number();
        let texts = self.texts.range((index, 0)..=(index, u64::MAX));
        let part = |text: &String| json!({ "type": "output_text", "text": text, "annotations": [] });
        let content: Vec<Value> = texts.map(|(_, text)| part(text)).collect();
        let item = self.items.entry(index).or_default();
        if !content.is_empty() {
            set(item, "content", content.into());
        }
        set(item, "status", "incomplete".into());
        Event::typed(&json!({ "type": "response.output_item.done", "sequence_number": number,
            "output_index": index, "item": item }))
    }

    fn end_response(&mut self, counted: Usage) -> Event {
        let number = self.next_number();
        let mut response = std::mem::take(&mut self.response);
        set(&mut response, "status", "incomplete".into());
        set(&mut response, "incomplete_details", json!({ "reason": "max_output_tokens" }));
        set(&mut response, "output", self.items.values().cloned().collect());
        set(&mut response, "usage", USAGE.write(counted));
        let kind = "response.incomplete";
        Event::typed(&json!({ "type": kind, "sequence_number": number, "response": response }))
    }
}

/// Sets a field of an object. A value that is none is replaced by one: the upstream may send anything.
fn set(object: &mut Value, name: &str, value: Value) {
    if !object.is_object() {
        *object = json!({});
    }
    object[name] = value;
}
