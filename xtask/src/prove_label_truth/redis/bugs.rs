//! Seeded bugs. They are seeded where a script reads what it goes by: in the lineage record, at the instant of the loss.

use super::faults::Fault;
use super::{ASYNC, FENCE, Mode};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    /// A flush leaves the record as it was: the uptime of a server that was never promoted was believed so.
    LossBelieved,
    /// Keys are gone that no counter has counted.
    Uncounted,
    /// A replica that takes over has the record of its own, as old as the former one.
    PromotionBelieved,
    /// The label comes back after half of the window.
    BackTooEarly,
    NeverBack,
    /// The server is never vouched for.
    AlwaysBounded,
    /// The label is read before the call instead of after it.
    LabelBeforeCall,
    /// Units that were lent are always labelled exact.
    LeasesExact,
}

/// Each bug, by a mode and a fault that must show it.
pub(super) const BUGS: [(Mode, Fault, Bug); 11] = [
    (ASYNC, Fault::FlushAll, Bug::LossBelieved),
    (ASYNC, Fault::FlushDb, Bug::LossBelieved),
    (ASYNC, Fault::EvictVolatile, Bug::Uncounted),
    (ASYNC, Fault::Promote, Bug::PromotionBelieved),
    (ASYNC, Fault::FlushAll, Bug::BackTooEarly),
    (ASYNC, Fault::FlushAll, Bug::NeverBack),
    (ASYNC, Fault::FlushAll, Bug::AlwaysBounded),
    (ASYNC, Fault::FlushAll, Bug::LabelBeforeCall),
    (ASYNC, Fault::FlushAll, Bug::LeasesExact),
    (FENCE, Fault::FlushAll, Bug::LossBelieved),
    (FENCE, Fault::EvictVolatile, Bug::Uncounted),
];

impl Bug {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::LossBelieved => "a flushed server is believed for its uptime",
            Self::Uncounted => "evictions are not counted",
            Self::PromotionBelieved => "a promoted server is believed for its record",
            Self::BackTooEarly => "the label comes back after half of the window",
            Self::NeverBack => "the label never comes back",
            Self::AlwaysBounded => "a healthy server is never vouched for",
            Self::LabelBeforeCall => "the label is read before the call",
            Self::LeasesExact => "leased units are always labelled exact",
        }
    }
}
