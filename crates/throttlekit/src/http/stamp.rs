//! Decision that request and response carry.

use std::sync::Arc;

use http::{Extensions, Response};

use super::admit::AdmitError;
use super::body::AdmitBody;
use super::headers::{self, HeaderStyle};
use super::plan::{Terms, tighter};
use crate::Decision;

/// Result of the check, as reported to the service and to the client.
pub(super) enum Stamp {
    /// No limit was checked.
    Uncounted,
    /// A limit decided.
    Decided { decision: Decision, terms: Arc<Terms>, style: HeaderStyle },
    /// No decision was possible, and the layer failed open.
    Open(AdmitError),
}

impl Stamp {
    /// Adds the result to the extensions for the service. Under several layers the tightest decision so far is there.
    pub(super) fn mark(&self, extensions: &mut Extensions) {
        match self {
            Self::Uncounted => {}
            Self::Decided { decision, .. } => {
                let other = extensions.get().copied().unwrap_or(*decision);
                extensions.insert(tighter(other, *decision));
            }
            Self::Open(error) => _ = extensions.insert(error.clone()),
        }
    }

    /// Adds the result to the response, for the client and the outer layers.
    pub(super) fn mark_response<R>(&self, response: &mut Response<AdmitBody<R>>) {
        if let Self::Decided { decision, terms, style } = self {
            let inner = response.extensions().get().copied();
            headers::write(response.headers_mut(), *style, terms, decision, inner.as_ref());
        }
        self.mark(response.extensions_mut());
    }
}
