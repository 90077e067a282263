//! A denial as an error, for `?`.

use std::fmt;

use throttlekit_core::{Decision, Retry};

use super::Axis;
use crate::{Guarantee, LimitName};

/// A denial, as an error for `?`.
///
/// A denial is a decision: nothing failed, and [`decision`](Self::decision) states when to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denied {
    /// The axis that denied. `None` for a plain limiter.
    pub axis: Option<Axis>,
    /// Name of the limit that denied, if it has one.
    pub limit_name: Option<LimitName>,
    /// The decision.
    pub decision: Decision,
    /// Guarantee of the decision.
    pub guarantee: Guarantee,
}

impl Denied {
    /// Creates the denial of a wait for a slot that took too long.
    #[cfg(feature = "wait")]
    pub(crate) fn timed_out(seen: Decision) -> Self {
        Self::on_concurrency(Decision { retry_after: Retry::OnRelease, ..seen })
    }

    /// Creates the denial of a concurrency limit in this process.
    #[inline(always)]
    pub(crate) fn on_concurrency(decision: Decision) -> Self {
        let decision = Decision { allowed: false, ..decision };
        let guarantee = Guarantee::Exact;
        Self { axis: Some(Axis::Concurrency), limit_name: None, decision, guarantee }
    }
}

impl From<Denied> for Decision {
    fn from(denied: Denied) -> Self {
        denied.decision
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.axis {
            Some(axis) => write!(f, "denied by the {axis} limit")?,
            None => f.write_str("denied")?,
        }
        // The only limit of an axis is named after it.
        let axis = self.axis.map(Axis::label);
        if let Some(name) = self.limit_name.filter(|name| Some(name.as_str()) != axis) {
            write!(f, " `{name}`")?;
        }
        let Decision { limit, remaining, retry_after, .. } = self.decision;
        write!(f, ": {remaining} of {limit} left")?;
        match retry_after {
            Retry::Now => Ok(()),
            Retry::After(wait) => write!(f, ", retry after {wait:?}"),
            Retry::OnRelease => f.write_str(", retry when a slot is released"),
            Retry::Never => f.write_str(", the cost exceeds the limit"),
        }
    }
}

impl std::error::Error for Denied {}

#[cfg(test)]
mod tests {
    use throttlekit_core::Timestamp;

    use super::*;

    #[test]
    fn a_denial_names_the_axis_and_when_to_retry() {
        let full = Denied::on_concurrency(Decision {
            allowed: false,
            limit: 2,
            remaining: 0,
            reset_at: Timestamp::EPOCH,
            retry_after: Retry::OnRelease,
        });
        assert_eq!(
            full.to_string(),
            "denied by the concurrency limit: 0 of 2 left, retry when a slot is released"
        );
        let never =
            Denied { axis: None, decision: Decision { retry_after: Retry::Never, ..full.decision }, ..full };
        assert_eq!(never.to_string(), "denied: 0 of 2 left, the cost exceeds the limit");
        let named = Denied { axis: Some(Axis::Cost), limit_name: LimitName::new("team"), ..never };
        assert_eq!(
            named.to_string(),
            "denied by the cost limit `team`: 0 of 2 left, the cost exceeds the limit"
        );
    }
}
