//! The tower service: checks the limit, then serves or refuses.

use std::fmt;
use std::mem;
use std::task::{Context, Poll};

use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::body::AdmissionBody;
use super::fallback::Fallback;
use super::future::{AdmissionFuture, Step, Waiting};
use super::key::{Key, MissingKey};
use super::layer::AdmissionLayer;
use super::plan::Plan;
use super::refusal::Refusal;
use super::stamp::Stamp;
use crate::Call;
use crate::admit::{Admitting, SharedPermit};

/// A service wrapped by [`AdmissionLayer`].
#[derive(Clone)]
pub struct AdmissionService<S> {
    inner: S,
    layer: AdmissionLayer,
}

impl<S> AdmissionService<S> {
    pub(super) fn new(inner: S, layer: AdmissionLayer) -> Self {
        Self { inner, layer }
    }
}

impl<S, B, R> Service<Request<B>> for AdmissionService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    R: Body<Data: From<String>>,
{
    type Response = Response<AdmissionBody<R>>;
    type Error = S::Error;
    type Future = AdmissionFuture<S, B, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let fresh = self.inner.clone();
        let service = mem::replace(&mut self.inner, fresh); // the clone was never polled ready
        let (parts, body) = request.into_parts();
        let asked = self.layer.ask(&parts);
        let (request, settings) = (Request::from_parts(parts, body), self.layer.settings.clone());
        AdmissionFuture::new(match asked {
            Ok((admitting, plan)) => {
                let waiting = Waiting { service, request, settings, plan };
                match admitting.now_or_later() {
                    Ok(result) => waiting.answered(result),
                    Err(admitting) => Step::asking(admitting, waiting),
                }
            }
            Err(Unasked::Allow) => {
                Step::serving(service, request, Stamp::Uncounted, SharedPermit::none(), settings)
            }
            Err(Unasked::Reject(missing)) => {
                let mut response = Refusal::Missing(missing).answer(request.headers(), 0.0);
                response.extensions_mut().insert(missing);
                Step::Refused { response: Some(response) }
            }
        })
    }
}

/// The outcome of a request that no limit decides about.
enum Unasked {
    Allow,
    Reject(MissingKey),
}

impl AdmissionLayer {
    fn ask(&self, request: &Parts) -> Result<(Admitting, Plan), Unasked> {
        if (self.settings.exempt)(request) {
            return Err(Unasked::Allow);
        }
        self.admit(request).map_err(|missing| match self.settings.on_missing_key {
            Fallback::Allow => Unasked::Allow,
            Fallback::Reject => Unasked::Reject(missing),
        })
    }

    fn admit(&self, request: &Parts) -> Result<(Admitting, Plan), MissingKey> {
        let settings = &*self.settings;
        let (plan, key) = (self.choose)(request)?;
        let others: Vec<Key> =
            settings.keys.iter().map(|key| key.extract(request)).collect::<Result<_, _>>()?;
        let others: Vec<&[u8]> = others.iter().map(Key::as_bytes).collect();
        let call = Call::by(key.as_bytes())
            .and(&*others)
            .cost((settings.cost)(request))
            .priority((settings.priority)(request));
        let admitting =
            if settings.wait.is_some() { plan.admit().admit_queued(call) } else { plan.admit().admit(call) };
        Ok((admitting, plan))
    }
}

debug_fields!([S: fmt::Debug] AdmissionService<S>, |it| inner = it.inner);
