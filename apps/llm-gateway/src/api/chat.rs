//! OpenAI Chat Completions: unnamed events with `choices`, and `[DONE]` at the end.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Api, Family, OutputLimit, Problem, Reader, Step, Streaming, Usage, UsageFields};
use crate::sse::{DONE, Event};

/// `POST /v1/chat/completions`.
pub static CHAT: Api = Api {
    path: "/v1/chat/completions",
    family: Family::OpenAi,
    prompt: &["messages", "tools"],
    takes_messages: true,
    // Some models reject the older name, some servers the newer one: the configuration decides which one is added.
    limit: OutputLimit { names: &["max_completion_tokens", "max_tokens"], added: None, min: 1 },
    usage: USAGE,
    stream: Some(Streaming {
        end_marker: Some(DONE),
        usage_on_request: true,
        generated,
        reader: |request| Box::new(ChatReader { wants_usage: request.wants_usage, ..Default::default() }),
    }),
};

const USAGE: UsageFields = UsageFields { input: "prompt_tokens", output: "completion_tokens" };

fn generated(chunk: &Value) -> Vec<&Value> {
    choices(chunk).iter().map(|choice| &choice["delta"]).collect()
}

fn choices(chunk: &Value) -> &[Value] {
    chunk["choices"].as_array().map_or(&[], Vec::as_slice)
}

/// Fields that all chunks of a stream share.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Envelope {
    /// ID of the completion.
    pub id: String,
    /// Creation time, in seconds.
    pub created: u64,
    /// The model.
    pub model: String,
}

impl Envelope {
    /// Returns the chunk with something for one choice.
    pub fn chunk(&self, index: u64, delta: &Value, finish_reason: Option<&str>) -> Value {
        let choice =
            json!({ "index": index, "delta": delta, "logprobs": null, "finish_reason": finish_reason });
        self.wrap(&json!([choice]), &Value::Null)
    }

    /// Returns the chunk with the usage.
    pub fn usage(&self, usage: Usage) -> Value {
        self.wrap(&json!([]), &USAGE.write(usage))
    }

    fn wrap(&self, choices: &Value, usage: &Value) -> Value {
        let Self { id, created, model } = self;
        let object = "chat.completion.chunk";
        json!({ "id": id, "object": object, "created": created, "model": model, "choices": choices, "usage": usage })
    }
}

#[derive(Default)]
struct ChatReader {
    wants_usage: bool,
    envelope: Envelope,
    /// Choices that have begun and have not ended.
    open: BTreeSet<u64>,
    /// `true` once a choice has ended.
    finished: bool,
    reported: Option<Usage>,
}

impl Reader for ChatReader {
    fn read(&mut self, chunk: &Value) -> Step {
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Step::Error;
        }
        if self.envelope.id.is_empty() {
            self.envelope = Envelope::deserialize(chunk).unwrap_or_default();
        }
        for choice in choices(chunk) {
            let index = choice["index"].as_u64().unwrap_or(0);
            if choice["finish_reason"].is_null() {
                self.open.insert(index);
            } else {
                self.finished = true;
                self.open.remove(&index);
            }
        }
        let usage = USAGE.read(&chunk["usage"]);
        self.reported = usage.or(self.reported);
        let is_usage_only = usage.is_some() && choices(chunk).is_empty();
        if is_usage_only && !self.wants_usage { Step::Hide } else { Step::Continue }
    }

    fn reported(&self, _: Usage) -> Option<Usage> {
        self.reported
    }

    /// Some servers send no `[DONE]`.
    fn is_complete(&self) -> bool {
        self.finished && self.open.is_empty()
    }

    fn cut(&mut self, counted: Usage) -> Vec<Event> {
        let open = std::mem::take(&mut self.open);
        let open = if open.is_empty() { BTreeSet::from([0]) } else { open };
        let ends = open.into_iter().map(|index| self.envelope.chunk(index, &json!({}), Some("length")));
        let usage = self.wants_usage.then(|| self.envelope.usage(counted));
        ends.chain(usage).map(|chunk| Event::unnamed(chunk.to_string())).collect()
    }

    fn fail(&self, problem: &Problem) -> Event {
        Event::unnamed(CHAT.family.error_body(problem).to_string())
    }
}
