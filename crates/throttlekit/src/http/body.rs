//! Response body: that of the service, or of a refusal.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of the service behind the layer, or the short text of a refusal.
    ///
    /// It has the service's own data and error types, so it fits wherever that body did.
    #[derive(Debug)]
    pub struct AdmitBody<B> {
        #[pin]
        of: Of<B>,
    }
}

pin_project! {
    #[project = OfProjected]
    #[derive(Debug)]
    enum Of<B> {
        Service { #[pin] body: B },
        // Empty once sent.
        Refusal { text: String },
    }
}

impl<B> AdmitBody<B> {
    pub(super) fn service(body: B) -> Self {
        Self { of: Of::Service { body } }
    }

    pub(super) fn refusal(text: String) -> Self {
        Self { of: Of::Refusal { text } }
    }
}

/// An empty body.
impl<B> Default for AdmitBody<B> {
    fn default() -> Self {
        Self::refusal(String::new())
    }
}

impl<B: Body<Data: From<String>>> Body for AdmitBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project().of.project() {
            OfProjected::Service { body } => body.poll_frame(cx),
            OfProjected::Refusal { text } if text.is_empty() => Poll::Ready(None),
            OfProjected::Refusal { text } => Poll::Ready(Some(Ok(Frame::data(mem::take(text).into())))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.of {
            Of::Service { body } => body.is_end_stream(),
            Of::Refusal { text } => text.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.of {
            Of::Service { body } => body.size_hint(),
            Of::Refusal { text } => SizeHint::with_exact(text.len() as u64),
        }
    }
}
