//! Decision that request and response carry.

use http::{Extensions, Response};

use super::body::AdmissionBody;
use super::header_style::{self, HeaderStyle, tighter};
use super::plan::Plan;
use crate::Decision;
use crate::admit::{Axes, Axis, StoreError};

/// Result of the check, as reported to the service and to the client.
pub(super) enum Stamp {
    /// No limit was checked.
    Uncounted,
    /// Limits decided.
    Decided { axes: Axes, plan: Plan, style: HeaderStyle },
    /// No decision was possible, and the layer or the limiter failed open.
    Open(StoreError),
}

impl Stamp {
    /// Adds the result to the extensions for the service. Under several layers the tightest decision so far is there.
    pub(super) fn mark(&self, extensions: &mut Extensions) {
        match self {
            Self::Uncounted => {}
            Self::Decided { axes, .. } => {
                if let Some(decision) = tightest(axes) {
                    let other = extensions.get().copied().unwrap_or(decision);
                    extensions.insert(tighter(other, decision));
                }
            }
            Self::Open(error) => _ = extensions.insert(error.clone()),
        }
    }

    /// Adds the result to the response, for the client and the outer layers.
    pub(super) fn mark_response<R>(&self, response: &mut Response<AdmissionBody<R>>) {
        if let Self::Decided { axes, plan, style } = self
            && *style != HeaderStyle::None
        {
            let inner = response.extensions().get().copied();
            header_style::write(response.headers_mut(), *style, &plan.report(axes), inner.as_ref());
        }
        self.mark(response.extensions_mut());
    }
}

/// Returns the tightest decision of the axes that are reported.
fn tightest(axes: &Axes) -> Option<Decision> {
    let reported = axes.iter().filter(|(axis, _)| *axis != Axis::Concurrency);
    reported.map(|(_, decision)| *decision).reduce(tighter)
}
