//! An answer on its way.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::conduct::Exchange;

pin_project! {
    /// A body that notes whether the client takes it.
    #[derive(Debug)]
    pub struct Delivery<B> {
        #[pin]
        body: B,
        exchange: Exchange,
    }
}

impl<B: Body> Delivery<B> {
    pub(super) fn new(body: B, mut exchange: Exchange) -> Self {
        if body.is_end_stream() {
            exchange.finish();
        } else {
            exchange.offer();
        }
        Self { body, exchange }
    }
}

impl<B: Body> Body for Delivery<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let mut this = self.project();
        let polled = this.body.as_mut().poll_frame(cx);
        match &polled {
            Poll::Pending => this.exchange.taken(),
            Poll::Ready(Some(Ok(frame))) if !frame.is_trailers() && !this.body.is_end_stream() => {
                this.exchange.taken();
                this.exchange.offer();
            }
            Poll::Ready(_) => this.exchange.finish(),
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
