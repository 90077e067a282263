//! A response body that holds a slot until it has been sent.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::layer::OfResponse;
use crate::guard::{Ending, OwnedPermit};
use crate::http::AdmitBody;
use crate::{BootClock, Clock};

pin_project! {
    /// The body of the service behind the layer, with the slot that it was served in; or the short text of a refusal.
    ///
    /// The slot is released at the end of the body. If dropped before, the client disconnected: the guard learns
    /// nothing.
    pub struct GuardBody<B, C = BootClock>
    where
        C: Clock,
    {
        #[pin]
        body: AdmitBody<B>,
        slot: Option<Held<C>>,
    }
}

/// A slot, the outcome of its work, and how long that took, if it was timed.
struct Held<C: Clock> {
    slot: OwnedPermit<C>,
    ending: Ending,
    took: Option<Duration>,
    /// Classifier of the outcome, if the trailers decide it: the slot waits for them.
    trailers: Option<(StatusCode, OfResponse)>,
}

impl<B, C: Clock> GuardBody<B, C> {
    pub(super) fn without_slot(body: AdmitBody<B>) -> Self {
        Self { body, slot: None }
    }
}

impl<B: Body<Data: From<String>>, C: Clock> GuardBody<B, C> {
    pub(super) fn holding(
        body: AdmitBody<B>,
        slot: OwnedPermit<C>,
        ending: Ending,
        trailers: Option<(StatusCode, OfResponse)>,
    ) -> Self {
        let took = slot.elapsed();
        let held = Held { slot, ending, took, trailers };
        if held.is_over(&body) {
            held.give_back();
            return Self::without_slot(body);
        }
        Self { body, slot: Some(held) }
    }
}

impl<C: Clock> Held<C> {
    /// Returns whether nothing more follows. Servers do not poll such a body again, they drop it.
    fn is_over<B: Body>(&self, body: &B) -> bool {
        body.is_end_stream() || self.trailers.is_none() && body.size_hint().exact() == Some(0)
    }

    /// Updates the outcome from a frame, if it has the trailers that decide.
    fn hear<D>(&mut self, frame: &Frame<D>) {
        if let Some(trailers) = frame.trailers_ref()
            && let Some((status, ending)) = self.trailers.take()
        {
            self.ending = ending(status, trailers);
        }
    }

    fn give_back(self) {
        self.slot.end(self.ending, self.took);
    }
}

impl<B: Body<Data: From<String>>, C: Clock> Body for GuardBody<B, C> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        // On the stack while the service's code runs: if that panics, the slot is dropped with it.
        let held = this.slot.take();
        let frame = this.body.as_mut().poll_frame(cx);
        let Some(mut held) = held else { return frame };
        match &frame {
            Poll::Pending => *this.slot = Some(held),
            Poll::Ready(None) => held.give_back(),
            // The backend failed mid-stream.
            Poll::Ready(Some(Err(_))) => held.slot.dropped(),
            Poll::Ready(Some(Ok(frame))) => {
                held.hear(frame);
                if held.is_over(&*this.body) {
                    held.give_back();
                } else {
                    *this.slot = Some(held);
                }
            }
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

debug_fields!([B, C: Clock] GuardBody<B, C>, |it| holds = it.slot.is_some());
