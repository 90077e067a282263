//! Trace attributes of a decision, with the same names everywhere.

use throttlekit::admit::LimitName;
use throttlekit::observe::Event;
use throttlekit::{Axis, Decision, Guarantee};

/// Trace attributes of one decision.
///
/// Created from an [`Event`], or from a decision's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// [`ALLOWED`](Self::ALLOWED).
    pub allowed: bool,
    /// [`LIMIT`](Self::LIMIT).
    pub limit: u64,
    /// [`REMAINING`](Self::REMAINING).
    pub remaining: u64,
    /// [`RETRY_AFTER_MS`](Self::RETRY_AFTER_MS): the wait, rounded up. `None` if the wait is not a known duration:
    /// until a slot is released, or never.
    pub retry_after_ms: Option<u64>,
    /// [`BINDING_AXIS`](Self::BINDING_AXIS): the axis that denied. `None` if none did, or the price.
    pub binding_axis: Option<Axis>,
    /// [`LIMIT_NAME`](Self::LIMIT_NAME).
    pub limit_name: Option<LimitName>,
    /// [`GUARANTEE`](Self::GUARANTEE).
    pub guarantee: Guarantee,
}

impl Attributes {
    /// The policy's name.
    pub const POLICY: &str = "throttlekit.policy";
    /// `true` if allowed.
    pub const ALLOWED: &str = "throttlekit.allowed";
    /// Maximum number of units admitted at once.
    pub const LIMIT: &str = "throttlekit.limit";
    /// Units left.
    pub const REMAINING: &str = "throttlekit.remaining";
    /// Milliseconds to wait, rounded up; absent if the wait is not a known duration.
    pub const RETRY_AFTER_MS: &str = "throttlekit.retry_after_ms";
    /// The axis that denied; absent if none did, or the price.
    pub const BINDING_AXIS: &str = "throttlekit.binding_axis";
    /// Name of the limit that denied; absent if none did, or if it has no name.
    pub const LIMIT_NAME: &str = "throttlekit.limit_name";
    /// The guarantee of the decision.
    pub const GUARANTEE: &str = "throttlekit.guarantee";

    /// Creates the attributes from a decision, the axis that denied, and the guarantee. The axis is ignored if allowed.
    /// No limit is named.
    pub fn of(decision: &Decision, denied_by: Option<Axis>, guarantee: Guarantee) -> Self {
        Self {
            allowed: decision.allowed,
            limit: decision.limit,
            remaining: decision.remaining,
            retry_after_ms: decision.retry_after.wait_ms(),
            binding_axis: denied_by.filter(|axis| !decision.allowed && *axis != Axis::Price),
            limit_name: None,
            guarantee,
        }
    }
}

impl From<&Event<'_>> for Attributes {
    fn from(event: &Event<'_>) -> Self {
        let limit_name = event.limit_name.filter(|_| !event.decision.allowed);
        Self { limit_name, ..Self::of(&event.decision, event.denied_by, event.guarantee) }
    }
}
