//! Builder of a layer.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, StatusCode};

use super::fallback::Fallback;
use super::header_style::HeaderStyle;
use super::key::KeyExtractor;
use super::layer::AdmissionLayer;
use super::plan::Plan;
use super::settings::{Choose, Settings};
use crate::BuildError;
use crate::admit::{Admit, Ending, Priority, StoreError};

/// Default name of the plan.
const NAME: &str = "default";

/// Describes an [`AdmissionLayer`].
pub struct AdmissionLayerBuilder {
    source: Source,
    settings: Settings,
}

/// The part that decides about requests.
enum Source {
    One { name: String, admit: Box<dyn Admit>, key: Box<dyn KeyExtractor> },
    Plans(Choose),
}

impl AdmissionLayerBuilder {
    pub(super) fn of(admit: Box<dyn Admit>, key: Box<dyn KeyExtractor>) -> Self {
        Self { source: Source::One { name: NAME.into(), admit, key }, settings: Settings::default() }
    }

    pub(super) fn choosing(choose: Choose) -> Self {
        Self { source: Source::Plans(choose), settings: Settings::default() }
    }

    /// Sets the name that clients see, in `RateLimit-Policy` and in denials: printable ASCII. Plans have names of their
    /// own. Default: `default`.
    pub fn name(mut self, new: &str) -> Self {
        if let Source::One { name, .. } = &mut self.source {
            *name = new.into();
        }
        self
    }

    /// Adds a further key, for limits by organization or model: the key of the layer has index 0, these follow.
    pub fn key(self, key: impl KeyExtractor) -> Self {
        self.with(|settings| settings.keys.push(Box::new(key)))
    }

    /// Sets the cost of a request. Default: 1.
    pub fn cost(self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.cost = Box::new(cost))
    }

    /// Settles the actual cost of a request from the status and the headers of its response, such as a header with the
    /// tokens used. `None` keeps what was charged. Called again with the trailers, as headers, of a gRPC call and of a
    /// response that announces them (`Trailer`).
    ///
    /// Needs something that gives back: a policy with a limit on its cost axis or a fair share.
    pub fn settle(
        self,
        actual: impl Fn(StatusCode, &HeaderMap) -> Option<u64> + Send + Sync + 'static,
    ) -> Self {
        self.with(|settings| {
            settings.settle = Some(Box::new(move |status, headers, _| actual(status, headers)));
        })
    }

    /// Charges only requests whose response is a failure, such as logins with a wrong password: the cost of all others
    /// is returned. While a request runs, it counts.
    ///
    /// The same as [`settle`](Self::settle) with 0 for responses that are no failures, and needs the same.
    pub fn count_failures(
        self,
        is_failure: impl Fn(StatusCode, &HeaderMap) -> bool + Send + Sync + 'static,
    ) -> Self {
        let actual = move |status, headers: &HeaderMap, charged| {
            Some(if is_failure(status, headers) { charged } else { 0 })
        };
        self.with(|settings| settings.settle = Some(Box::new(actual)))
    }

    /// Sets how the outcome of the work is derived from the status and the headers of a response. Called again with the
    /// trailers of a gRPC call, as headers, if those have its status.
    ///
    /// Default: 429, 503 and 504 are dropped; 2xx and 3xx are successes; all else is ignored. `grpc-status` takes
    /// precedence: `DEADLINE_EXCEEDED`, `RESOURCE_EXHAUSTED` and `UNAVAILABLE` are dropped.
    pub fn ending(self, ending: impl Fn(StatusCode, &HeaderMap) -> Ending + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.ending = Box::new(ending))
    }

    /// Sets the priority of a request, for guards. Default: the highest.
    pub fn priority(self, priority: impl Fn(&Parts) -> Priority + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.priority = Box::new(priority))
    }

    /// Sets which requests pass uncounted. They carry no decision and get no headers. Default: none.
    /// [`preflight_or_health`](super::preflight_or_health) selects CORS preflights and health checks.
    pub fn exempt(self, exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.exempt = Box::new(exempt))
    }

    /// Sets the action for requests without a key. Default: reject.
    pub fn on_missing_key(self, fallback: Fallback) -> Self {
        self.with(|settings| settings.on_missing_key = fallback)
    }

    /// Sets the action when no decision was possible, by the error. Default: reject. A limiter in process always
    /// decides.
    pub fn on_error(self, fallback: impl Fn(&StoreError) -> Fallback + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.on_error = Box::new(fallback))
    }

    /// Sets the headers of responses. Default: [`HeaderStyle::Standard`].
    pub fn headers(self, style: HeaderStyle) -> Self {
        self.with(|settings| settings.style = style)
    }

    /// Sets the maximum random delay that is added to `Retry-After`, as a fraction of it, in whole seconds: clients that
    /// were denied together do not return together. Never earlier than the request passes. Default: 0.1.
    pub fn retry_jitter(self, fraction: f64) -> Self {
        self.with(|settings| settings.retry_jitter = fraction)
    }

    /// Sets the timer, such as `tokio::time::sleep`, for requests that a shaper
    /// ([`Limit::leaky_bucket`](crate::Limit::leaky_bucket)) admits with a delay.
    ///
    /// Without it such a request starts at once and carries the wait in its [`Decision`](crate::Decision), for the
    /// service to act on: the shaper then bounds how many come, not how evenly.
    pub fn delay<F>(self, sleep: impl Fn(Duration) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.with(|settings| settings.delay = Some(Box::new(move |wait| Box::pin(sleep(wait)))))
    }

    /// Sets the maximum time that a request waits for a slot, by a timer such as `tokio::time::sleep`. Default: no wait.
    ///
    /// The guard limits how many may wait: [`GuardBuilder::queue_max`](crate::guard::GuardBuilder::queue_max).
    pub fn wait<F>(self, at_most: Duration, sleep: impl Fn(Duration) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.with(|settings| settings.wait = Some(Box::new(move || Box::pin(sleep(at_most)))))
    }

    fn with(mut self, set: impl FnOnce(&mut Settings)) -> Self {
        set(&mut self.settings);
        self
    }

    /// Builds the layer.
    ///
    /// Fails with [`BuildError::InvalidName`] for a name, a header or a network that is none, with
    /// [`BuildError::NotSettleable`] if costs are settled and nothing gives back, and with [`BuildError::OutOfRange`] for
    /// a jitter below 0 or above 1.
    pub fn build(self) -> Result<AdmissionLayer, BuildError> {
        let Self { source, settings } = self;
        settings.keys.iter().try_for_each(|key| key.validate())?;
        if !(0.0..=1.0).contains(&settings.retry_jitter) {
            return Err(BuildError::OutOfRange { setting: "retry_jitter", expected: "0.0 to 1.0" });
        }
        let choose: Choose = match source {
            Source::Plans(choose) => choose,
            Source::One { name, admit, key } => {
                key.validate()?;
                if settings.settle.is_some() && !admit.limits().iter().any(|limit| limit.refundable) {
                    return Err(BuildError::NotSettleable);
                }
                let plan = Plan::boxed(&name, admit)?;
                Box::new(move |request| Ok((plan.clone(), key.extract(request)?)))
            }
        };
        Ok(AdmissionLayer { choose: Arc::new(choose), settings: Arc::new(settings) })
    }
}

debug_fields!([] AdmissionLayerBuilder, |it| style = it.settings.style);
