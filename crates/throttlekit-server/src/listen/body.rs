//! Bodies: answers on their way, and what is left of requests that are answered.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body, Buf, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::timeout;

use super::Peer;
use super::conduct::Exchange;
use crate::share::Account;

/// How long, and how far, the rest of a request is read after its answer.
const REST_FOR: Duration = Duration::from_secs(2);
const REST_BYTES_MAX: usize = 64 << 10;
/// Of one connection at a time; others are reset.
const RESTS_MAX: usize = 16;

/// Reads the rest of a request that is answered without it. Left unread, HTTP/2 would have its stream reset, and a client
/// with many such streams is sent away: others send theirs over the same connection.
pub(crate) fn read_rest<B>(peer: Option<&Peer>, body: B)
where
    B: Body<Data: Send> + Send + 'static,
{
    let Some(account) = peer.and_then(|peer| peer.account.clone()) else { return };
    if body.is_end_stream() || account.rests.load(Relaxed) >= RESTS_MAX {
        return;
    }
    account.rests.fetch_add(1, Relaxed);
    let rest = Rest(account);
    tokio::spawn(timeout(REST_FOR, async move {
        let (mut body, mut read) = (pin!(body), 0);
        while let Some(Ok(frame)) = body.frame().await
            && read <= REST_BYTES_MAX
        {
            read += frame.data_ref().map_or(0, Buf::remaining);
        }
        drop(rest);
    }));
}

/// Counts one that is read.
struct Rest(Arc<Account>);

impl Drop for Rest {
    fn drop(&mut self) {
        self.0.rests.fetch_sub(1, Relaxed);
    }
}

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
