//! Anthropic Messages: typed events around content blocks.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Api, Family, OutputLimit, Problem, Reader, Step, Streaming, Usage, UsageFields};
use crate::sse::Event;

/// `POST /v1/messages`.
pub static MESSAGES: Api = Api {
    path: "/v1/messages",
    family: Family::Anthropic,
    prompt: &["messages", "system", "tools"],
    takes_messages: true,
    // The API requires the limit, so none is ever added.
    limit: OutputLimit { names: &["max_tokens"], added: None, min: 1 },
    usage: USAGE,
    stream: Some(Streaming {
        end_marker: None,
        usage_on_request: false,
        generated,
        reader: |_| Box::<MessagesReader>::default(),
    }),
};

const USAGE: UsageFields = UsageFields { input: "input_tokens", output: "output_tokens" };

fn generated(event: &Value) -> Vec<&Value> {
    if event["type"] == "content_block_delta" { vec![&event["delta"]] } else { Vec::new() }
}

#[derive(Default)]
struct MessagesReader {
    /// Content blocks that have begun and have not ended.
    open: BTreeSet<u64>,
    input: Option<u64>,
    output: Option<u64>,
}

impl MessagesReader {
    /// Reads the usage of an event: the input from the first one, the output from the last but one.
    fn count(&mut self, event: &Value) {
        let begun = USAGE.read(&event["message"]["usage"]).or_else(|| USAGE.read(&event["usage"]));
        self.input = begun.map(|usage| usage.input).or(self.input);
        self.output = event["usage"][USAGE.output].as_u64().or(self.output);
    }
}

impl Reader for MessagesReader {
    fn read(&mut self, event: &Value) -> Step {
        let block = event["index"].as_u64().unwrap_or(0);
        self.count(event);
        match event["type"].as_str().unwrap_or_default() {
            "content_block_start" => {
                self.open.insert(block);
            }
            "content_block_stop" => {
                self.open.remove(&block);
            }
            "message_stop" => return Step::End,
            "error" => return Step::Error,
            _ => {}
        }
        Step::Continue
    }

    fn reported(&self, counted: Usage) -> Option<Usage> {
        let input = self.input.unwrap_or(counted.input);
        self.output.map(|output| Usage::of(input, output))
    }

    fn cut(&mut self, counted: Usage) -> Vec<Event> {
        let open = std::mem::take(&mut self.open).into_iter();
        let stops = open.map(|block| json!({ "type": "content_block_stop", "index": block }));
        let delta = json!({ "stop_reason": "max_tokens", "stop_sequence": null });
        let usage = json!({ "output_tokens": counted.output });
        let end = [
            json!({ "type": "message_delta", "delta": delta, "usage": usage }),
            json!({ "type": "message_stop" }),
        ];
        stops.chain(end).map(|event| Event::typed(&event)).collect()
    }

    fn fail(&self, problem: &Problem) -> Event {
        Event::typed(&MESSAGES.family.error_body(problem))
    }
}
