//! Response body: that of the service, with its permit, or of a refusal.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::StatusCode;
use http::response::Parts;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::grpc;
use super::outcome::GRPC_STATUS;
use super::settings::Settings;
use crate::admit::{Ending, SharedPermit};

pin_project! {
    /// The body of the service behind the layer, with the permit that it was served under; or the short text of a
    /// refusal.
    ///
    /// The permit ends with the body. If the body is dropped before, the client disconnected: the work is ignored. It has
    /// the service's own data and error types, so it fits wherever that body did.
    pub struct AdmissionBody<B> {
        #[pin]
        of: Of<B>,
        work: Option<Work>,
    }
}

pin_project! {
    #[project = OfProjected]
    enum Of<B> {
        Service { #[pin] body: B },
        // Empty once sent.
        Refusal { text: String },
    }
}

/// A permit, the outcome of its work, and how long that took to the headers, if it was timed.
struct Work {
    permit: SharedPermit,
    ending: Ending,
    took: Option<Duration>,
    /// The status, if trailers may decide the outcome or the cost: the permit waits for them.
    trailers: Option<StatusCode>,
    settings: Arc<Settings>,
}

impl<B> AdmissionBody<B> {
    pub(super) fn service(body: B) -> Self {
        Self { of: Of::Service { body }, work: None }
    }

    pub(super) fn refusal(text: String) -> Self {
        Self { of: Of::Refusal { text }, work: None }
    }
}

impl<B: Body<Data: From<String>>> AdmissionBody<B> {
    /// Creates the body of a response. The permit ends with it, or now if nothing follows or the backend was full.
    pub(super) fn holding(response: &Parts, body: B, permit: SharedPermit, settings: &Arc<Settings>) -> Self {
        let mut body = Self::service(body);
        if !permit.is_none() {
            body.work = Work::of(response, permit, settings).unless_over(&body);
        }
        body
    }
}

/// An empty body.
impl<B> Default for AdmissionBody<B> {
    fn default() -> Self {
        Self::refusal(String::new())
    }
}

impl Work {
    fn of(response: &Parts, permit: SharedPermit, settings: &Arc<Settings>) -> Self {
        let headers = &response.headers;
        let in_trailers = grpc::content_type(headers).is_some() && !headers.contains_key(GRPC_STATUS);
        let in_trailers =
            in_trailers || settings.settle.is_some() && headers.contains_key(http::header::TRAILER);
        let ending = (settings.ending)(response.status, headers);
        let mut work = Self {
            took: permit.elapsed(),
            permit,
            ending,
            trailers: in_trailers.then_some(response.status),
            settings: Arc::clone(settings),
        };
        work.settle(response.status, headers);
        work
    }

    fn settle(&mut self, status: StatusCode, headers: &http::HeaderMap) {
        let Some(settle) = &self.settings.settle else { return };
        let charged = self.permit.used() + self.permit.reserved();
        if let Some(actual) = settle(status, headers, charged) {
            self.permit.settle(actual);
        }
    }

    /// Ends the permit if nothing more follows, or if the backend was full: its refusal needs no slot.
    fn unless_over<B: Body>(self, body: &B) -> Option<Self> {
        if self.ending == Ending::Dropped || self.is_over(body) {
            self.end();
            return None;
        }
        Some(self)
    }

    /// Returns whether nothing more follows. Servers do not poll such a body again, they drop it.
    fn is_over<B: Body>(&self, body: &B) -> bool {
        body.is_end_stream() || self.trailers.is_none() && body.size_hint().exact() == Some(0)
    }

    /// Updates outcome and cost from a frame, if it has the trailers that decide.
    fn read<D>(&mut self, frame: &Frame<D>) {
        if let Some(trailers) = frame.trailers_ref()
            && let Some(status) = self.trailers.take()
        {
            self.ending = (self.settings.ending)(status, trailers);
            self.settle(status, trailers);
        }
    }

    fn end(self) {
        self.permit.end(self.ending, self.took);
    }
}

impl<B: Body<Data: From<String>>> Body for AdmissionBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        // On the stack while the service's code runs: if that panics, the permit is dropped with it.
        let work = self.as_mut().project().work.take();
        let frame = self.as_mut().project().of.poll_frame(cx);
        let Some(mut work) = work else { return frame };
        let left = match &frame {
            Poll::Pending => Some(work),
            // The backend failed mid-stream.
            Poll::Ready(Some(Err(_))) => {
                work.permit.dropped();
                None
            }
            Poll::Ready(None) => {
                work.end();
                None
            }
            Poll::Ready(Some(Ok(frame))) => {
                work.read(frame);
                if work.is_over(&*self) {
                    work.end();
                    None
                } else {
                    Some(work)
                }
            }
        };
        *self.project().work = left;
        frame
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

type NextFrame<B> = Option<Result<Frame<<B as Body>::Data>, <B as Body>::Error>>;

impl<B: Body<Data: From<String>>> Of<B> {
    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<NextFrame<B>> {
        match self.project() {
            OfProjected::Service { body } => body.poll_frame(cx),
            OfProjected::Refusal { text } if text.is_empty() => Poll::Ready(None),
            OfProjected::Refusal { text } => Poll::Ready(Some(Ok(Frame::data(mem::take(text).into())))),
        }
    }
}

debug_fields!([B] AdmissionBody<B>, |it| holds = it.work.is_some());
