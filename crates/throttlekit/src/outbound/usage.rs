//! Token counts that responses report, whole or streamed.

use serde_json::{Deserializer, Value};

use super::sse::Events;

/// Bytes of a body that are kept: the last ones, where `usage` is.
const KEPT_MAX: usize = 1 << 20;
const KEY: &[u8] = b"\"usage\"";

/// Number of tokens that a request took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens of the prompt. Of Anthropic as its own limits count: what is written to the prompt cache counts, what is read
    /// from it does not.
    pub input: u64,
    /// Generated tokens.
    pub output: u64,
    /// All tokens. Some models count more here than input and output.
    pub total: u64,
}

impl Usage {
    /// Creates a usage whose total is the sum.
    pub fn of(input: u64, output: u64) -> Self {
        Self { input, output, total: input.saturating_add(output) }
    }

    /// Reads the object `usage` of OpenAI (chat, responses, embeddings) or Anthropic (messages). Requires the input.
    pub fn read(usage: &Value) -> Option<Self> {
        let counts = Counts::of(usage);
        counts.input.and_then(|_| counts.usage(Self::default()))
    }
}

/// Reads the usage of a response as its body arrives: one JSON object, or server-sent events.
///
/// Of OpenAI chat, the last chunk has it if `stream_options.include_usage` was requested; of OpenAI responses, the last event;
/// of Anthropic, the first and the last but one.
#[derive(Debug, Default)]
pub(super) struct UsageReader {
    body: Body,
    counts: Counts,
}

/// The body so far.
#[derive(Debug, Default)]
enum Body {
    #[default]
    Empty,
    /// The last bytes of one JSON value.
    Json(Vec<u8>),
    Events(Events),
    /// An event that is too long to be read.
    Unreadable,
}

impl UsageReader {
    /// Adds a piece of the body, which may end anywhere.
    pub(super) fn push(&mut self, piece: &[u8]) {
        if matches!(self.body, Body::Empty) {
            self.body = match piece.iter().find(|byte| !byte.is_ascii_whitespace()) {
                None => return,
                Some(b'{' | b'[') => Body::Json(Vec::new()),
                Some(_) => Body::Events(Events::default()),
            };
        }
        match &mut self.body {
            Body::Json(kept) => keep(kept, piece),
            Body::Events(events) => {
                if events.push(piece).is_err() {
                    self.body = Body::Unreadable;
                }
                self.read_events();
            }
            Body::Empty | Body::Unreadable => {}
        }
    }

    /// Returns the usage that was reported, if any was. Numbers that are missing are those of the estimate.
    pub(super) fn usage(&self, estimate: Usage) -> Option<Usage> {
        let Body::Json(kept) = &self.body else { return self.counts.usage(estimate) };
        let mut counts = self.counts;
        match serde_json::from_slice::<Value>(kept) {
            Ok(json) => counts.read(&json),
            Err(_) => counts.add(&Counts::of(&last_usage(kept).unwrap_or_default())),
        }
        counts.usage(estimate)
    }

    fn read_events(&mut self) {
        let Body::Events(events) = &mut self.body else { return };
        while let Some(event) = events.next_event() {
            if let Ok(json) = serde_json::from_str(&event.data) {
                self.counts.read(&json);
            }
        }
    }
}

/// Adds a piece and removes the oldest bytes, now and then, so that each byte is moved once.
fn keep(kept: &mut Vec<u8>, piece: &[u8]) {
    kept.extend_from_slice(piece);
    if kept.len() > 2 * KEPT_MAX {
        kept.drain(..kept.len() - KEPT_MAX);
    }
}

/// Finds the last `"usage"` in a part of a body. In text that a model generated, its quotes are escaped.
fn last_usage(body: &[u8]) -> Option<Value> {
    let at = body.windows(KEY.len()).rposition(|window| window == KEY)?;
    let rest = body[at + KEY.len()..].trim_ascii_start().strip_prefix(b":")?;
    Deserializer::from_slice(rest).into_iter::<Value>().next()?.ok()
}

/// Numbers that were reported.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    input: Option<u64>,
    output: Option<u64>,
    total: Option<u64>,
    /// `true` once there was more than the beginning of a message.
    is_final: bool,
}

