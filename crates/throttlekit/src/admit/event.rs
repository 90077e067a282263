//! One event per decision.

use std::sync::Arc;

use throttlekit_core::Decision;

use crate::{Axis, Guarantee, LimitName};

/// One decision of a policy, as observers receive it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// The caller's key.
    pub key: &'a [u8],
    /// The expected cost.
    pub cost: u64,
    /// The decision.
    pub decision: Decision,
    /// The axis that denied, if one did.
    pub denied_by: Option<Axis>,
    /// Name of the limit that denied, if it has one.
    pub limit_name: Option<LimitName>,
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

impl<O: Observer + ?Sized> Observer for Arc<O> {
    #[inline]
    fn observe(&self, event: &Event<'_>) {
        (**self).observe(event);
    }
}
