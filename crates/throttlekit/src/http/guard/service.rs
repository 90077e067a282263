//! The tower service: takes a slot and serves, or refuses.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::body::GuardBody;
use super::future::{GuardFuture, Held, Step};
use super::layer::Settings;
use crate::http::refusal::Refusal;
use crate::{BootClock, Clock};

/// A service wrapped by [`GuardLayer`](super::GuardLayer).
pub struct GuardService<S, C: Clock = BootClock> {
    inner: S,
    settings: Arc<Settings<C>>,
}

impl<S, C: Clock> GuardService<S, C> {
    pub(super) fn new(inner: S, settings: Arc<Settings<C>>) -> Self {
        Self { inner, settings }
    }
}

impl<S, C, B, R> Service<Request<B>> for GuardService<S, C>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    R: Body<Data: From<String>>,
    C: Clock + 'static,
{
    type Response = Response<GuardBody<R, C>>;
    type Error = S::Error;
    type Future = GuardFuture<S, B, R, C>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let fresh = self.inner.clone();
        let mut ready = mem::replace(&mut self.inner, fresh); // the clone was never polled ready
        let settings = Arc::clone(&self.settings);
        let (parts, body) = request.into_parts();
        let (exempt, priority) = ((settings.exempt)(&parts), (settings.priority)(&parts));
        let request = Request::from_parts(parts, body);
        if exempt {
            return GuardFuture::new(Step::Serving { response: ready.call(request), slot: None, settings });
        }
        GuardFuture::new(match (settings.guard.try_acquire_owned(priority), &settings.wait) {
            (Ok(slot), _) => Step::Serving { response: ready.call(request), slot: Some(slot), settings },
            (Err(_), Some(wait)) => {
                let (timer, turn) = (wait(), Box::pin(Arc::clone(&settings.guard).acquire_owned(priority)));
                Step::Waiting { turn, timer, held: Some(Held { service: ready, request, settings }) }
            }
            (Err(full), None) => {
                Step::Refused { response: Some(Refusal::Full(full).answer(request.headers())) }
            }
        })
    }
}

clone_fields!([S: Clone, C: Clock] GuardService<S, C>, inner, settings);

debug_fields!([S: fmt::Debug, C: Clock] GuardService<S, C>, |it| inner = it.inner);