impl Counts {
    fn of(usage: &Value) -> Self {
        let number = |name: &str| usage.get(name)?.as_u64();
        let written = number("cache_creation_input_tokens").unwrap_or(0);
        let input = number("prompt_tokens")
            .or_else(|| number("input_tokens").map(|input| input.saturating_add(written)));
        let output = number("completion_tokens").or_else(|| number("output_tokens"));
        Self { input, output, total: number("total_tokens"), is_final: input.or(output).is_some() }
    }

    fn read(&mut self, json: &Value) {
        let of = |json: Option<&Value>| json.and_then(|json| json.get("usage")).map(Self::of);
        if let Some(begun) = of(json.get("message")) {
            // Its count of output tokens is of the beginning.
            self.input = begun.input.or(self.input);
        }
        if let Some(counts) = of(Some(json)).or_else(|| of(json.get("response"))) {
            self.add(&counts);
        }
    }

    fn add(&mut self, later: &Self) {
        self.input = later.input.or(self.input);
        self.output = later.output.or(self.output);
        self.total = later.total.or(self.total);
        self.is_final |= later.is_final;
    }

    fn usage(&self, estimate: Usage) -> Option<Usage> {
        let sum = Usage::of(self.input.unwrap_or(estimate.input), self.output.unwrap_or(estimate.output));
        self.is_final.then(|| Usage { total: self.total.unwrap_or(sum.total), ..sum })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAT: &str = r#"{"choices":[{"message":{"content":"a \"usage\": 1"}}],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":14}}"#;
    const MESSAGE: &str = r#"{"usage":{"input_tokens":5,"cache_creation_input_tokens":2,"cache_read_input_tokens":9,"output_tokens":3}}"#;
    const EMBEDDINGS: &str = r#" {"data":[],"usage":{"prompt_tokens":8,"total_tokens":8}}"#;
    const RESPONSES: &str = "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":5,\"output_tokens\":6,\"total_tokens\":11}}}\n\n";
    const MESSAGES: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":7,\"output_tokens\":1}}}\n\n\
        event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":4}}\n\n";

    fn read(body: &str, cut: usize) -> Option<Usage> {
        let mut reader = UsageReader::default();
        reader.push(&body.as_bytes()[..cut]);
        reader.push(&body.as_bytes()[cut..]);
        reader.usage(Usage::of(0, 0))
    }

    #[test]
    fn usage_is_read_of_every_api_wherever_pieces_end() {
        let chat = Usage { input: 9, output: 3, total: 14 };
        for (body, usage) in [
            (CHAT, chat),
            (MESSAGE, Usage::of(7, 3)),
            (EMBEDDINGS, Usage::of(8, 0)),
            (RESPONSES, Usage::of(5, 6)),
            (MESSAGES, Usage::of(7, 4)),
        ] {
            for cut in 0..=body.len() {
                assert_eq!(read(body, cut), Some(usage), "{body} cut at {cut}");
            }
        }
    }

    #[test]
    fn the_beginning_of_a_message_alone_is_no_usage() {
        let begun = MESSAGES.split("event: message_delta").next().expect("a first event");
        assert_eq!(read(begun, 0), None);
        for body in [
            "",
            "{}",
            "null",
            "data: {}\n\n",
            "data: [DONE]\n\n",
            "{\"usage\":null}",
            "{\"usage\":{\"prompt_tokens\":-1}}",
        ] {
            assert_eq!(read(body, 0), None, "{body}");
        }
    }

    #[test]
    fn the_usage_at_the_end_of_a_large_body_is_found_in_bounded_memory() {
        let mut reader = UsageReader::default();
        reader.push(b"{\"data\":[");
        (0..50_000)
            .for_each(|_| reader.push(b"{\"embedding\":[0.123456,0.123456,0.123456,0.123456,0.123456]},"));
        reader.push(b"0],\"usage\" : {\"prompt_tokens\":8,\"total_tokens\":8}}");
        assert_eq!(reader.usage(Usage::default()), Some(Usage::of(8, 0)));
        let Body::Json(kept) = &reader.body else { panic!("one object") };
        assert!(kept.len() <= 2 * KEPT_MAX + 100, "{} bytes", kept.len());
    }

    #[test]
    fn missing_numbers_are_those_of_the_estimate() {
        let mut reader = UsageReader::default();
        reader.push(b"data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":4}}\n\n");
        assert_eq!(reader.usage(Usage::of(100, 200)), Some(Usage::of(100, 4)));
    }
}
