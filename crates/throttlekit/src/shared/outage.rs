//! What stands in for the store while it does not answer.

use std::num::NonZeroU32;
use std::sync::OnceLock;
use std::time::Duration;

use throttlekit_core::rate::{Limit, Need, Verdict};
use throttlekit_core::{Decision, Retry, Timestamp};

use crate::{Ask, Guarantee, Limits};

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
    /// Go on by this node's share of the limit, counted in this process.
    Local {
        /// How many nodes there are at the most; each gets so small a share.
        nodes: NonZeroU32,
    },
}

/// The stand-in of one limiter.
pub(crate) enum StandIn<const N: usize> {
    Closed,
    Open,
    /// Counts on across outages: a store that comes and goes hands out no fresh shares. Takes memory at the first outage
    /// only. Nothing, where the share is less than a unit.
    Local {
        nodes: NonZeroU32,
        need: Need,
        share: OnceLock<Option<Box<Limits<N>>>>,
    },
}

impl<const N: usize> StandIn<N> {
    pub(crate) fn new(choice: OnOutage, need: Need) -> Self {
        match choice {
            OnOutage::Closed => Self::Closed,
            OnOutage::Open => Self::Open,
            OnOutage::Local { nodes } => Self::Local { nodes, need, share: OnceLock::new() },
        }
    }

    pub(crate) fn answer(
        &self,
        asks: [Ask<'_>; N],
        limits: &[Limit; N],
        now: Timestamp,
    ) -> (Verdict, Guarantee) {
        match self {
            Self::Local { nodes, need, share } => {
                match share.get_or_init(|| local(*need, limits, *nodes).map(Box::new)) {
                    Some(share) => (share.check(asks), Guarantee::Local),
                    None => (uncounted(false, limits, now), Guarantee::Closed),
                }
            }
            Self::Closed => (uncounted(false, limits, now), Guarantee::Closed),
            Self::Open => (uncounted(true, limits, now), Guarantee::Open),
        }
    }
}

fn local<const N: usize>(need: Need, limits: &[Limit; N], nodes: NonZeroU32) -> Option<Limits<N>> {
    let shares: Vec<Limit> = limits.iter().map(|limit| limit.share(nodes)).collect::<Option<_>>()?;
    let shares: [Limit; N] = shares.try_into().ok()?;
    match need {
        Need::All => Limits::all(shares).ok(),
        Need::Any => Limits::any(shares).ok(),
    }
}

/// Nobody counted, so nothing is known to be left.
fn uncounted(allowed: bool, limits: &[Limit], now: Timestamp) -> Verdict {
    let retry_after = if allowed { Retry::Now } else { Retry::After(CLOSED_RETRY) };
    let limit = limits.iter().map(Limit::units).min().unwrap_or(0);
    Verdict { decision: Decision { allowed, limit, remaining: 0, reset_at: now, retry_after }, binding: 0 }
}
