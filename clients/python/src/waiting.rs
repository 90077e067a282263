//! Waiting until a limiter admits.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pyo3::prelude::*;
use throttlekit::Admit;
use throttlekit::wait::{NotReady, Queue};

use crate::admission::Admission;
use crate::args::OwnedCall;
use crate::errors;
use crate::pending::Pending;
use crate::process::Process;

/// The queue in front of a limiter, which the first wait creates.
#[derive(Default)]
pub(crate) struct Turns(OnceLock<Queue<Arc<dyn Admit>>>);

impl Turns {
    /// Returns the queue in front of `limiter`, which must be the same in every call.
    pub(crate) fn queue(&self, limiter: impl FnOnce() -> Arc<dyn Admit>) -> Queue<Arc<dyn Admit>> {
        self.0.get_or_init(|| Queue::new(limiter())).clone()
    }
}

/// Waits with the interpreter's lock released.
pub(crate) fn wait(
    py: Python<'_>,
    queue: Queue<Arc<dyn Admit>>,
    call: OwnedCall,
    timeout: Option<Duration>,
) -> PyResult<Py<PyAny>> {
    let ready = Process::get(py)?.wait(py, ready(queue, call, timeout))?;
    converted(py, ready)
}

/// Waits in an event loop.
pub(crate) fn wait_async(
    py: Python<'_>,
    queue: Queue<Arc<dyn Admit>>,
    call: OwnedCall,
    timeout: Option<Duration>,
) -> PyResult<Pending> {
    Pending::spawn(py, ready(queue, call, timeout), converted)
}

/// Waits until the limiter admits the request, no longer than `timeout`.
pub(crate) async fn ready(
    queue: Queue<Arc<dyn Admit>>,
    call: OwnedCall,
    timeout: Option<Duration>,
) -> Result<throttlekit::Admission, NotReady> {
    let others = call.others();
    match timeout {
        Some(timeout) => queue.until_ready_timeout(call.call(&others), timeout).await,
        None => queue.until_ready(call.call(&others)).await,
    }
}

pub(crate) fn converted(
    py: Python<'_>,
    ready: Result<throttlekit::Admission, NotReady>,
) -> PyResult<Py<PyAny>> {
    Admission::object(py, ready.map_err(|error| errors::not_ready(&error))?)
}
