//! Why a store did not decide.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Nothing was decided, and why.
///
/// A denial is an answer and never comes this way. The first two are outages, for which the limiter's policy
/// stands in. The third is not: a policy that lets pass in an outage would let everybody pass who sends enough. The others
/// are for people to look at, and no policy hides them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// The engine cannot be reached, or refuses.
    Unavailable(Arc<str>),
    /// No answer in time. The charge may or may not have been made.
    Deadline(Duration),
    /// The engine answers, and this process sends it more than it answers in time. The charge may or may not have been
    /// made.
    Overloaded,
    /// The engine answers, and cannot be used as it is set up.
    Misconfigured(Arc<str>),
    /// Under one of our keys lies something that we did not write.
    BadState(Arc<str>),
    /// A later debit of the stream has been answered; the one with this number was not charged now. A straggler that
    /// nobody waits for, or a stream that does not number its debits upwards, one at a time.
    Stale(u64),
}

impl StoreError {
    /// The engine cannot be used now, because of this.
    pub fn unavailable(cause: impl fmt::Display) -> Self {
        Self::Unavailable(cause.to_string().into())
    }

    /// The engine must be set up differently, because of this.
    pub fn misconfigured(cause: impl fmt::Display) -> Self {
        Self::Misconfigured(cause.to_string().into())
    }

    /// A key holds something foreign.
    pub fn bad_state(cause: impl fmt::Display) -> Self {
        Self::BadState(cause.to_string().into())
    }

    /// Whether the engine is away: [`OnOutage`](crate::OnOutage) answers for it.
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Deadline(_))
    }

    /// Whether the same call may succeed later: in an outage, and in an overload.
    pub fn may_pass(&self) -> bool {
        self.is_outage() || *self == Self::Overloaded
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(cause) => write!(f, "the store is unavailable: {cause}"),
            Self::Deadline(limit) => write!(f, "the store did not answer within {limit:?}"),
            Self::Overloaded => f.write_str(
                "more calls wait for the store than it answers in time: send fewer at a time, or lease units",
            ),
            Self::Misconfigured(cause) => write!(f, "the store cannot be used as it is set up: {cause}"),
            Self::BadState(cause) => {
                write!(
                    f,
                    "a key of ours holds something else ({cause}); find who writes there, then reset the key"
                )
            }
            Self::Stale(number) => write!(
                f,
                "debit {number} came after a later one of its stream and was not charged; number debits upwards, one at a time"
            ),
        }
    }
}

impl Error for StoreError {}
