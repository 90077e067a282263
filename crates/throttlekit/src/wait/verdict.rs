//! The result of one request, as a waiter sees it.

use super::NotReady;
use crate::admit::{Admission, Axis, Denied, StoreError};
use crate::{Guarantee, Retry};

/// The decision about one request of a waiter.
#[allow(clippy::large_enum_variant, reason = "matched at once, and never stored")]
pub(super) enum Verdict {
    Admitted(Admission),
    /// Denied for now.
    Denied(Denied),
}

impl Verdict {
    /// Interprets a result. An error ends the wait: nothing was decided, or waiting does not help.
    pub(super) fn of(result: Result<Admission, StoreError>) -> Result<Self, NotReady> {
        let mut admission = result.map_err(NotReady::Store)?;
        if admission.allowed {
            return Ok(Self::Admitted(admission));
        }
        let outage = admission.outage.take();
        if let (Some(outage), Guarantee::Closed) = (outage, admission.guarantee) {
            return Err(NotReady::Store(outage));
        }
        let (axis, limit_name) = (admission.denied_by(), admission.limit_name());
        let (decision, guarantee) = (admission.decision(), admission.guarantee);
        let denied = Denied { axis, limit_name, decision, guarantee };
        let priced_out = denied.axis == Some(Axis::Price);
        if priced_out || denied.decision.retry_after == Retry::Never {
            return Err(NotReady::Never(denied));
        }
        Ok(Self::Denied(denied))
    }
}
