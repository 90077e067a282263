//! How many tokens a text is, by the model's own vocabulary.

use serde_json::Value;
use tiktoken::CoreBpe;

use crate::api::ChatRequest;

/// What a chat costs beside its text, as OpenAI's own guide counts it: so many for each message, and so many to begin
/// the answer.
const EACH_MESSAGE: u64 = 3;
const EACH_NAME: u64 = 1;
const ANSWER: u64 = 3;

/// Parts that are not text count as so many, whatever is in them: an image of 1024 × 1024 by OpenAI's guide, a minute of
/// sound, a file of some pages. What the model counts replaces it in the end.
const PARTS: [(&str, u64); 3] = [("image_url", 765), ("input_audio", 600), ("file", 1_500)];

/// For models that the table does not know.
const NEWEST: &str = "o200k_base";

/// Counts tokens of one model.
#[derive(Clone, Copy)]
pub struct Counter(&'static CoreBpe);

impl Counter {
    /// By the model's name. One that is unknown counts as the newest do.
    pub fn of(model: &str) -> Self {
        let known = tiktoken::encoding_for_model(model).or_else(|| tiktoken::get_encoding(NEWEST));
        Self(known.expect("its vocabulary is built in"))
    }

    /// Of a text.
    pub fn text(self, text: &str) -> u64 {
        self.0.count(text) as u64
    }

    /// Of all that a request says to the model. An upstream's own count may differ by some: where it tells one, that
    /// counts in the end.
    pub fn prompt(self, request: &ChatRequest) -> u64 {
        let message = |message: &serde_json::Map<String, Value>| {
            let name = if message.contains_key("name") { EACH_NAME } else { 0 };
            EACH_MESSAGE + name + message.values().map(|value| self.said(value)).sum::<u64>()
        };
        let tools = request.tools.as_ref().map_or(0, |tools| self.text(&tools.to_string()));
        ANSWER + tools + request.messages.iter().map(message).sum::<u64>()
    }

    /// Of what a chunk adds to all its choices: text, refusals, arguments of tools; whatever the model wrote.
    pub fn chunk(self, chunk: &Value) -> u64 {
        let choices = chunk["choices"].as_array().into_iter().flatten();
        choices.map(|choice| self.said(&choice["delta"])).sum()
    }

    fn said(self, value: &Value) -> u64 {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(parts) => parts.iter().map(|part| self.said(part)).sum(),
            Value::Object(fields) if part(fields).is_some() => part(fields).unwrap_or(0),
            Value::Object(fields) => {
                let written = fields.iter().filter(|(name, _)| !LABELS.contains(&name.as_str()));
                written.map(|(_, part)| self.said(part)).sum()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
    }
}

/// What a part counts that is not text.
fn part(fields: &serde_json::Map<String, Value>) -> Option<u64> {
    let kind = fields.get("type")?.as_str()?;
    PARTS.into_iter().find(|&(name, _)| name == kind && fields.contains_key(name)).map(|(_, tokens)| tokens)
}

/// Fields that label what was written and were not written by the model themselves.
const LABELS: [&str; 4] = ["role", "id", "type", "detail"];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(messages: &Value) -> ChatRequest {
        serde_json::from_value(json!({ "model": "gpt-4o", "messages": messages })).unwrap()
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
    fn a_chunk_is_what_the_model_wrote() {
        let counter = Counter::of("gpt-4o");
        let text = json!({ "choices": [{ "delta": { "role": "assistant", "content": " hello world" } }] });
        assert_eq!(counter.chunk(&text), 2);
        let call =
            json!({ "index": 0, "id": "call_1", "type": "function", "function": { "arguments": "{}" } });
        assert_eq!(counter.chunk(&json!({ "choices": [{ "delta": { "tool_calls": [call] } }] })), 1);
        assert_eq!(counter.chunk(&json!({ "choices": [], "usage": { "total_tokens": 9 } })), 0);
    }
}
