//! Settings of a layer.

use std::pin::Pin;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, StatusCode};

use super::fallback::Fallback;
use super::header_style::HeaderStyle;
use super::key::{Key, KeyExtractor, MissingKey};
use super::outcome::ending_of;
use super::plan::Plan;
use crate::admit::{Ending, Priority, StoreError};

/// Function of a request.
pub(super) type OfRequest<T> = Box<dyn Fn(&Parts) -> T + Send + Sync>;

/// Function of the status of a response and its headers, or its trailers.
pub(super) type OfResponse<T> = Box<dyn Fn(StatusCode, &HeaderMap) -> T + Send + Sync>;

/// The actual cost, from a response and what was charged.
pub(super) type Settle = Box<dyn Fn(StatusCode, &HeaderMap, u64) -> Option<u64> + Send + Sync>;

/// Chooses the plan of a request, and its key.
pub(super) type Choose = OfRequest<Result<(Plan, Key), MissingKey>>;

/// Future that completes after a wait.
pub(super) type Delay = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(super) struct Settings {
    /// Further keys of each request.
    pub(super) keys: Vec<Box<dyn KeyExtractor>>,
    pub(super) cost: OfRequest<u64>,
    pub(super) priority: OfRequest<Priority>,
    pub(super) exempt: OfRequest<bool>,
    pub(super) on_missing_key: Fallback,
    pub(super) on_error: Box<dyn Fn(&StoreError) -> Fallback + Send + Sync>,
    pub(super) ending: OfResponse<Ending>,
    pub(super) settle: Option<Settle>,
    pub(super) style: HeaderStyle,
    pub(super) retry_jitter: f64,
    /// Timer for requests that a shaper delays.
    pub(super) delay: Option<Box<dyn Fn(Duration) -> Delay + Send + Sync>>,
    /// Timer for requests that wait for a slot.
    pub(super) wait: Option<Box<dyn Fn() -> Delay + Send + Sync>>,
}

/// Default of [`AdmissionLayerBuilder::retry_jitter`](super::AdmissionLayerBuilder::retry_jitter).
const RETRY_JITTER: f64 = 0.1;

impl Default for Settings {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            cost: Box::new(|_| 1),
            priority: Box::new(|_| Priority::default()),
            exempt: Box::new(|_| false),
            on_missing_key: Fallback::default(),
            on_error: Box::new(|_| Fallback::default()),
            ending: Box::new(ending_of),
            settle: None,
            style: HeaderStyle::default(),
            retry_jitter: RETRY_JITTER,
            delay: None,
            wait: None,
        }
    }
}
