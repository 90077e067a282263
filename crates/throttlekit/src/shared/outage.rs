//! What stands in for the store while it does not answer.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::rate::{Limit, Need, Verdict};
use throttlekit_core::{Decision, Retry, Timestamp};

use crate::store::{LocalShare, check_shares};
use crate::{Ask, Guarantee};

/// When to come back after a refusal for an outage: breakers probe several times a second.
const CLOSED_RETRY: Duration = Duration::from_secs(1);

/// What to answer while the store does not.
///
/// With a limit of L, during an outage and per period of the limit:
///
/// | choice | passes |
/// |---|---|
/// | `Closed` | nothing |
/// | `Open` | everything |
/// | `Local { nodes }` | at most ⌊L / nodes⌋ on each node that cannot reach the store, so at most L on `nodes` of them beside what the store itself admits |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnOutage {
    /// Refuse. The limit holds, and an outage of the store is an outage for whoever asks.
    #[default]
    Closed,
    /// Let pass, uncounted.
    Open,
    /// Go on by this node's share of the limit, counted in this process: once for all limiters that ask for the same
    /// limit through clones of one store.
    Local {
        /// How many nodes there are at the most; each gets so small a share.
        nodes: NonZeroU32,
    },
}

/// The stand-in of one limiter.
pub(crate) enum StandIn<const N: usize> {
    Closed,
    Open,
    /// Counts on across outages: a store that comes and goes hands out no fresh shares.
    Local {
        need: Need,
        shares: [Arc<LocalShare>; N],
    },
}

impl<const N: usize> StandIn<N> {
    /// `share` tells the share of each limit, among so many nodes.
    pub(crate) fn new(
        choice: OnOutage,
        need: Need,
        share: impl Fn(usize, NonZeroU32) -> Arc<LocalShare>,
    ) -> Self {
        match choice {
            OnOutage::Closed => Self::Closed,
            OnOutage::Open => Self::Open,
            OnOutage::Local { nodes } => {
                Self::Local { need, shares: std::array::from_fn(|place| share(place, nodes)) }
            }
        }
    }

    pub(crate) fn answer(
        &self,
        asks: [Ask<'_>; N],
        limits: &[Limit; N],
        now: Timestamp,
    ) -> (Verdict, Guarantee) {
        match self {
            Self::Local { need, shares } => match check_shares(shares, *need, &asks) {
                Some(verdict) => (verdict, Guarantee::Local),
                None => (uncounted(false, limits, now), Guarantee::Closed),
            },
            Self::Closed => (uncounted(false, limits, now), Guarantee::Closed),
            Self::Open => (uncounted(true, limits, now), Guarantee::Open),
        }
    }
}

/// Nobody counted, so nothing is known to be left.
fn uncounted(allowed: bool, limits: &[Limit], now: Timestamp) -> Verdict {
    let retry_after = if allowed { Retry::Now } else { Retry::After(CLOSED_RETRY) };
    let limit = limits.iter().map(Limit::units).min().unwrap_or(0);
    Verdict { decision: Decision { allowed, limit, remaining: 0, reset_at: now, retry_after }, binding: 0 }
}
