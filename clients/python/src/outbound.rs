//! Limits of calls to providers, which responses lower.

use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderName, HeaderValue, Response, StatusCode, response};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use throttlekit::admit::Ending;
use throttlekit::wait::NotReady;

use crate::args::{Cost, Extra, OwnedCall, Span};
use crate::errors::{self, Failure};
use crate::pending::Pending;
use crate::permit::ending;
use crate::process::Process;
use crate::shared::{Lazy, Shared};
use crate::store::{Backend, StoreArg};
use crate::values::ConcurrencyArg;

/// Limits of calls to a provider. A call waits for its turn; responses lower the limits, and never raise them above those
/// that are configured.
///
/// With a `store`, all processes that use the same name share the limits.
#[pyclass(frozen, module = "throttlekit")]
pub(crate) struct Outbound(Shared<throttlekit::outbound::Outbound>);

#[pymethods]
impl Outbound {
    #[new]
    #[pyo3(signature = (
        name, *, requests_per_minute=None, tokens_per_minute=None, requests_per_day=None, tokens_per_day=None,
        concurrency=None, max_wait=None, store=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        name: String,
        requests_per_minute: Option<u64>,
        tokens_per_minute: Option<u64>,
        requests_per_day: Option<u64>,
        tokens_per_day: Option<u64>,
        concurrency: Option<ConcurrencyArg>,
        max_wait: Option<Span>,
        store: Option<StoreArg>,
    ) -> PyResult<Self> {
        let is_shared = store.is_some();
        let store = store.map_or_else(|| "memory".into_pyobject(py)?.extract(), Ok)?;
        let shared = Shared::new(py, store.0, move |store: Backend| {
            let mut builder = if is_shared {
                throttlekit::outbound::Outbound::shared(store, &name)
            } else {
                throttlekit::outbound::Outbound::builder(&name)
            };
            if let Some(requests) = requests_per_minute {
                builder = builder.requests_per_minute(requests);
            }
            if let Some(tokens) = tokens_per_minute {
                builder = builder.tokens_per_minute(tokens);
            }
            if let Some(requests) = requests_per_day {
                builder = builder.requests_per_day(requests);
            }
            if let Some(tokens) = tokens_per_day {
                builder = builder.tokens_per_day(tokens);
            }
            if let Some(limit) = concurrency {
                builder = builder.concurrency(limit.0.limit);
            }
            if let Some(Span(wait)) = max_wait {
                builder = builder.max_wait(wait);
            }
            builder.build()
        });
        Ok(Self(shared?))
    }

    /// Waits until a call may be sent. `tokens` is the estimate of its tokens. Raises `NotReady` if that takes too long.
    #[pyo3(signature = (key=None, tokens=1))]
    fn until_ready(
        &self,
        py: Python<'_>,
        key: Option<&Bound<'_, PyAny>>,
        tokens: u64,
    ) -> PyResult<OutboundPermit> {
        let ready = ready(self.0.lazy(py)?, request(py, key, tokens)?);
        Ok(OutboundPermit::new(Process::get(py)?.wait(py, ready)??))
    }

    /// Waits until a call may be sent, for asyncio.
    #[pyo3(signature = (key=None, tokens=1))]
    fn until_ready_async(
        &self,
        py: Python<'_>,
        key: Option<&Bound<'_, PyAny>>,
        tokens: u64,
    ) -> PyResult<Pending> {
        let ready = ready(self.0.lazy(py)?, request(py, key, tokens)?);
        Pending::spawn(py, ready, |py, permit| OutboundPermit::new(permit?).into_py_any(py))
    }

    /// Number of calls that wait.
    #[getter]
    fn waiting(&self, py: Python<'_>) -> u64 {
        let cell = self.0.built(py);
        cell.as_ref().and_then(|cell| cell.get()).map_or(0, |outbound| outbound.stats().waiting)
    }
}

fn request(py: Python<'_>, key: Option<&Bound<'_, PyAny>>, tokens: u64) -> PyResult<OwnedCall> {
    let none = py.None().into_bound(py);
    OwnedCall::new(key.unwrap_or(&none), Cost::All(tokens), Extra::default())
}

async fn ready(
    lazy: Lazy<throttlekit::outbound::Outbound>,
    call: OwnedCall,
) -> Result<throttlekit::outbound::OutboundPermit, Failure> {
    let others = call.others();
    let ready = lazy.get().await?.until_ready(call.call(&others)).await;
    ready.map_err(|error: NotReady| Failure::NotReady(error))
}

/// Permission to send one call. Held until its response was read; use it in a `with` or an `async with` block.
#[pyclass(frozen, module = "throttlekit")]
pub(crate) struct OutboundPermit(Arc<Mutex<Option<throttlekit::outbound::OutboundPermit>>>);

impl OutboundPermit {
    fn new(permit: throttlekit::outbound::OutboundPermit) -> Self {
        Self(Arc::new(Mutex::new(Some(permit))))
    }

    fn with<T>(&self, then: impl FnOnce(&mut throttlekit::outbound::OutboundPermit) -> T) -> PyResult<T> {
        let mut permit = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        permit.as_mut().map(then).ok_or_else(|| errors::ended("permit"))
    }

    fn end(&self, ending: Ending) {
        let permit = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (permit, ending) {
            (None, _) => {}
            (Some(permit), Ending::Success) => permit.success(),
            (Some(permit), Ending::Dropped) => permit.dropped(),
            (Some(permit), Ending::Ignored) => permit.ignored(),
        }
    }
}

#[pymethods]
impl OutboundPermit {
    /// Learns from the status and the headers of a response, and from the body of a refusal. Returns true if the provider
    /// refused the call, which pauses the calls of its key.
    #[pyo3(signature = (status, headers, body=Vec::new()))]
    fn observe(&self, status: u16, headers: Vec<(String, String)>, body: Vec<u8>) -> PyResult<bool> {
        let parts = head(status, headers)?;
        self.with(|permit| permit.observe_body(&parts, &body).is_refusal())
    }

    /// Sets the number of tokens that the call took. Default: the estimate.
    fn settle(&self, tokens: u64) -> PyResult<()> {
        self.with(|permit| permit.settle(tokens))
    }

    /// Estimate of the call's tokens.
    #[getter]
    fn estimate(&self) -> PyResult<u64> {
        self.with(|permit| permit.estimate())
    }

    /// Ends the call as a success.
    fn success(&self) {
        self.end(Ending::Success);
    }

    /// Ends the call as dropped because the provider was overloaded.
    fn dropped(&self) {
        self.end(Ending::Dropped);
    }

    /// Ends the call as not sent: its tokens return.
    fn ignored(&self) {
        self.end(Ending::Ignored);
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, exception: &Bound<'_, PyTuple>) -> PyResult<bool> {
        self.end(ending(exception)?);
        Ok(false)
    }

    fn __aenter__(slf: Bound<'_, Self>) -> Pending {
        Pending::ready(Ok(slf.into_any().unbind()))
    }

    #[pyo3(signature = (*exception))]
    fn __aexit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<Pending> {
        self.end(ending(exception)?);
        Ok(Pending::ready(false.into_py_any(py)))
    }
}

/// Returns the head of a response. Headers that are not valid HTTP carry no limit, and are left out.
fn head(status: u16, headers: Vec<(String, String)>) -> PyResult<response::Parts> {
    let invalid = || PyValueError::new_err(format!("invalid status {status}: expected 100 to 999"));
    let (mut parts, ()) = Response::new(()).into_parts();
    parts.status = StatusCode::from_u16(status).map_err(|_| invalid())?;
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            parts.headers.append(name, value);
        }
    }
    Ok(parts)
}
