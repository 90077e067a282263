//! A simulated provider of language models, over real sockets: limits on requests and tokens by the minute, headers in
//! the style of OpenAI or Anthropic, refusals, errors, a wrong clock, and limits that change during a run.
//!
//! Also used by `benches/outbound`.

mod headers;
mod limits;
mod server;

use std::time::Duration;

pub use headers::Style;
pub use limits::Rule;
pub use server::Provider;

/// The name of the header that has the number of the client.
pub const CLIENT: &str = "x-client";
/// The name of the header that has the tokens of a call: a simulated model generates that many.
pub const TOKENS: &str = "x-tokens";

/// The account of all clients of a provider.
#[derive(Clone, Debug)]
pub struct Account {
    /// Headers and bodies.
    pub style: Style,
    /// Rule of both limits.
    pub rule: Rule,
    /// Requests by the minute.
    pub requests: u64,
    /// Tokens by the minute.
    pub tokens: u64,
    /// Part of both limits that is left at the start, in thousandths. The rest was used evenly over the minute before.
    pub left_at_start: u64,
    /// Parts of both limits that apply from these times on, in thousandths.
    pub changes: Vec<(Duration, u64)>,
    /// Time that a call takes.
    pub latency: Duration,
    /// One admitted call of this many fails with 500. 0: none.
    pub error_every: u64,
    /// Seconds by which the provider's clock is ahead.
    pub clock_ahead: u64,
}

impl Account {
    /// Returns the part of the limits that applies at this time, in thousandths.
    pub fn part_at(&self, since_start: Duration) -> u64 {
        let past = self.changes.iter().rev().find(|(from, _)| *from <= since_start);
        past.map_or(1_000, |(_, part)| *part)
    }
}

/// One call, as the provider counted it.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// Time since the start.
    pub at: Duration,
    /// Number of the client.
    pub client: u32,
    /// `false` if it was refused with 429.
    pub admitted: bool,
    /// Tokens of the call.
    pub tokens: u64,
}
