//! What is said on the wire, as far as a gateway has to understand it. The rest passes through untouched.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// What a caller asks of the model, as far as it is metered.
#[derive(Clone, Debug, Deserialize)]
pub struct ChatRequest {
    /// By which the tokenizer is chosen.
    pub model: String,
    /// The prompt.
    pub messages: Vec<Map<String, Value>>,
    /// What tools there are: part of the prompt, too.
    pub tools: Option<Value>,
    /// The most that may be generated for each choice, by its older name.
    pub max_tokens: Option<u64>,
    /// The same by its newer name, which wins.
    pub max_completion_tokens: Option<u64>,
    /// How many answers are wanted.
    pub n: Option<u64>,
    /// Whether tokens are wanted as they come.
    pub stream: Option<bool>,
    /// What else is wanted of a stream.
    pub stream_options: Option<StreamOptions>,
}

/// What else may be wanted of a stream.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct StreamOptions {
    /// Whether the last chunk is to tell what was used.
    #[serde(default)]
    pub include_usage: bool,
}

impl ChatRequest {
    /// The most that may be generated for each choice, if the caller says so.
    pub fn max_each(&self) -> Option<u64> {
        self.max_completion_tokens.or(self.max_tokens)
    }

    /// Whether tokens are wanted as they come.
    pub fn streams(&self) -> bool {
        self.stream == Some(true)
    }

    /// How many answers are wanted.
    pub fn choices(&self) -> u64 {
        self.n.unwrap_or(1).max(1)
    }

    /// Whether the last chunk is to tell what was used.
    pub fn wants_usage(&self) -> bool {
        self.stream_options.is_some_and(|options| options.include_usage)
    }
}

/// How many tokens a request took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Usage {
    /// Those of the prompt.
    pub prompt_tokens: u64,
    /// Those that were generated.
    #[serde(default)]
    pub completion_tokens: u64,
    /// Both.
    pub total_tokens: u64,
}

impl Usage {
    /// The sum is worked out.
    pub fn of(prompt_tokens: u64, completion_tokens: u64) -> Self {
        Self { prompt_tokens, completion_tokens, total_tokens: prompt_tokens + completion_tokens }
    }
}

/// What all chunks of one stream have in common.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Envelope {
    /// The completion's name.
    pub id: String,
    /// When it was begun, in seconds.
    pub created: u64,
    /// The model that answers.
    pub model: String,
}

impl Envelope {
    /// A chunk that carries something for one choice.
    pub fn chunk(&self, index: u64, delta: &Value, finish_reason: Option<&str>) -> Value {
        let choice =
            json!({ "index": index, "delta": delta, "logprobs": null, "finish_reason": finish_reason });
        self.wrap(&json!([choice]), None)
    }

    /// The chunk that tells what was used.
    pub fn usage(&self, usage: Usage) -> Value {
        self.wrap(&json!([]), Some(usage))
    }

    fn wrap(&self, choices: &Value, usage: Option<Usage>) -> Value {
        let Self { id, created, model } = self;
        let object = "chat.completion.chunk";
        json!({ "id": id, "object": object, "created": created, "model": model, "choices": choices, "usage": usage })
    }
}

/// An error in the words that clients of this API know.
pub fn error_body(kind: &str, code: &str, message: &str) -> Value {
    json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
}
