//! Assumptions, removed one at a time where a driver meets the rebalancer and the node.

use super::state::{Host, Known};

/// What a driver gets wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seam {
    /// Nothing.
    Sound,
    /// It goes on when its grant has died.
    Unfenced,
    /// It does not tell the rebalancer that work runs on when a grant has died.
    LingerUntold,
    /// It lets shares rise at once on a membership record that begins.
    NoQuiet,
    /// It tells a fleet that it left, and its work goes on.
    LeavesWithWork,
    /// It keeps for a node what it was granted last, and not what it may still enforce.
    KeepsLast,
    /// It keeps nothing for what a node has in flight.
    KeepsNoWork,
    /// It says which grant is in force, and what was in flight before.
    Torn,
    /// It takes any grant that comes, also an older one.
    GoesBack,
    /// It takes the answer to a report though the grant that it told of has died since.
    BelievesTheDead,
    /// It takes any answer for the one to the report in flight. The rebalancer allows for that while grants live.
    LateAnswers,
    /// The same, and the rebalancer keeps no more than was granted last and is held.
    LateAnswersKeepsLast,
}

impl Seam {
    /// Whether grants are taken that nobody waits for any more.
    pub(super) fn takes_unawaited(self) -> bool {
        matches!(self, Self::GoesBack | Self::LateAnswers | Self::LateAnswersKeepsLast)
    }

    /// What it does to what is remembered of a node that is about to be heard.
    pub(super) fn before_heartbeat(self, known: Option<&mut Known>) {
        if let (Self::LateAnswersKeepsLast, Some(known)) = (self, known) {
            known.high = known.share;
        }
    }

    /// What it does to what is remembered of a node that was heard.
    pub(super) fn after_heartbeat(self, known: Option<&mut Known>) {
        match (self, known) {
            (Self::KeepsLast, Some(known)) => known.high = known.share,
            (Self::KeepsNoWork, Some(known)) => known.in_flight = 0,
            _ => {}
        }
    }

    /// The node as it is when it is answered.
    pub(super) fn answered(self, host: &Host) -> Host {
        match self {
            Self::BelievesTheDead => Host { grant: host.grant.filter(|held| held.left > 0), ..*host },
            _ => *host,
        }
    }
}
