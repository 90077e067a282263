//! Counts tokens by the vocabulary of the model.

use serde_json::{Map, Value};
use tiktoken::CoreBpe;

use crate::api::Request;

/// Tokens of a chat beside its text, as OpenAI's guide counts them: for each message, and to begin the answer.
const EACH_MESSAGE: u64 = 3;
const EACH_NAME: u64 = 1;
const ANSWER: u64 = 3;

const IMAGE: u64 = 765;
const AUDIO: u64 = 600;
const FILE: u64 = 1_500;
/// Parts that are not text, by type and field, and the tokens that they count as: an image of 1024 × 1024 by OpenAI's
/// guide, a minute of audio, a file of some pages. The model's own count replaces them at the end.
const PARTS: [(&str, &str, u64); 10] = [
    ("image_url", "image_url", IMAGE),
    ("input_audio", "input_audio", AUDIO),
    ("file", "file", FILE),
    ("input_image", "image_url", IMAGE),
    ("input_image", "file_id", IMAGE),
    ("input_file", "file_data", FILE),
    ("input_file", "file_id", FILE),
    ("input_file", "file_url", FILE),
    ("image", "source", IMAGE),
    ("document", "source", FILE),
];

/// Vocabulary for unknown models.
const NEWEST: &str = "o200k_base";

