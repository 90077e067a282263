//! What request and response carry of the decision.

use std::sync::Arc;

use http::{Extensions, Response};

use super::admit::AdmitError;
use super::body::AdmitBody;
use super::headers::{self, HeaderStyle};
use super::plan::{Terms, tighter};
use crate::Decision;

/// How a request came through, as told to the service behind and to the client.
pub(super) enum Stamp {
    /// Nobody was asked.
    Uncounted,
    /// A limit answered.
    Decided { decision: Decision, terms: Arc<Terms>, style: HeaderStyle },
    /// Nobody answered, and the door was open.
    Open(AdmitError),
}

impl Stamp {
    /// Tells the service behind. Under several layers the tightest decision so far stands there.
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

    /// Tells the client and the layers around.
    pub(super) fn mark_response<R>(&self, response: &mut Response<AdmitBody<R>>) {
        if let Self::Decided { decision, terms, style } = self {
            let inner = response.extensions().get().copied();
            headers::write(response.headers_mut(), *style, terms, decision, inner.as_ref());
        }
        self.mark(response.extensions_mut());
    }
}
