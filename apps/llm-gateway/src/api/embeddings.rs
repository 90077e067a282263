//! OpenAI Embeddings: text in, vectors out. Costs the prompt.

use super::{Api, Family, OutputLimit, UsageFields};

/// `POST /v1/embeddings`.
pub static EMBEDDINGS: Api = Api {
    path: "/v1/embeddings",
    family: Family::OpenAi,
    prompt: &["input"],
    takes_messages: false,
    limit: OutputLimit { names: &[], added: None, min: 1 },
    usage: UsageFields { input: "prompt_tokens", output: "completion_tokens" },
    stream: None,
};
