//! Assumptions, removed one at a time where a driver meets the fold and the node.

/// What a driver gets wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seam {
    /// Nothing.
    Sound,
    /// It goes on when its grant has died.
    Unfenced,
    /// It does not tell the fold that work runs on when a grant has died.
    LingerUntold,
    /// It lets shares rise at once on a roll that begins.
    NoQuiet,
    /// It tells a fleet that it left, and its work goes on.
    LeavesWithWork,
}
