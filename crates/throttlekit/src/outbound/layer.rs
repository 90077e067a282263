//! The tower layer for clients.

use std::sync::Arc;

use http::request;
use http::response;
use tower_layer::Layer;

use super::builder::OutboundBuilder;
use super::handle::Outbound;
use super::layer_builder::OutboundLayerBuilder;
use super::retry::{NoRetries, Retries};
use super::service::OutboundService;
use crate::http::KeyExtractor;

/// A tower layer for clients: each request waits its turn, is sent, and its response is observed.
///
/// It works over any client of `http` types: those of hyper-util and tonic, and reqwest through an adapter such as
/// `tower-reqwest`. Clones share the limits.
///
/// ```
/// use http::{Request, Response};
/// use std::convert::Infallible;
/// use throttlekit::outbound::OutboundLayer;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// # let client = service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(String::new())));
/// let client = ServiceBuilder::new().layer(OutboundLayer::per_minute(500).tokens_per_minute(90_000).build()?).service(client);
///
/// let response = client.oneshot(Request::new(String::from("{}"))).await?;
/// # assert_eq!(response.status(), 200);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Tokens
///
/// A request counts as its [`EstimatedTokens`] if it has them among its extensions, or as what
/// [`estimate`](OutboundLayerBuilder::estimate) returns, or as a quarter of the bytes of its body. The tokens that it took
/// are read from `usage` in the body of its response, whole or streamed, as that is read.
///
/// # Refusals
///
/// A response with 429, 503 or 529, or a gRPC status of `RESOURCE_EXHAUSTED`, pauses all requests of its key for the time
/// that it states. It is returned as it is, or [retried](OutboundLayerBuilder::retry).
pub struct OutboundLayer<C = NoRetries> {
    pub(super) outbound: Outbound,
    pub(super) settings: Arc<Settings>,
    pub(super) retries: Arc<Retries<C>>,
}

/// An estimate of the tokens that a request takes, for its extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EstimatedTokens(pub u64);

/// Settings of a layer.
#[derive(Default)]
pub(super) struct Settings {
    /// Default: no key.
    pub(super) key: Option<Box<dyn KeyExtractor>>,
    pub(super) estimate: Option<Box<Estimate>>,
    pub(super) settle: Option<Box<Settle>>,
}

pub(super) type Estimate = dyn Fn(&request::Parts) -> u64 + Send + Sync;
pub(super) type Settle = dyn Fn(&response::Parts) -> Option<u64> + Send + Sync;

impl OutboundLayer {
    /// Creates a builder of a layer that sends this many requests by the minute, in this process.
    pub fn per_minute(requests: u64) -> OutboundLayerBuilder<OutboundBuilder> {
        OutboundLayerBuilder::new(Outbound::builder("outbound").requests_per_minute(requests))
    }

    /// Creates a layer with the defaults.
    pub fn new(outbound: Outbound) -> Self {
        let (settings, retries) = (Arc::default(), Arc::new(Retries::none()));
        Self { outbound, settings, retries }
    }

    /// Creates a builder of a layer with these limits.
    pub fn builder(outbound: Outbound) -> OutboundLayerBuilder {
        OutboundLayerBuilder::new(outbound)
    }
}

impl<C> OutboundLayer<C> {
    /// Returns the limits.
    pub fn outbound(&self) -> &Outbound {
        &self.outbound
    }
}

impl<C> Clone for OutboundLayer<C> {
    fn clone(&self) -> Self {
        let Self { outbound, settings, retries } = self;
        Self { outbound: outbound.clone(), settings: settings.clone(), retries: retries.clone() }
    }
}

impl<S, C> Layer<S> for OutboundLayer<C> {
    type Service = OutboundService<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        OutboundService::new(inner, self.clone())
    }
}

debug_fields!([C] OutboundLayer<C>, |it| outbound = it.outbound);
