//! Services that are called without a router, whose dozen allocations would be a tenth of a request.

use std::convert::Infallible;
use std::task::{Context, Poll};

use futures_util::future::Either;
use http::{Method, Request, Response};
use tower::Service;

/// A service for some requests, before a service for all others.
#[derive(Clone)]
pub(crate) struct Direct<S, R> {
    takes: fn(&Method, &str) -> bool,
    service: S,
    others: R,
}

impl<S, R> Direct<S, R> {
    /// Sends requests whose method and path `takes` accepts to `service`, and the others to `others`. Both must always
    /// be ready.
    pub(crate) fn new(takes: fn(&Method, &str) -> bool, service: S, others: R) -> Self {
        Self { takes, service, others }
    }
}

impl<S, R, A, B> Service<Request<A>> for Direct<S, R>
where
    S: Service<Request<A>, Response = Response<B>, Error = Infallible>,
    R: Service<Request<A>, Response = Response<B>, Error = Infallible>,
{
    type Response = Response<B>;
    type Error = Infallible;
    type Future = Either<S::Future, R::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        match self.service.poll_ready(cx) {
            Poll::Ready(_) => self.others.poll_ready(cx),
            Poll::Pending => Poll::Pending,
        }
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        if (self.takes)(request.method(), request.uri().path()) {
            Either::Left(self.service.call(request))
        } else {
            Either::Right(self.others.call(request))
        }
    }
}
