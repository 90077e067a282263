//! The layer and its options.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use tower_layer::Layer;

use super::admit::Admit;
use super::choice::{ChooseOnFailure, OnFailure, OnMissing};
use super::headers::HeaderStyle;
use super::key::{KeyExtractor, Missing};
use super::plan::{Caller, Plan};
use super::service::AdmitService;
use crate::{Cost, Limiter};

/// A tower layer that admits requests or responds to them itself.
///
/// Clones share the limits. See the [module](super) for details and an example.
pub struct AdmitLayer<A = Limiter> {
    settings: Arc<Settings<A>>,
}

impl<A: Admit> AdmitLayer<A> {
    /// Creates a layer with one plan for all requests, counted by the key from `who`.
    pub fn new(plan: Plan<A>, who: impl KeyExtractor) -> Self {
        Self::choosing(move |request| Ok(plan.caller(who.identify(request)?)))
    }

    /// Creates a layer with a plan for each request: `choose` returns the plan and the key.
    ///
    /// ```
    /// use http::{HeaderName, request::Parts};
    /// use throttlekit::{Limiter, Rate};
    /// use throttlekit::http::{AdmitLayer, ClientIp, Header, KeyExtractor, Plan};
    ///
    /// let tenants = Plan::new("tenant", Limiter::new(Rate::per_second(100))?)?;
    /// let strangers = Plan::new("anonymous", Limiter::new(Rate::per_minute(10))?)?;
    /// let tenant = Header::new(HeaderName::from_static("x-tenant")); // set by our gateway
    /// let address = ClientIp::behind_proxies(1);
    ///
    /// let layer = AdmitLayer::choosing(move |request: &Parts| match tenant.identify(request) {
    ///     Ok(key) => Ok(tenants.caller(key)),
    ///     Err(_) => Ok(strangers.caller(address.identify(request)?)),
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn choosing(choose: impl Fn(&Parts) -> Result<Caller<A>, Missing> + Send + Sync + 'static) -> Self {
        let settings = Settings {
            choose: Arc::new(choose),
            cost: Arc::new(|_| 1),
            exempt: Arc::new(|_| false),
            missing: OnMissing::default(),
            failure: Arc::new(OnFailure::default()),
            style: HeaderStyle::default(),
            delay: None,
        };
        Self { settings: Arc::new(settings) }
    }

    /// Sets the cost of a request. Default: 1.
    pub fn cost(self, cost: impl Fn(&Parts) -> Cost + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.cost = Arc::new(cost))
    }

    /// Sets which requests pass uncounted, such as health checks. They carry no decision and get no headers. Default:
    /// none.
    pub fn exempt(self, exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.exempt = Arc::new(exempt))
    }

    /// Sets the action for requests without a key. Default: refuse.
    pub fn on_missing(self, missing: OnMissing) -> Self {
        self.with(|settings| settings.missing = missing)
    }

    /// Sets the action when no decision was possible. Default: closed. A [`Limiter`] always decides.
    pub fn on_failure(self, failure: impl ChooseOnFailure) -> Self {
        self.with(|settings| settings.failure = Arc::new(failure))
    }

    /// Sets the headers of responses.
    pub fn headers(self, style: HeaderStyle) -> Self {
        self.with(|settings| settings.style = style)
    }

    /// Sets the timer, such as `tokio::time::sleep`, for requests that a shaper
    /// ([`Limit::leaky_bucket`](crate::Limit::leaky_bucket)) admits with a delay.
    ///
    /// Without it such a request starts at once and carries the wait in its [`Decision`](crate::Decision), for the
    /// service to act on: the shaper then bounds how many come, not how evenly.
    pub fn delay<F>(self, delay: impl Fn(Duration) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.with(|settings| settings.delay = Some(Arc::new(move |wait| Box::pin(delay(wait)))))
    }

    fn with(mut self, set: impl FnOnce(&mut Settings<A>)) -> Self {
        set(Arc::make_mut(&mut self.settings));
        self
    }
}

impl<S, A> Layer<S> for AdmitLayer<A> {
    type Service = AdmitService<S, A>;

    fn layer(&self, inner: S) -> Self::Service {
        AdmitService::new(inner, Arc::clone(&self.settings))
    }
}

clone_fields!([A] AdmitLayer<A>, settings);

debug_fields!([A] AdmitLayer<A>);

/// Future that completes after a wait: [`AdmitLayer::delay`].
pub(super) type Delay = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A function of a request.
pub(super) type OfRequest<T> = Arc<dyn Fn(&Parts) -> T + Send + Sync>;

pub(super) struct Settings<A> {
    pub(super) choose: OfRequest<Result<Caller<A>, Missing>>,
    pub(super) cost: OfRequest<Cost>,
    pub(super) exempt: OfRequest<bool>,
    pub(super) missing: OnMissing,
    pub(super) failure: Arc<dyn ChooseOnFailure>,
    pub(super) style: HeaderStyle,
    pub(super) delay: Option<Arc<dyn Fn(Duration) -> Delay + Send + Sync>>,
}

clone_fields!([A] Settings<A>, choose, cost, exempt, failure, delay, missing, style);
