//! HTTP with a fast path: a session answers frequent requests, and the library everything else.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tower::Service;

use super::commands::{End, Exchanges, RECEIVED_BYTES_MAX, Session};
use super::connection::{BoxError, Protocol, blame, serve_http};
use super::supervise::supervise;
use super::watchdog::Activity;
use super::{ListenOptions, Peer};
use crate::share::Account;

/// HTTP, with a session for the requests at the beginning of each connection. What the session does not serve goes to the
/// service, and so does everything after it on that connection.
#[derive(Clone)]
pub(crate) struct FastPath<F, S> {
    open: F,
    service: S,
}

impl<F, S> FastPath<F, S> {
    /// Opens sessions with `open`.
    pub(crate) fn new(open: F, service: S) -> Self {
        Self { open, service }
    }
}

impl<F, E, S, B> Protocol for FastPath<F, S>
where
    F: Fn(Peer) -> E + Clone + Send + 'static,
    E: Session + 'static,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body + Default + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    async fn speak<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self,
        io: I,
        (peer, account): (Peer, Arc<Account>),
        shared: &Arc<ListenOptions>,
        closing: watch::Receiver<bool>,
    ) {
        let activity = Activity::new(&shared.limits);
        let session = (self.open)(peer.clone());
        let leaving = AtomicBool::new(false);
        let exchanges = Exchanges::new(io, session, activity.clone(), RECEIVED_BYTES_MAX);
        let mut exchanges = pin!(exchanges.run(&leaving));
        let (mut service, mut http) = (Some((peer, account, self.service)), None);
        let poll = |cx: &mut Context<'_>, leaves| {
            if let Some(http) = &mut http {
                return poll_http(http, cx, leaves);
            }
            if leaves {
                leaving.store(true, Relaxed);
            }
            let (io, received) = match ready!(exchanges.as_mut().poll(cx)) {
                Ok(End::HandedOver { io, received }) => (io, received),
                Ok(End::Closed | End::Rejected) => return Poll::Ready(Ok(())),
                Err(error) => return Poll::Ready(Err(error.into())),
            };
            let Some((peer, account, service)) = service.take() else { return Poll::Ready(Ok(())) };
            let served = http.insert(serve_http(io, received, (peer, account), service, shared, &activity));
            // What was handed over is read before a graceful close, which would drop it unread.
            match poll_http(served, cx, false) {
                Poll::Pending if leaving.load(Relaxed) => poll_http(served, cx, true),
                polled => polled,
            }
        };
        if let Some(Err(error)) = supervise(&activity, shared, closing, poll).await {
            blame(shared, &*error);
        }
    }
}

/// Polls a connection of HTTP. A function of its own so that its type is inferred once.
fn poll_http(
    http: &mut impl FnMut(&mut Context<'_>, bool) -> Poll<Result<(), BoxError>>,
    cx: &mut Context<'_>,
    leaves: bool,
) -> Poll<Result<(), BoxError>> {
    http(cx, leaves)
}
