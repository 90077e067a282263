//! The state of a server, and its denials as they happen.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, UNIX_EPOCH};

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use throttlekit::StoreError;
use throttlekit_client::{Client, Denials};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::timeout as within;

use crate::args::Span;
use crate::errors::{self, Failure};
use crate::pending::Pending;
use crate::process::Process;

/// Denials of a server as they happen: an iterator, for `for` and for `async for`. It ends when the server does.
///
/// Closed at the end of its `with` or `async with` block, or when it is garbage-collected.
#[pyclass(frozen, module = "throttlekit")]
pub(crate) struct Watch {
    stream: Arc<Stream>,
    /// The process that opened the connection.
    pid: u32,
}

struct Stream {
    /// Locked while an event is awaited.
    denials: Mutex<Option<Denials>>,
    /// Has no permits: it ends waits when it is closed.
    closed: Semaphore,
}

pub(crate) async fn snapshot(client: Arc<Client>) -> Result<String, Failure> {
    Ok(client.snapshot_json().await?)
}

pub(crate) async fn watch(client: Arc<Client>, policy: String) -> Result<Denials, Failure> {
    Ok(client.watch(&policy).await?)
}

/// Returns the object of a JSON text.
pub(crate) fn parsed(py: Python<'_>, json: Result<String, Failure>) -> PyResult<Py<PyAny>> {
    Ok(py.import("json")?.call_method1("loads", (json?,))?.unbind())
}

impl Watch {
    pub(crate) fn new(_attached: Python<'_>, denials: Result<Denials, Failure>) -> PyResult<Self> {
        let stream = Stream { denials: Mutex::new(Some(denials?)), closed: Semaphore::new(0) };
        Ok(Self { stream: Arc::new(stream), pid: std::process::id() })
    }

    /// Returns the stream. A forked child has no connection of its parent.
    fn stream(&self) -> PyResult<Arc<Stream>> {
        if self.pid == std::process::id() { Ok(self.stream.clone()) } else { Err(errors::ended("watch")) }
    }
}

/// What a wait for a denial ends with: a denial, the end, or the end of its time.
enum Next {
    Denial(throttlekit_client::Denial),
    End,
    Timeout,
}

async fn next(stream: Arc<Stream>, timeout: Option<Duration>) -> Result<Next, Failure> {
    let event = match timeout {
        None => stream.next().await,
        Some(timeout) => match within(timeout, stream.next()).await {
            Ok(event) => event,
            Err(_) => return Ok(Next::Timeout),
        },
    };
    Ok(event.transpose()?.map_or(Next::End, Next::Denial))
}

impl Stream {
    /// Waits for the next denial, or until the stream ends or is closed.
    async fn next(&self) -> Option<Result<throttlekit_client::Denial, StoreError>> {
        let mut denials = self.denials.lock().await;
        let open = denials.as_mut().filter(|_| !self.closed.is_closed())?;
        let mut event = pin!(open.next());
        let mut closed = pin!(self.closed.acquire());
        poll_fn(|context| match closed.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending => event.as_mut().poll(context),
        })
        .await
    }

    /// Ends waits, and the subscription as soon as nobody waits.
    fn close(&self) {
        self.closed.close();
        if let Ok(mut denials) = self.denials.try_lock() {
            drop(denials.take());
        }
    }
}

/// Returns the denial, or `None` after the end or the timeout.
fn denial(next: Result<Next, Failure>) -> PyResult<Option<Denial>> {
    Ok(match next? {
        Next::Denial(denial) => Some(Denial(denial)),
        Next::End | Next::Timeout => None,
    })
}

#[pymethods]
impl Watch {
    /// Waits for the next denial. Returns `None` at the end of the stream, or after `timeout`. Default: no timeout.
    #[pyo3(signature = (*, timeout=None))]
    fn next(&self, py: Python<'_>, timeout: Option<Span>) -> PyResult<Option<Denial>> {
        denial(Process::get(py)?.wait(py, next(self.stream()?, timeout.map(|Span(timeout)| timeout)))?)
    }

    /// Waits for the next denial, for asyncio.
    #[pyo3(signature = (*, timeout=None))]
    fn next_async(&self, py: Python<'_>, timeout: Option<Span>) -> PyResult<Pending> {
        let next = next(self.stream()?, timeout.map(|Span(timeout)| timeout));
        Pending::spawn(py, next, |py, next| denial(next)?.into_py_any(py))
    }

    /// Ends the subscription, and a wait for a denial.
    fn close(&self) {
        self.stream.close();
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Denial>> {
        self.next(py, None)
    }

    fn __aiter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __anext__(&self, py: Python<'_>) -> PyResult<Pending> {
        Pending::spawn(py, next(self.stream()?, None), |py, next| match denial(next)? {
            Some(denial) => denial.into_py_any(py),
            None => Err(PyStopAsyncIteration::new_err(())),
        })
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) -> bool {
        self.close();
        false
    }

    fn __aenter__(slf: Bound<'_, Self>) -> Pending {
        Pending::ready(Ok(slf.into_any().unbind()))
    }

    #[pyo3(signature = (*_exception))]
    fn __aexit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> Pending {
        self.close();
        Pending::ready(false.into_py_any(py))
    }
}

/// One denial of a server.
#[pyclass(frozen, module = "throttlekit")]
pub(crate) struct Denial(throttlekit_client::Denial);

#[pymethods]
impl Denial {
    /// Time of the denial, by the server's clock.
    #[getter]
    fn at<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let at = UNIX_EPOCH + Duration::from_nanos(self.0.at.as_nanos());
        Ok(at.into_pyobject(py)?.into_any())
    }

    /// Policy that denied.
    #[getter]
    fn policy(&self) -> &str {
        &self.0.policy
    }

    /// Key that was denied. Hashed if the server is configured so.
    #[getter]
    fn key(&self) -> &str {
        &self.0.key
    }

    /// Axis that denied.
    #[getter]
    fn axis(&self) -> &str {
        &self.0.axis
    }

    /// Maximum of the limit.
    #[getter]
    fn limit(&self) -> u64 {
        self.0.limit
    }

    /// Units that were left.
    #[getter]
    fn remaining(&self) -> u64 {
        self.0.remaining
    }

    /// Wait that the caller was given, in milliseconds.
    #[getter]
    fn retry_after_ms(&self) -> u64 {
        self.0.retry_after_ms
    }

    fn __repr__(&self) -> String {
        let throttlekit_client::Denial { policy, key, axis, .. } = &self.0;
        format!("Denial(policy={policy:?}, key={key:?}, axis={axis:?})")
    }
}
