//! The provider APIs that the gateway serves, one description each. It names only what metering needs; the rest of
//! requests and responses is passed on unchanged.

mod chat;
mod embeddings;
mod family;
mod messages;
mod request;
mod responses;
mod usage;

pub use chat::{CHAT, Envelope};
pub use embeddings::EMBEDDINGS;
pub use family::{Family, Problem};
pub use messages::MESSAGES;
pub use request::Request;
pub use responses::RESPONSES;
pub use usage::{Usage, UsageFields};

use serde_json::Value;

use crate::sse::Event;

/// All APIs.
pub static APIS: [&Api; 4] = [&CHAT, &RESPONSES, &MESSAGES, &EMBEDDINGS];

/// Description of an API.
#[derive(Debug)]
pub struct Api {
    /// Path of the endpoint, at the gateway and at the upstream.
    pub path: &'static str,
    /// Provider whose conventions apply to keys, errors and headers.
    pub family: Family,
    /// Fields of a request with the prompt. The first is required.
    pub prompt: &'static [&'static str],
    /// If `true`, the required field is an array of objects; otherwise it may also be text, or tokens.
    pub takes_messages: bool,
    /// Output limit.
    pub limit: OutputLimit,
    /// Names of the numbers in `usage`.
    pub usage: UsageFields,
    /// Streaming. `None`: all responses are one JSON object.
    pub stream: Option<Streaming>,
}

/// The field by which a request limits its output.
#[derive(Debug)]
pub struct OutputLimit {
    /// Field names; the first one in a request takes precedence. Empty if the API generates no text.
    pub names: &'static [&'static str],
    /// Field to add to a request that has none and does not stream.
    pub added: Option<&'static str>,
    /// Smallest value that the API accepts.
    pub min: u64,
}

/// The streaming form of an API.
#[derive(Debug)]
pub struct Streaming {
    /// Data of the event that ends a stream, where it is not JSON.
    pub end_marker: Option<&'static str>,
    /// If `true`, the upstream reports usage only on request, by `stream_options`.
    pub usage_on_request: bool,
    /// Returns the values in an event that the model generated.
    pub generated: fn(&Value) -> Vec<&Value>,
    /// Creates the reader of a stream.
    pub reader: fn(&Request) -> Box<dyn Reader>,
}

impl Api {
    /// Checks whether the model generates text, and not only reads the prompt.
    pub fn generates(&self) -> bool {
        !self.limit.names.is_empty()
    }
}

/// Reader of the events of one stream.
pub trait Reader: Send {
    /// Reads an event that will be passed on.
    fn read(&mut self, event: &Value) -> Step;

    /// Returns the usage that the model reported, if it did. Numbers that it did not report are as counted.
    fn reported(&self, counted: Usage) -> Option<Usage>;

    /// Checks whether the response is complete, so that the upstream may close the connection.
    fn is_complete(&self) -> bool {
        false
    }

    /// Returns the events that end the stream as if the model had reached its output limit.
    fn cut(&mut self, counted: Usage) -> Vec<Event>;

    /// Returns the event that ends the stream with an error.
    fn fail(&self, problem: &Problem) -> Event;
}

/// The effect of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// More events.
    Continue,
    /// More events, and the caller did not request this one.
    Hide,
    /// Nothing: the response is complete.
    End,
    /// Nothing: the model reported an error.
    Error,
}