/// Counts tokens of one model.
#[derive(Clone, Copy)]
pub struct Counter(&'static CoreBpe);

impl Counter {
    /// Creates a counter for a model. An unknown one counts as the newest OpenAI models do.
    pub fn of(model: &str) -> Self {
        let known = tiktoken::encoding_for_model(model).or_else(|| tiktoken::get_encoding(NEWEST));
        Self(known.expect("the vocabulary is built in"))
    }

    /// Counts a text.
    pub fn text(self, text: &str) -> u64 {
        self.0.count(text) as u64
    }

    /// Counts the prompt of a request. The model's own count may differ, and replaces it at the end.
    pub fn prompt(self, request: &Request) -> u64 {
        let answer = if request.api.generates() { ANSWER } else { 0 };
        answer + request.prompt.iter().map(|(name, value)| self.field(name, value)).sum::<u64>()
    }

    /// Counts what the model generated.
    pub fn generated(self, values: &[&Value]) -> u64 {
        values.iter().map(|value| self.said(value)).sum()
    }

    fn field(self, name: &str, value: &Value) -> u64 {
        match value {
            tools if name == "tools" => self.text(&tools.to_string()),
            Value::Array(items) => items.iter().map(|item| self.item(item)).sum(),
            text => self.said(text),
        }
    }

    /// Counts an item of a prompt: a message, a text, or a token.
    fn item(self, item: &Value) -> u64 {
        match item {
            Value::Object(message) => {
                let name = if message.contains_key("name") { EACH_NAME } else { 0 };
                let role = message.get("role").map_or(0, |role| self.said(role));
                EACH_MESSAGE + name + role + self.fields(message)
            }
            Value::Number(_) => 1,
            other => self.said(other),
        }
    }

    fn said(self, value: &Value) -> u64 {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(tokens) if tokens.iter().all(Value::is_number) => tokens.len() as u64,
            Value::Array(parts) => parts.iter().map(|part| self.said(part)).sum(),
            Value::Object(fields) => part(fields).unwrap_or_else(|| self.fields(fields)),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
    }

    fn fields(self, fields: &Map<String, Value>) -> u64 {
        let written = fields.iter().filter(|(name, _)| !LABELS.contains(&name.as_str()));
        written.map(|(_, part)| self.said(part)).sum()
    }
}

/// Returns the count of a part that is not text.
fn part(fields: &Map<String, Value>) -> Option<u64> {
    let kind = fields.get("type")?.as_str()?;
    let is_it = |&&(name, field, _): &&(&str, &str, u64)| name == kind && fields.contains_key(field);
    let is_text = fields.get("source").is_some_and(|source| source["type"] == "text");
    PARTS.iter().find(is_it).filter(|_| !is_text).map(|&(_, _, tokens)| tokens)
}

/// Fields that neither the caller nor the model wrote as text.
const LABELS: [&str; 10] = [
    "cache_control",
    "call_id",
    "detail",
    "id",
    "media_type",
    "role",
    "signature",
    "status",
    "tool_use_id",
    "type",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Api, CHAT, EMBEDDINGS, MESSAGES, RESPONSES};
    use serde_json::json;

    fn request(messages: &Value) -> Request {
        let body = json!({ "model": "gpt-4o", "messages": messages });
        Request::parse(&CHAT, body.to_string().as_bytes()).unwrap()
    }

    fn prompt(api: &'static Api, body: &Value) -> u64 {
        let mut body = body.clone();
        body["model"] = json!("gpt-4o");
        Counter::of("gpt-4o").prompt(&Request::parse(api, body.to_string().as_bytes()).unwrap())
    }

    #[test]
    fn each_api_counts_its_own_prompt_fields() {
        let frame = 1 + EACH_MESSAGE + ANSWER;
        let message = json!([{ "role": "user", "content": "hello world" }]);
        assert_eq!(prompt(&RESPONSES, &json!({ "input": "hello world" })), 2 + ANSWER);
        assert_eq!(
            prompt(&RESPONSES, &json!({ "input": message, "instructions": "hello world" })),
            4 + frame
        );
        assert_eq!(prompt(&MESSAGES, &json!({ "messages": message, "system": "hello world" })), 4 + frame);
        let image = json!({ "type": "image", "source": { "type": "base64", "data": "Qk1" } });
        let text = json!({ "type": "document", "source": { "type": "text", "data": "hello world" } });
        let message = json!([{ "role": "user", "content": [image, text] }]);
        assert_eq!(prompt(&MESSAGES, &json!({ "messages": message })), IMAGE + 2 + frame);
    }

    #[test]
    fn embeddings_count_texts_and_tokens_without_a_frame() {
        assert_eq!(prompt(&EMBEDDINGS, &json!({ "input": "hello world" })), 2);
        assert_eq!(prompt(&EMBEDDINGS, &json!({ "input": ["hello world", "hello"] })), 3);
        assert_eq!(prompt(&EMBEDDINGS, &json!({ "input": [15339, 1917] })), 2);
        assert_eq!(prompt(&EMBEDDINGS, &json!({ "input": [[15339, 1917], [1]] })), 3);
    }

    #[test]
    fn texts_count_as_the_vocabulary_says() {
        assert_eq!(Counter::of("gpt-4o").text("hello world"), 2);
        assert_eq!(Counter::of("gpt-4").text("hello world"), 2);
        assert_eq!(Counter::of("nobody-knows-it").text("hello world"), 2);
        let (new, old) = (Counter::of("gpt-4o"), Counter::of("gpt-4"));
        assert!(new.text("жизнь прекрасна и удивительна") < old.text("жизнь прекрасна и удивительна"));
    }

    #[test]
    fn a_prompt_is_its_text_and_what_frames_it() {
        let plain = request(&json!([{ "role": "user", "content": "hello world" }]));
        assert_eq!(Counter::of("gpt-4o").prompt(&plain), 1 + 2 + EACH_MESSAGE + ANSWER);
        let parts =
            request(&json!([{ "role": "user", "content": [{ "type": "text", "text": "hello world" }] }]));
        assert_eq!(Counter::of("gpt-4o").prompt(&parts), 1 + 2 + EACH_MESSAGE + ANSWER);
    }

    #[test]
    fn a_picture_counts_the_same_however_large_its_text_is() {
        let counted = |bytes: usize| {
            let url = format!("data:image/png;base64,{}", "Qk1".repeat(bytes));
            let image = json!({ "type": "image_url", "image_url": { "url": url, "detail": "high" } });
            let text = json!({ "type": "text", "text": "hello world" });
            Counter::of("gpt-4o").prompt(&request(&json!([{ "role": "user", "content": [text, image] }])))
        };
        assert_eq!(counted(1), 765 + 1 + 2 + EACH_MESSAGE + ANSWER);
        assert_eq!(counted(10_000), counted(1));
        let sound = json!({ "type": "input_audio", "input_audio": { "data": "Qk1", "format": "wav" } });
        let heard = request(&json!([{ "role": "user", "content": [sound] }]));
        assert_eq!(Counter::of("gpt-4o").prompt(&heard), 600 + 1 + EACH_MESSAGE + ANSWER);
        let said = request(
            &json!([{ "role": "user", "content": [{ "type": "image_url", "text": "hello world" }] }]),
        );
        assert_eq!(
            Counter::of("gpt-4o").prompt(&said),
            1 + 2 + EACH_MESSAGE + ANSWER,
            "a label alone saves nothing"
        );
    }

    #[test]
    fn a_chunk_counts_what_the_model_generated() {
        let counted = |api: &Api, event: &Value| {
            Counter::of("gpt-4o").generated(&(api.stream.as_ref().unwrap().generated)(event))
        };
        let text = json!({ "choices": [{ "delta": { "role": "assistant", "content": " hello world" } }] });
        assert_eq!(counted(&CHAT, &text), 2);
        let call =
            json!({ "index": 0, "id": "call_1", "type": "function", "function": { "arguments": "{}" } });
        assert_eq!(counted(&CHAT, &json!({ "choices": [{ "delta": { "tool_calls": [call] } }] })), 1);
        assert_eq!(counted(&CHAT, &json!({ "choices": [], "usage": { "total_tokens": 9 } })), 0);
        let text = json!({ "type": "response.output_text.delta", "delta": " hello world" });
        assert_eq!(counted(&RESPONSES, &text), 2);
        assert_eq!(counted(&RESPONSES, &json!({ "type": "response.output_text.done", "text": " hello" })), 0);
        let delta = json!({ "type": "text_delta", "text": " hello world" });
        assert_eq!(counted(&MESSAGES, &json!({ "type": "content_block_delta", "delta": delta })), 2);
    }
}
