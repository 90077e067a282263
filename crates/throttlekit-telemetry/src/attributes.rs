//! What traces say of a decision, under the same names everywhere.

use throttlekit::admission::{Axis, Event};
use throttlekit::{Decision, Guarantee};

/// What traces say of one decision.
///
/// Made of an [`Event`], or of a decision's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// [`ALLOWED`](Self::ALLOWED).
    pub allowed: bool,
    /// [`LIMIT`](Self::LIMIT).
    pub limit: u64,
    /// [`REMAINING`](Self::REMAINING).
    pub remaining: u64,
    /// [`RETRY_AFTER_MS`](Self::RETRY_AFTER_MS): how long to wait, rounded up. Nothing where no clock tells: when a slot is
    /// given back, or never.
    pub retry_after_ms: Option<u64>,
    /// [`BINDING_AXIS`](Self::BINDING_AXIS): which axis denied. Nothing if none did.
    pub binding_axis: Option<Axis>,
    /// [`GUARANTEE`](Self::GUARANTEE).
    pub guarantee: Guarantee,
}

impl Attributes {
    /// Whether it was allowed.
    pub const ALLOWED: &str = "throttlekit.allowed";
    /// The most units that pass at once.
    pub const LIMIT: &str = "throttlekit.limit";
    /// Units left.
    pub const REMAINING: &str = "throttlekit.remaining";
    /// Milliseconds to wait, rounded up; absent where no clock tells.
    pub const RETRY_AFTER_MS: &str = "throttlekit.retry_after_ms";
    /// The axis that denied; absent if none did.
    pub const BINDING_AXIS: &str = "throttlekit.binding_axis";
    /// What the answer is worth.
    pub const GUARANTEE: &str = "throttlekit.guarantee";

    /// Of a decision, the axis that denied and what the answer is worth. The axis is left out of what was allowed.
    pub fn of(decision: &Decision, binding_axis: Option<Axis>, guarantee: Guarantee) -> Self {
        Self {
            allowed: decision.allowed,
            limit: decision.limit,
            remaining: decision.remaining,
            retry_after_ms: decision.retry_after.wait_ms(),
            binding_axis: binding_axis.filter(|_| !decision.allowed),
            guarantee,
        }
    }
}

impl From<&Event<'_>> for Attributes {
    fn from(event: &Event<'_>) -> Self {
        Self::of(&event.decision, event.binding_axis, event.guarantee)
    }
}
