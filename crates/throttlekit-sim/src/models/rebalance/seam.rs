//! Assumptions removed one at a time at the boundary between a driver and the rebalancer and node.

use super::state::{Host, Known};

/// A bug of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seam {
    /// No bug.
    Sound,
    /// The node continues after its grant has expired.
    Unfenced,
    /// The rebalancer is not configured for work that runs on after a grant has expired.
    LingerUntold,
    /// Shares rise at once on a new membership record.
    NoQuiet,
    /// The node announces that it left while its work goes on.
    LeavesWithWork,
    /// The rebalancer reserves the latest grant instead of all grants that may still be enforced.
    KeepsLast,
    /// The rebalancer reserves nothing for requests in flight.
    KeepsNoWork,
    /// The report names the grant in force and an earlier number in flight.
    Torn,
    /// The node accepts any grant, also an older one.
    GoesBack,
    /// The node accepts the response to a report although the grant that the report named has expired since.
    BelievesTheDead,
    /// The node accepts any response as the one to the report in flight. The rebalancer allows for that while
    /// grants live.
    LateAnswers,
    /// The same, and the rebalancer reserves only the latest grant and the number held.
    LateAnswersKeepsLast,
}

impl Seam {
    /// Returns `true` if grants are accepted that the node no longer waits for.
    pub(super) fn takes_unawaited(self) -> bool {
        matches!(self, Self::GoesBack | Self::LateAnswers | Self::LateAnswersKeepsLast)
    }

    /// Changes the record of a node before its heartbeat is processed.
    pub(super) fn before_heartbeat(self, known: Option<&mut Known>) {
        if let (Self::LateAnswersKeepsLast, Some(known)) = (self, known) {
            known.high = known.share;
        }
    }

    /// Changes the record of a node after its heartbeat was processed.
    pub(super) fn after_heartbeat(self, known: Option<&mut Known>) {
        match (self, known) {
            (Self::KeepsLast, Some(known)) => known.high = known.share,
            (Self::KeepsNoWork, Some(known)) => known.in_flight = 0,
            _ => {}
        }
    }

    /// Returns the state of the node as it receives the response.
    pub(super) fn answered(self, host: &Host) -> Host {
        match self {
            Self::BelievesTheDead => Host { grant: host.grant.filter(|held| held.left > 0), ..*host },
            _ => *host,
        }
    }
}
