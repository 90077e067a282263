//! Providers and contenders.

use std::time::Duration;

use crate::provider::{Account, Rule, Style};

/// Calls by the second that the provider can serve: the limit that binds allows exactly these.
pub const CALLS_PER_SECOND: u64 = 200;
/// Mean tokens of a call.
pub const TOKENS_MEAN: u64 = 500;
/// Calls arrive in the first part of each period.
pub const PERIOD: Duration = Duration::from_secs(5);
/// Periods before the measured ones.
pub const WARM_UP: u32 = 2;
/// Measured periods.
pub const MEASURED: u32 = 4;
/// Time after the last period for what still waits.
pub const DRAIN: Duration = Duration::from_secs(6);

const LIMIT: u64 = CALLS_PER_SECOND * 60;

pub struct Scenario {
    pub name: &'static str,
    pub account: Account,
    /// `true` if tokens bind, otherwise requests.
    pub tokens_bind: bool,
}

impl Scenario {
    pub fn all() -> Vec<Self> {
        let account = Account {
            style: Style::OpenAi,
            rule: Rule::TokenBucket,
            requests: LIMIT,
            tokens: LIMIT * TOKENS_MEAN * 8 / 5,
            left_at_start: 50,
            changes: vec![(PERIOD * (WARM_UP + MEASURED / 2), 750)],
            latency: Duration::from_millis(30),
            error_every: 200,
            clock_ahead: 0,
        };
        let sliding = Account {
            style: Style::Anthropic,
            rule: Rule::SlidingWindow,
            requests: LIMIT * 8 / 5,
            tokens: LIMIT * TOKENS_MEAN,
            changes: Vec::new(),
            clock_ahead: 7 * 60,
            ..account.clone()
        };
        vec![
            Self { name: "OpenAI, token bucket, requests bind, limit falls", account, tokens_bind: false },
            Self {
                name: "Anthropic, sliding window, tokens bind, clock wrong",
                account: sliding,
                tokens_bind: true,
            },
        ]
    }

    /// Returns the units of the limit that binds which a call takes.
    pub fn units(&self, tokens: u64) -> u64 {
        if self.tokens_bind { tokens } else { 1 }
    }

    /// Returns the limit that binds, in units by the minute.
    pub fn limit(&self) -> u64 {
        if self.tokens_bind { self.account.tokens } else { self.account.requests }
    }
}

/// A way to limit calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// No limiter; a refused call is retried after an exponential backoff with jitter.
    Backoff,
    /// `governor` with all of the limit in each process.
    Governor,
    /// `governor` with an equal part of the limit in each process.
    Divided,
    /// `OutboundLayer` over Redis.
    Throttlekit,
}

pub const OURS: Contender = Contender::Throttlekit;

impl Contender {
    pub const ALL: [Self; 4] = [Self::Backoff, Self::Governor, Self::Divided, Self::Throttlekit];

    pub fn name(self) -> &'static str {
        match self {
            Self::Backoff => "backoff only",
            Self::Governor => "governor per process",
            Self::Divided => "static division",
            Self::Throttlekit => "throttlekit",
        }
    }
}
