//! Seeded bugs. They are seeded in the input of a script: in the lineage record, at the instant of the loss.

use throttlekit_conformance::bugs;

use super::faults::Fault;
use super::{ASYNC, BUSY, FENCE, Mode};

bugs! {
    pub(super) enum Bug {
        LossBelieved: "A flushed server is believed for its uptime: the record is left as it was.",
        Uncounted: "Evictions are not counted.",
        MarkIgnored: "A state that was written before a check for evictions is trusted.",
        PromotionBelieved: "A promoted server is believed for its record, which is as old as the former one.",
        BackTooEarly: "The label comes back after half of the window.",
        NeverBack: "The label never comes back.",
        AlwaysBounded: "A healthy server is never vouched for.",
        LabelBeforeCall: "The label is read before the call instead of after it.",
        LeasesExact: "Leased units are always labelled exact.",
    }
}

/// Each bug, with a mode and a fault that must expose it.
pub(super) const BUGS: [(Mode, Fault, Bug); 14] = [
    (ASYNC, Fault::FlushAll, Bug::LossBelieved),
    (ASYNC, Fault::FlushDb, Bug::LossBelieved),
    (ASYNC, Fault::EvictVolatile, Bug::Uncounted),
    (ASYNC, Fault::EvictUnchecked, Bug::MarkIgnored),
    (ASYNC, Fault::Promote, Bug::PromotionBelieved),
    (ASYNC, Fault::FlushAll, Bug::BackTooEarly),
    (ASYNC, Fault::FlushAll, Bug::NeverBack),
    (ASYNC, Fault::FlushAll, Bug::AlwaysBounded),
    (ASYNC, Fault::FlushAll, Bug::LabelBeforeCall),
    (ASYNC, Fault::FlushAll, Bug::LeasesExact),
    (FENCE, Fault::FlushAll, Bug::LossBelieved),
    (FENCE, Fault::EvictVolatile, Bug::Uncounted),
    (BUSY, Fault::EvictVolatile, Bug::Uncounted),
    // Before the call is before its check: the caller ignores the result.
    (BUSY, Fault::EvictVolatile, Bug::LabelBeforeCall),
];
