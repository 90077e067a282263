//! The layer.

use std::sync::Arc;

use http::request::Parts;
use tower_layer::Layer;

use super::builder::AdmissionLayerBuilder;
use super::key::{Key, KeyExtractor, MissingKey};
use super::plan::Plan;
use super::service::AdmissionService;
use super::settings::{Choose, Settings};
use crate::admit::Admit;
use crate::{BuildError, Limiter, Rate};

/// A tower layer that admits requests or responds to them itself.
///
/// Clones share the limits. See the [module](super) for details and an example.
#[derive(Clone)]
pub struct AdmissionLayer {
    pub(super) choose: Arc<Choose>,
    pub(super) settings: Arc<Settings>,
}

impl AdmissionLayer {
    /// Creates a layer that admits this many requests of each key per second, in this process.
    pub fn per_second(requests: u64, key: impl KeyExtractor) -> Result<Self, BuildError> {
        Self::new(Limiter::new(Rate::per_second(requests))?, key)
    }

    /// Creates a layer that admits this many requests of each key per minute, in this process.
    ///
    /// ```
    /// # #[cfg(feature = "axum")] {
    /// use axum::{Router, routing::get};
    /// use throttlekit::http::{AdmissionLayer, header};
    ///
    /// # async fn handler() {}
    /// # fn app() -> Result<Router, throttlekit::BuildError> {
    /// let app = Router::new().route("/", get(handler)).layer(AdmissionLayer::per_minute(60, header("x-api-key"))?);
    /// # Ok(app)
    /// # }
    /// # assert!(app().is_ok());
    /// # }
    /// ```
    pub fn per_minute(requests: u64, key: impl KeyExtractor) -> Result<Self, BuildError> {
        Self::new(Limiter::new(Rate::per_minute(requests))?, key)
    }

    /// Creates a layer with the defaults: `admit` decides about each request, by its key.
    pub fn new(admit: impl Admit, key: impl KeyExtractor) -> Result<Self, BuildError> {
        Self::builder(admit, key).build()
    }

    /// Creates a builder, with all options.
    pub fn builder(admit: impl Admit, key: impl KeyExtractor) -> AdmissionLayerBuilder {
        AdmissionLayerBuilder::of(Box::new(admit), Box::new(key))
    }

    /// Creates a builder for a layer with a plan for each request: `choose` returns the plan and the key.
    ///
    /// ```
    /// use http::request::Parts;
    /// use throttlekit::{Limiter, Rate};
    /// use throttlekit::http::{AdmissionLayer, KeyExtractor, Plan, client_ip, header};
    ///
    /// let tenants = Plan::new("tenant", Limiter::new(Rate::per_second(100))?)?;
    /// let strangers = Plan::new("anonymous", Limiter::new(Rate::per_minute(10))?)?;
    /// let (tenant, address) = (header("x-tenant"), client_ip().behind_proxies(1)); // the header is set by our gateway
    ///
    /// let layer = AdmissionLayer::by_plan(move |request: &Parts| match tenant.extract(request) {
    ///     Ok(key) => Ok((tenants.clone(), key)),
    ///     Err(_) => Ok((strangers.clone(), address.extract(request)?)),
    /// })
    /// .build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn by_plan(
        choose: impl Fn(&Parts) -> Result<(Plan, Key), MissingKey> + Send + Sync + 'static,
    ) -> AdmissionLayerBuilder {
        AdmissionLayerBuilder::choosing(Box::new(choose))
    }
}

impl<S> Layer<S> for AdmissionLayer {
    type Service = AdmissionService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        AdmissionService::new(inner, self.clone())
    }
}

debug_fields!([] AdmissionLayer, |it| style = it.settings.style);
