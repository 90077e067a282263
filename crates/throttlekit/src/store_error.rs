//! Errors of stores.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Reason why nothing was decided.
///
/// A denial is a decision and never an error. The first two are outages, in which the limiter's fallback decides. The
/// third is not: a policy that fails open would admit every client that sends enough. The others are for operators to
/// look at, and no policy hides them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// The engine cannot be reached, or refuses.
    Unavailable(Arc<str>),
    /// No response in time. The charge may or may not have been made.
    Deadline(Duration),
    /// The engine responds, and this process sends it more than it can process in time. The charge may or may not have
    /// been made.
    Overloaded,
    /// The engine responds, but is misconfigured.
    Misconfigured(Arc<str>),
    /// A key of ours holds data that we did not write.
    BadState(Arc<str>),
    /// A server rejected the request: the policy is unknown or does not support it, the caller is not authorized, or the
    /// request is invalid. The same request is rejected again.
    Rejected(Arc<str>),
    /// A later debit of the stream has been decided; the one with this number was not charged now. A straggler that
    /// nobody waits for, or a stream that does not number its debits upwards, one at a time.
    Stale(u64),
}

impl StoreError {
    /// Creates an error for an engine that cannot be used now, because of `cause`.
    pub fn unavailable(cause: impl fmt::Display) -> Self {
        Self::Unavailable(cause.to_string().into())
    }

    /// Creates an error for an engine that must be configured differently, because of `cause`.
    pub fn misconfigured(cause: impl fmt::Display) -> Self {
        Self::Misconfigured(cause.to_string().into())
    }

    /// Creates an error for a key that holds foreign data.
    pub fn bad_state(cause: impl fmt::Display) -> Self {
        Self::BadState(cause.to_string().into())
    }

    /// Creates an error for a request that is rejected, because of `cause`.
    pub fn rejected(cause: impl fmt::Display) -> Self {
        Self::Rejected(cause.to_string().into())
    }

    /// Returns whether the engine is unavailable: `OnOutage` decides instead.
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Deadline(_))
    }

    /// Returns whether the same call may succeed later: in an outage, and in an overload.
    pub fn may_pass(&self) -> bool {
        self.is_outage() || *self == Self::Overloaded
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(cause) => write!(f, "the store is unavailable: {cause}"),
            Self::Deadline(limit) => write!(f, "the store did not respond within {limit:?}"),
            Self::Overloaded => f.write_str(
                "the store is overloaded: it cannot respond in time to all calls in flight; reduce \
                 concurrency or lease units",
            ),
            Self::Misconfigured(cause) => write!(f, "the store is misconfigured: {cause}"),
            Self::BadState(cause) => write!(
                f,
                "a key holds foreign data ({cause}): find the program that writes it, then delete the key \
                 in the store"
            ),
            Self::Rejected(cause) => write!(f, "the request was rejected: {cause}"),
            Self::Stale(number) => write!(
                f,
                "debit {number} arrived after a later debit of its stream and was not charged: number \
                 debits in ascending order and send one at a time"
            ),
        }
    }
}

impl Error for StoreError {}
