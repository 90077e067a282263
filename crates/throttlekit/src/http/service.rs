//! The tower service: checks the limit, then serves or refuses.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::request::Parts;
use http::{Request, Response};
use tower_service::Service;

use super::admit::Admit;
use super::body::AdmitBody;
use super::choice::OnMissing;
use super::future::{AdmitFuture, Held, Step};
use super::key::Missing;
use super::layer::Settings;
use super::plan::Terms;
use super::refusal::Refusal;
use super::stamp::Stamp;
use crate::{Call, Limiter};

/// A service wrapped by [`AdmitLayer`](super::AdmitLayer).
pub struct AdmitService<S, A = Limiter> {
    inner: S,
    settings: Arc<Settings<A>>,
}

impl<S, A> AdmitService<S, A> {
    pub(super) fn new(inner: S, settings: Arc<Settings<A>>) -> Self {
        Self { inner, settings }
    }
}

impl<S, A, B, R> Service<Request<B>> for AdmitService<S, A>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    A: Admit,
{
    type Response = Response<AdmitBody<R>>;
    type Error = S::Error;
    type Future = AdmitFuture<A, S, B, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let fresh = self.inner.clone();
        let mut ready = mem::replace(&mut self.inner, fresh); // the clone was never polled ready
        let (parts, body) = request.into_parts();
        let door = Routing::of(&self.settings, &parts);
        let request = Request::from_parts(parts, body);
        AdmitFuture::new(match door {
            Routing::Call(answer, terms) => {
                let settings = Arc::clone(&self.settings);
                Step::Asking { answer, held: Some(Held { service: ready, request, settings, terms }) }
            }
            Routing::Pass => Step::Serving { response: ready.call(request), stamp: Stamp::Uncounted },
            Routing::Refuse(missing) => {
                let mut response = Refusal::Missing(missing).answer(request.headers());
                response.extensions_mut().insert(missing);
                Step::Refused { response: Some(response) }
            }
        })
    }
}

/// The route of a request before any limit is checked.
enum Routing<A: Admit> {
    Call(A::Answer, Arc<Terms>),
    Pass,
    Refuse(Missing),
}

impl<A: Admit> Routing<A> {
    fn of(settings: &Settings<A>, request: &Parts) -> Self {
        if (settings.exempt)(request) {
            return Self::Pass;
        }
        match ((settings.choose)(request), settings.missing) {
            (Ok(caller), _) => {
                let ask = Call::by(caller.key.as_bytes()).cost((settings.cost)(request));
                Self::Call(caller.plan.gate().admit(ask), Arc::clone(caller.plan.terms()))
            }
            (Err(_), OnMissing::Skip) => Self::Pass,
            (Err(missing), OnMissing::Refuse) => Self::Refuse(missing),
        }
    }
}

clone_fields!([S: Clone, A] AdmitService<S, A>, inner, settings);

debug_fields!([S: fmt::Debug, A] AdmitService<S, A>, |it| inner = it.inner);
