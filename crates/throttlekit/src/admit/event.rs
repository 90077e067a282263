//! One event per decision.

use throttlekit_core::{Cost, Decision};

use super::Axis;
use crate::Guarantee;

/// One decision of a policy, as observers receive it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// The caller's key.
    pub key: &'a [u8],
    /// The expected cost.
    pub cost: Cost,
    /// The decision.
    pub decision: Decision,
    /// The axis that denied, if one did.
    pub binding_axis: Option<Axis>,
    /// `true` if the price denied, and no axis.
    pub policy_denied: bool,
    /// Guarantee of the decision.
    pub guarantee: Guarantee,
}

/// Receives decisions after they are made. It cannot change one.
///
/// Called on the caller's thread, so it must be quick and must not block; a `Telemetry` passes events to slow consumers
/// on a thread of its own. A panic in it is caught, and the decision stands.
pub trait Observer: Send + Sync + 'static {
    /// Receives one decision.
    fn observe(&self, event: &Event<'_>);
}
