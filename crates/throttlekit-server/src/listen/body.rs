//! Bodies: responses being sent, and the rest of requests that have their response.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body, Buf, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::timeout;

use super::watchdog::Exchange;

/// Maximum time, and number of bytes, for reading the rest of what a client sends though it has its response, or its
/// connection is closed.
pub(super) const REST_FOR: Duration = Duration::from_millis(500);
pub(super) const REST_BYTES_MAX: usize = 64 << 10;

/// Reads the rest of a request that got its response early. Otherwise HTTP/2 would reset its stream, and a client with
/// many such streams gets a GOAWAY: others share the connection.
pub(crate) async fn read_rest(body: impl Body) {
    let (mut body, mut read) = (pin!(body), 0);
    let reading = async {
        while !body.is_end_stream()
            && read <= REST_BYTES_MAX
            && let Some(Ok(frame)) = body.frame().await
        {
            read += frame.data_ref().map_or(0, Buf::remaining);
        }
    };
    // A client that does not send it in time is reset.
    let _ = timeout(REST_FOR, reading).await;
}

pin_project! {
    /// A body that records whether the client reads it.
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
