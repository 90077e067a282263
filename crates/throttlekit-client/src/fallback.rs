//! The fallback of a remote policy while the server is unreachable.

use std::time::Duration;

use throttlekit::clock::{Clock, WallClock};
use throttlekit::rate::LimitError;
use throttlekit::{Answer, BuildError, Call, Decision, Guarantee, Limit, Limiter, OnOutage, Retry};

/// Retry delay after a denial in an outage: circuit breakers probe several times a second.
const CLOSED_RETRY: Duration = Duration::from_secs(1);

/// The fallback while the server is unreachable.
pub(crate) enum Fallback {
    Closed,
    Open,
    /// Keeps its state across outages. `None` if the share is less than a unit.
    Local(Option<Box<Limiter>>),
}

impl Fallback {
    pub(crate) fn new(choice: OnOutage, limit: Option<&Limit>) -> Result<Self, BuildError> {
        match choice {
            OnOutage::Open => Ok(Self::Open),
            OnOutage::Local { nodes } => {
                let limit =
                    limit.ok_or(LimitError::Policy("a local share needs a limit: set it with `limit`"))?;
                let share = limit.share(nodes).map(Limiter::new).transpose()?;
                Ok(Self::Local(share.map(Box::new)))
            }
            _ => Ok(Self::Closed),
        }
    }

    /// Decides a request to a policy of which at most `limit` units pass at once.
    pub(crate) fn answer(&self, call: Call<'_>, limit: u64) -> Answer {
        match self {
            Self::Local(Some(share)) => Answer::new(share.check(call), Guarantee::Local, WallClock.now()),
            Self::Local(None) | Self::Closed => closed(limit),
            Self::Open => uncounted(true, limit, Retry::Now, Guarantee::Open),
        }
    }
}

/// Returns a denial because nothing can be counted.
pub(crate) fn closed(limit: u64) -> Answer {
    uncounted(false, limit, Retry::After(CLOSED_RETRY), Guarantee::Closed)
}

fn uncounted(allowed: bool, limit: u64, retry_after: Retry, guarantee: Guarantee) -> Answer {
    let now = WallClock.now();
    Answer::new(Decision { allowed, limit, remaining: 0, reset_at: now, retry_after }, guarantee, now)
}
