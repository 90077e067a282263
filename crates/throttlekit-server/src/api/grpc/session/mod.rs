//! `throttlekit.v1.RateLimiter/Session`: the calls of one client over one stream.
//!
//! A session is the body of a response. It reads what has arrived, decides it in the turns of its caller, and sends the
//! results in one message; only then it reads on. So a client that does not read its results is not read from either.
//! tonic would keep the bytes of an incomplete message without counting them, so messages are read here.

mod body;
mod calls;
mod encoding;
mod messages;
mod run;

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use arc_swap::ArcSwap;
use http::{HeaderValue, Request, Response, header};
use hyper::body::{Body, Bytes};
use tonic::Status;
use tower::Service;

use crate::access::{Access, credentials};
use crate::api::fair_use::who;
use crate::engine::{Engine, MANY_MAX};
use crate::listen::{Counters, Peer};
use crate::share::Shares;
use body::SessionBody;
use run::Session;

/// Maximum number of calls of a session without a result.
const WINDOW: usize = MANY_MAX;

/// Sessions of an engine.
#[derive(Clone)]
pub(crate) struct SessionApi(Arc<SessionContext>);

/// The parts of the server that sessions use.
pub(crate) struct SessionContext {
    pub(crate) engine: Engine,
    /// The current access list. Each message is identified by it.
    pub(crate) access: Arc<ArcSwap<Access>>,
    pub(crate) shares: Arc<Shares>,
    /// Counters of the listener.
    pub(crate) counters: Arc<Counters>,
}

impl SessionApi {
    /// Creates the service.
    pub(crate) fn new(context: SessionContext) -> Self {
        Self(Arc::new(context))
    }

    /// Opens a session, if its caller has not too many.
    fn open<B>(&self, request: Request<B>) -> Result<Response<tonic::body::Body>, Status>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
    {
        let (parts, body) = request.into_parts();
        let peer = parts.extensions.get::<Peer>().cloned();
        let peer = peer.ok_or_else(|| Status::unimplemented("no sessions here: use the unary methods"))?;
        let who = who(&parts.extensions);
        let slot = self.0.shares.session(who.clone());
        let slot =
            slot.ok_or_else(|| Status::resource_exhausted("too many sessions: use the unary methods"))?;
        let session = Session::new(self.0.clone(), (peer, who), credentials(&parts.headers), body, slot);
        let mut response = Response::new(tonic::body::Body::new(SessionBody::of(session)));
        let kind = HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        Ok(response)
    }
}

impl<B> Service<Request<B>> for SessionApi
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    type Response = Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        ready(Ok(self.open(request).unwrap_or_else(Status::into_http)))
    }
}
