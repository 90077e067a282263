//! The layer as users build it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use tower_layer::Layer;

use super::admit::Admit;
use super::choice::{ChooseOnFailure, OnFailure, OnMissing};
use super::headers::HeaderStyle;
use super::key::{Identify, Missing};
use super::plan::{Caller, Plan};
use super::service::AdmitService;
use crate::{Cost, Limiter};

/// A tower layer that admits requests or answers them itself.
///
/// Clones share the limits. See the [module](super) for what it does and an example.
pub struct AdmitLayer<A = Limiter> {
    settings: Arc<Settings<A>>,
}

impl<A: Admit> AdmitLayer<A> {
    /// One plan for all, counted by who asks.
    pub fn new(plan: Plan<A>, who: impl Identify) -> Self {
        Self::choosing(move |request| Ok(plan.caller(who.identify(request)?)))
    }

    /// A plan for each request: `choose` says under which plan it counts, and as whom.
    ///
    /// ```
    /// use http::{HeaderName, request::Parts};
    /// use throttlekit::{Limiter, Rate};
    /// use throttlekit::http::{AdmitLayer, ClientAddress, Header, Identify, Plan};
    ///
    /// let tenants = Plan::new("tenant", Limiter::new(Rate::per_second(100))?)?;
    /// let strangers = Plan::new("anonymous", Limiter::new(Rate::per_minute(10))?)?;
    /// let tenant = Header::new(HeaderName::from_static("x-tenant")); // set by our gateway
    /// let address = ClientAddress::behind_proxies(1);
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

    /// What a request costs; 1 until told.
    pub fn cost(self, cost: impl Fn(&Parts) -> Cost + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.cost = Arc::new(cost))
    }

    /// Which requests pass uncounted, such as health checks; none until told. They carry no decision and get no
    /// headers.
    pub fn exempt(self, exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.exempt = Arc::new(exempt))
    }

    /// What happens where no key is found; refused until told.
    pub fn on_missing(self, missing: OnMissing) -> Self {
        self.with(|settings| settings.missing = missing)
    }

    /// What happens where nothing could be decided; closed until told. A [`Limiter`] always decides.
    pub fn on_failure(self, failure: impl ChooseOnFailure) -> Self {
        self.with(|settings| settings.failure = Arc::new(failure))
    }

    /// Which headers go with responses.
    pub fn headers(self, style: HeaderStyle) -> Self {
        self.with(|settings| settings.style = style)
    }

    /// How to wait for one's turn when a shaper ([`Limit::leaky_bucket`](crate::Limit::leaky_bucket)) admits with
    /// a delay, such as `tokio::time::sleep`.
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

/// A wait that ends: [`AdmitLayer::delay`].
pub(super) type Delay = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Something of a request.
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
