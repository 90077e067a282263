//! The layer that identifies the caller of a request.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arc_swap::ArcSwap;
use futures_util::future::Either;
use http::{HeaderName, Request, Response};
use hyper::body::Body;
use tonic::Status;
use tower::{Layer, Service};

use super::refusals::Reason;
use super::{Access, AuthError};
use crate::listen::{FORWARD_AUTH, Peer, is_grpc, read_rest, say};

/// Paths that are open to everyone: health, which load balancers must be able to read.
const OPEN_PATHS: [&str; 2] = ["/healthz", "/readyz"];
const OPEN_SERVICE: &str = "/grpc.health.v1.Health/";
/// Checks whether this path is open to everyone and served immediately: health.
pub(crate) fn is_open(path: &str) -> bool {
    OPEN_PATHS.contains(&path) || path.starts_with(OPEN_SERVICE)
}

/// Default header in which a proxy sends its own token.
pub const PROXY_TOKEN: HeaderName = HeaderName::from_static("x-throttlekit-token");

/// Inserts a [`Caller`](super::Caller) into each request, or rejects it: UNAUTHENTICATED, or 401. Trusts the connection
/// and the token, and no other header.
///
/// A forward-auth proxy sends its token in a header of its own: `authorization` then holds the client's credentials for
/// the upstream service, and is ignored.
#[derive(Clone, Debug)]
pub struct Identify {
    access: Arc<ArcSwap<Access>>,
    proxy_token: HeaderName,
}

impl Identify {
    /// Creates the layer with the current access list at the time of each request.
    pub fn by(access: Arc<ArcSwap<Access>>) -> Self {
        Self { access, proxy_token: PROXY_TOKEN }
    }

    /// Sets the header in which proxies send their token.
    pub fn proxy_token(self, header: HeaderName) -> Self {
        Self { proxy_token: header, ..self }
    }

    fn judge<B>(&self, request: &mut Request<B>) -> Result<(), Status> {
        let path = request.uri().path();
        if is_open(path) {
            return Ok(());
        }
        let peer = request.extensions().get::<Peer>();
        let (access, headers) = (self.access.load(), request.headers());
        let refuse = |reason: Reason, principal: &str, why: &str| {
            access.refusals().note(reason, peer.map(|peer| peer.address), principal, path);
            Status::unauthenticated(why)
        };
        let caller = if path.starts_with(FORWARD_AUTH) {
            access.identify_proxy(headers, &self.proxy_token, peer)
        } else {
            access.identify(headers, peer)
        };
        let caller = caller.map_err(|unknown| {
            let why = match unknown {
                AuthError::WrongToken => "unknown token",
                AuthError::ExpiredToken => "this token has expired: replace it",
                AuthError::NoToken => NO_TOKEN,
            };
            refuse(unknown.reason(), "", why)
        })?;
        if let Some(why) = caller.lacks_secret_for(path) {
            return Err(refuse(Reason::NoSecret, caller.principal().name(), why));
        }
        request.extensions_mut().insert(caller);
        Ok(())
    }
}

const NO_TOKEN: &str =
    "missing token: send `authorization: Bearer …`, or a client certificate that is listed";

/// Creates the response to a rejected request. A proxy's client is not prompted for a token: the missing one is the
/// proxy's.
fn refused<B, R: Default>(request: &Request<B>, status: Status) -> Response<R> {
    let mut response = say(is_grpc(request), status);
    if request.uri().path().starts_with(FORWARD_AUTH) {
        response.headers_mut().remove(http::header::WWW_AUTHENTICATE);
    }
    response
}

impl<S> Layer<S> for Identify {
    type Service = Identified<S>;

    fn layer(&self, inner: S) -> Identified<S> {
        Identified { identify: self.clone(), inner }
    }
}

/// A service whose callers are identified.
#[derive(Clone, Debug)]
pub struct Identified<S> {
    identify: Identify,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for Identified<S>
where
    B: Body<Data: Send> + Send + 'static,
    S: Service<Request<B>, Response = Response<R>, Error = Infallible>,
    R: Default + Send + 'static,
{
    type Response = Response<R>;
    type Error = Infallible;
    type Future = Either<Pin<Box<dyn Future<Output = Result<Response<R>, Infallible>> + Send>>, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        match self.identify.judge(&mut request) {
            Ok(()) => Either::Right(self.inner.call(request)),
            Err(status) => {
                let response = refused(&request, status);
                let body = request.into_body();
                Either::Left(Box::pin(async move {
                    read_rest(body).await;
                    Ok(response)
                }))
            }
        }
    }
}
