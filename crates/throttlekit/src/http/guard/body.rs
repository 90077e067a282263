//! A response body that holds a slot until it has been sent.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::guard::{Ending, OwnedPermit};
use crate::http::AdmitBody;
use crate::{BootClock, Clock};

pin_project! {
    /// The body of the service behind the layer, with the slot that it was served in; or the few words of a refusal.
    ///
    /// The slot is given back at the end of the body. Dropped before, the client went away: that teaches nothing.
    #[derive(Debug)]
    pub struct GuardBody<B, C = BootClock>
    where
        C: Clock,
    {
        #[pin]
        body: AdmitBody<B>,
        slot: Option<Held<C>>,
    }
}

/// A slot, how its work ended, and how long that took, where it was timed.
#[derive(Debug)]
struct Held<C: Clock> {
    slot: OwnedPermit<C>,
    ending: Ending,
    took: Option<Duration>,
}

impl<B, C: Clock> GuardBody<B, C> {
    pub(super) fn without_slot(body: AdmitBody<B>) -> Self {
        Self { body, slot: None }
    }
}

impl<B: Body<Data: From<String>>, C: Clock> GuardBody<B, C> {
    pub(super) fn holding(body: AdmitBody<B>, slot: OwnedPermit<C>, ending: Ending) -> Self {
        let took = slot.elapsed();
        let held = Held { slot, ending, took };
        if is_over(&body) {
            held.give_back();
            return Self::without_slot(body);
        }
        Self { body, slot: Some(held) }
    }
}

/// Nothing is to come. Servers do not poll such a body again, they drop it.
fn is_over<B: Body>(body: &B) -> bool {
    body.is_end_stream() || body.size_hint().exact() == Some(0)
}

impl<C: Clock> Held<C> {
    fn give_back(self) {
        match (self.ending, self.took) {
            (Ending::Success, Some(took)) => self.slot.success_after(took),
            (Ending::Success, None) => self.slot.success(),
            (Ending::Dropped, _) => self.slot.dropped(),
            (Ending::Ignored, _) => self.slot.ignored(),
        }
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
        match (&frame, held) {
            (Poll::Ready(None), Some(held)) => held.give_back(),
            (Poll::Ready(Some(Ok(_))), Some(held)) if is_over(&*this.body) => held.give_back(),
            // The backend broke off.
            (Poll::Ready(Some(Err(_))), Some(held)) => held.slot.dropped(),
            (_, held) => *this.slot = held,
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
