//! Fallback while the store is unavailable.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::rate::{Limit, Need, Verdict};
use throttlekit_core::{Decision, Retry, Timestamp};

use crate::Guarantee;
use crate::call::Part;
use crate::store::{LocalShare, check_shares};

/// Retry delay after a denial in an outage: circuit breakers probe several times a second.
const CLOSED_RETRY: Duration = Duration::from_secs(1);

/// Fallback while the store is unavailable.
///
/// With a limit of L, during an outage and per period of the limit:
///
/// | choice | passes |
/// |---|---|
/// | `Closed` | nothing |
/// | `Open` | everything |
/// | `Local { nodes }` | at most ⌊L / nodes⌋ on each node that cannot reach the store, so at most L on `nodes` of them beside what the store itself admits |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnOutage {
    /// Fail closed: deny. The limit holds, and an outage of the store is an outage for its callers.
    #[default]
    Closed,
    /// Fail open: allow, uncounted.
    Open,
    /// Continue with this node's share of the limit, counted in this process: once for all limiters that use the same
    /// limit through clones of one store.
    Local {
        /// Maximum number of nodes; each gets an equal share of the limit.
        nodes: NonZeroU32,
    },
}

/// The fallback of one limiter.
pub(crate) enum Fallback {
    Closed,
    Open,
    /// Keeps counting across outages: a store with repeated outages grants no new shares.
    Local {
        need: Need,
        shares: Vec<Arc<LocalShare>>,
    },
}

impl Fallback {
    /// Creates the fallback of `limits` limits. `share` returns the share of each, for a number of nodes.
    pub(crate) fn new(
        choice: OnOutage,
        need: Need,
        limits: usize,
        share: impl Fn(usize, NonZeroU32) -> Arc<LocalShare>,
    ) -> Self {
        match choice {
            OnOutage::Closed => Self::Closed,
            OnOutage::Open => Self::Open,
            OnOutage::Local { nodes } => {
                Self::Local { need, shares: (0..limits).map(|place| share(place, nodes)).collect() }
            }
        }
    }

    pub(crate) fn answer(
        &self,
        parts: &[Part<'_>],
        limits: &[Limit],
        now: Timestamp,
    ) -> (Verdict, Guarantee) {
        match self {
            Self::Local { need, shares } => match check_shares(shares, *need, parts) {
                Some(verdict) => (verdict, Guarantee::Local),
                None => (uncounted(false, limits, now), Guarantee::Closed),
            },
            Self::Closed => (uncounted(false, limits, now), Guarantee::Closed),
            Self::Open => (uncounted(true, limits, now), Guarantee::Open),
        }
    }
}

/// Returns a verdict without a count: nothing is known to be left.
fn uncounted(allowed: bool, limits: &[Limit], now: Timestamp) -> Verdict {
    let retry_after = if allowed { Retry::Now } else { Retry::After(CLOSED_RETRY) };
    let limit = limits.iter().map(Limit::units).min().unwrap_or(0);
    Verdict { decision: Decision { allowed, limit, remaining: 0, reset_at: now, retry_after }, binding: 0 }
}
