//! The body of a response, with the permit of its request.

use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Buf;
use http::response::Parts;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::layer::Settings;
use super::permit::OutboundPermit;
use super::service::seen;
use crate::admit::Ending;
use crate::http::ending_of;

/// Bytes of a refusal's body that are read for its delay.
pub(super) const REFUSAL_MAX: usize = 16 << 10;

pin_project! {
    /// The body of a response, with the permit of its request. The permit ends with it: the tokens are settled from the
    /// `usage` that was read by then. If the body is dropped before its end, they are those reported so far, or else the
    /// estimate.
    pub struct OutboundBody<B> {
        #[pin]
        body: B,
        work: Option<Work>,
    }

    impl<B> PinnedDrop for OutboundBody<B> {
        fn drop(this: Pin<&mut Self>) {
            if let Some(work) = this.project().work.take() {
                work.abandon();
            }
        }
    }
}

/// A permit, and what was read of the body.
struct Work {
    permit: OutboundPermit,
    ending: Ending,
    reading: Reading,
}

/// The purpose for which a body is read.
enum Reading {
    Nothing,
    Usage,
    /// The delay of a refusal, with its head.
    Delay(Box<Parts>, Vec<u8>),
}

impl<B: Body> OutboundBody<B> {
    pub(super) fn new(body: B, mut permit: OutboundPermit, response: &Parts, settings: &Settings) -> Self {
        let ending = ending_of(response.status, &response.headers);
        let reading = match (&settings.settle, permit.is_refused()) {
            (_, true) => Reading::Delay(Box::new(seen(response).into_owned()), Vec::new()),
            (Some(settle), false) => {
                if let Some(tokens) = settle(response) {
                    permit.settle(tokens);
                }
                Reading::Nothing
            }
            (None, false) => Reading::Usage,
        };
        let work = Work { permit, ending, reading };
        let work = if body.is_end_stream() { work.end() } else { Some(work) };
        Self { body, work }
    }
}

impl Work {
    fn read<D: Buf>(&mut self, data: &D) {
        match &mut self.reading {
            Reading::Nothing => {}
            Reading::Usage => append(data, |piece| self.permit.read(piece)),
            Reading::Delay(_, text) => append(data, |piece| {
                let left = REFUSAL_MAX.saturating_sub(text.len());
                text.extend_from_slice(&piece[..piece.len().min(left)]);
            }),
        }
    }

    /// Ends the permit after the body.
    fn end(mut self) -> Option<Self> {
        self.learn();
        self.permit.end(self.ending, None);
        None
    }

    /// Ends the permit of a body that is dropped early.
    fn abandon(mut self) {
        self.learn();
        self.permit.abandon();
    }

    /// Learns the delay of a refusal, as far as it was read.
    fn learn(&mut self) {
        if let Reading::Delay(response, text) = &self.reading
            && !text.is_empty()
        {
            self.permit.observe_body(response, text);
        }
    }
}

/// Passes on all pieces of some data, without consuming it.
pub(super) fn append(data: &impl Buf, mut push: impl FnMut(&[u8])) {
    const PIECES: usize = 16;
    if data.chunk().len() == data.remaining() {
        return push(data.chunk());
    }
    let mut pieces = [IoSlice::new(&[]); PIECES];
    let filled = data.chunks_vectored(&mut pieces);
    pieces[..filled].iter().for_each(|piece| push(piece));
}

impl<B: Body> Body for OutboundBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        // On the stack while the client's code runs: if that panics, the permit is dropped with it.
        let work = self.as_mut().project().work.take();
        let frame = self.as_mut().project().body.poll_frame(cx);
        let Some(mut work) = work else { return frame };
        let left = match &frame {
            Poll::Pending => Some(work),
            Poll::Ready(None) => work.end(),
            Poll::Ready(Some(Err(_))) => {
                work.ending = Ending::Dropped;
                work.end()
            }
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    work.read(data);
                }
                if let Some(trailers) = frame.trailers_ref() {
                    work.ending = ending_of(http::StatusCode::OK, trailers);
                }
                if self.body.is_end_stream() { work.end() } else { Some(work) }
            }
        };
        *self.as_mut().project().work = left;
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

debug_fields!([B] OutboundBody<B>, |it| holds = it.work.is_some());
