//! The layer and its options.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, StatusCode};
use tower_layer::Layer;

use super::GuardService;
use crate::guard::{Ending, Priority};
use crate::http::layer::{Delay, OfRequest};
use crate::{BootClock, Clock, Guard};

/// A tower layer that limits the number of concurrent requests.
///
/// Clones share the guard. See the [module](super) for details and an example.
pub struct GuardLayer<C: Clock = BootClock> {
    settings: Arc<Settings<C>>,
}

impl<C: Clock> GuardLayer<C> {
    /// Creates a layer in front of whatever this guard protects. Layers may share a guard.
    pub fn new(guard: Arc<Guard<C>>) -> Self {
        let settings = Settings {
            guard,
            priority: Arc::new(|_| Priority::default()),
            exempt: Arc::new(|_| false),
            ending: Arc::new(ending_of),
            wait: None,
        };
        Self { settings: Arc::new(settings) }
    }

    /// Sets the priority of a request. Default: the first.
    pub fn priority(self, priority: impl Fn(&Parts) -> Priority + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.priority = Arc::new(priority))
    }

    /// Sets which requests need no slot, such as health checks. Default: none.
    pub fn exempt(self, exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.exempt = Arc::new(exempt))
    }

    /// Sets how a response is classified, by its status and headers. Called again with the trailers of a gRPC call, as
    /// headers, if those have its status.
    pub fn ending(self, ending: impl Fn(StatusCode, &HeaderMap) -> Ending + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.ending = Arc::new(ending))
    }

    /// Sets the maximum time that a request waits for a slot, by a timer such as `tokio::time::sleep`. Default: no
    /// wait.
    ///
    /// The guard limits how many may wait: [`GuardBuilder::depth_max`](crate::guard::GuardBuilder::depth_max).
    pub fn wait<F>(self, most: Duration, sleep: impl Fn(Duration) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.with(|settings| settings.wait = Some(Arc::new(move || Box::pin(sleep(most)))))
    }

    fn with(mut self, set: impl FnOnce(&mut Settings<C>)) -> Self {
        set(Arc::make_mut(&mut self.settings));
        self
    }
}

fn ending_of(status: StatusCode, headers: &HeaderMap) -> Ending {
    if let Some(status) = headers.get(GRPC_STATUS) {
        return match status.as_bytes() {
            b"0" => Ending::Success,
            b"4" | b"8" | b"14" => Ending::Dropped, // DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNAVAILABLE
            _ => Ending::Ignored,
        };
    }
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            Ending::Dropped
        }
        status if status.is_success() || status.is_redirection() => Ending::Success,
        _ => Ending::Ignored,
    }
}

impl<S, C: Clock> Layer<S> for GuardLayer<C> {
    type Service = GuardService<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        GuardService::new(inner, Arc::clone(&self.settings))
    }
}

clone_fields!([C: Clock] GuardLayer<C>, settings);

debug_fields!([C: Clock] GuardLayer<C>);

/// Header with the outcome of a gRPC call, whose HTTP status is 200.
pub(super) const GRPC_STATUS: &str = "grpc-status";

/// Classifies a response.
pub(super) type OfResponse = Arc<dyn Fn(StatusCode, &HeaderMap) -> Ending + Send + Sync>;

pub(super) struct Settings<C: Clock> {
    pub(super) guard: Arc<Guard<C>>,
    pub(super) priority: OfRequest<Priority>,
    pub(super) exempt: OfRequest<bool>,
    pub(super) ending: OfResponse,
    pub(super) wait: Option<Arc<dyn Fn() -> Delay + Send + Sync>>,
}

clone_fields!([C: Clock] Settings<C>, guard, priority, exempt, ending, wait);
