//! Assumptions, removed one at a time where a driver meets the fold and the node.

/// What a driver gets wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seam {
    /// Nothing.
    Sound,
    /// It reads what is in flight before the grant is applied that it acknowledges.
    TornReport,
    /// It enforces whichever grant came last.
    ObeysAny,
    /// It counts the life of a grant from when it arrives.
    ReplyAnchored,
    /// It goes on when its grant has died.
    Unfenced,
    /// It does not tell the fold that work runs on when a grant has died.
    LingerUntold,
    /// It lets shares rise at once on a roll that begins.
    NoQuiet,
    /// It counts reports where they arrive and not where they are made.
    CountedOnArrival,
    /// It tells a fleet that it left, and its work goes on.
    LeavesWithWork,
}
