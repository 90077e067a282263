//! What is told of each decision, once.

use throttlekit_core::{Cost, Decision};

use super::Axis;
use crate::Guarantee;

/// One decision of a policy, as those who watch see it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// Who asked.
    pub key: &'a [u8],
    /// What it was expected to cost.
    pub cost: Cost,
    /// The answer.
    pub decision: Decision,
    /// The axis that denied, if one did.
    pub binding_axis: Option<Axis>,
    /// Whether the price denied, and no axis.
    pub policy_denied: bool,
    /// What the answer is worth.
    pub guarantee: Guarantee,
}

/// Sees decisions after they are made. It cannot change one.
///
/// Called on the thread that asked, so it must be quick and must not block; a `Telemetry`
/// hands events to whatever is slow on a thread of its own. A panic in it is caught, and the answer stands.
pub trait Observer: Send + Sync + 'static {
    /// A decision was made.
    fn observe(&self, event: &Event<'_>);
}
