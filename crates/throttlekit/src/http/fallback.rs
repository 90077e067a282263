//! Handling of requests that no limit decides about.

/// Action for a request without a key, or without a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fallback {
    /// Reject it. Without a key: 400 if the client left it out, 500 if the server did. Without a decision (fail closed):
    /// 503; the limit holds, and an outage of its store is an outage of the service.
    #[default]
    Reject,
    /// Allow it uncounted. To count requests without a key under one key, end the chain of
    /// [`KeyExtractor::or`](super::KeyExtractor::or) with [`fixed`](super::fixed) instead. Without a decision (fail
    /// open): the service stays up, and during the outage nothing is limited.
    Allow,
}
