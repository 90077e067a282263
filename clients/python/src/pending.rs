//! Results for asyncio.
//!
//! A call that needs no I/O returns a [`Pending`] that is ready, and awaiting it does not leave the task. Any other call
//! runs on the runtime of the process; a thread of its own takes the results, because the thread of the connections must
//! never wait for the interpreter's lock.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;
use tokio::task::AbortHandle;

use crate::process::Process;

/// Maximum number of results that are delivered under one acquisition of the interpreter's lock.
const DELIVERED_AT_ONCE_MAX: usize = 256;

/// Longest time that the end of the interpreter waits for a delivery in progress.
const STOP_WAIT_MAX: Duration = Duration::from_secs(1);

/// A result that can be awaited. If the result is a context manager, so is this.
#[pyclass(frozen, module = "throttlekit")]
pub(crate) struct Pending(State);

enum State {
    Ready(PyResult<Py<PyAny>>),
    /// An `asyncio.Future`.
    Later(Py<PyAny>),
}

impl Pending {
    /// Creates one whose result is there.
    pub(crate) fn ready(result: PyResult<Py<PyAny>>) -> Self {
        Self(State::Ready(result))
    }

    /// Starts `work`, for the running event loop. `convert` makes the result, or the exception.
    pub(crate) fn spawn<T: Send + 'static>(
        py: Python<'_>,
        work: impl Future<Output = T> + Send + 'static,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Self> {
        static RUNNING_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let process = Process::get(py)?;
        let event_loop = RUNNING_LOOP.import(py, "asyncio", "get_running_loop")?.call0()?;
        let future = event_loop.call_method0("create_future")?;
        let (to, deliverer) = ((event_loop.unbind(), future.clone().unbind()), process.deliverer.clone());
        let task = process.handle().spawn(async move {
            let result = work.await;
            deliverer.send(Delivery { to, make: Box::new(move |py| convert(py, result)) });
        });
        future.call_method1("add_done_callback", (Cancel(task.abort_handle()),))?;
        Ok(Self(State::Later(future.unbind())))
    }

    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match &self.0 {
            State::Ready(Ok(value)) => Ok(value.clone_ref(py)),
            State::Ready(Err(error)) => Err(error.clone_ref(py)),
            State::Later(future) => future.call_method0(py, "result"),
        }
    }
}

#[pymethods]
impl Pending {
    fn __await__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match &self.0 {
            State::Ready(_) => Ready(self.result(py)).into_py_any(py),
            State::Later(future) => future.call_method0(py, "__await__"),
        }
    }

    fn __aenter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*exception))]
    fn __aexit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let exited = self.result(py)?.call_method1(py, "__exit__", exception.clone())?;
        Ok(Self::ready(Ok(exited)))
    }
}

/// The iterator of a result that is there.
#[pyclass(frozen)]
struct Ready(PyResult<Py<PyAny>>);

#[pymethods]
impl Ready {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<()> {
        Err(match &self.0 {
            Ok(value) => PyStopIteration::new_err((value.clone_ref(py),)),
            Err(error) => error.clone_ref(py),
        })
    }
}

/// Stops the work when its future was cancelled.
#[pyclass(frozen)]
struct Cancel(AbortHandle);

#[pymethods]
impl Cancel {
    fn __call__(&self, future: &Bound<'_, PyAny>) -> PyResult<()> {
        if future.call_method0("cancelled")?.extract()? {
            self.0.abort();
        }
        Ok(())
    }
}

/// Creates the object of a result, or the exception.
type Make = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// A result, and the event loop and future that it is for.
struct Delivery {
    to: (Py<PyAny>, Py<PyAny>),
    make: Make,
}

/// The thread that delivers results to event loops.
#[derive(Clone)]
pub(crate) struct Deliverer(Sender<Message>);

enum Message {
    Deliver(Delivery),
    /// Ends the thread, and then the sender.
    Stop(Sender<()>),
}

impl Deliverer {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (sender, receiver) = channel();
        thread::Builder::new().name("throttlekit-py".into()).spawn(move || deliver_all(&receiver))?;
        Ok(Self(sender))
    }

    /// Hands a result over. After the interpreter has ended nobody waits for it.
    fn send(&self, delivery: Delivery) {
        let _ = self.0.send(Message::Deliver(delivery));
    }

    /// Ends the thread, and waits for that. A thread that is attached while the interpreter ends would be unwound by it,
    /// which aborts the process.
    pub(crate) fn stop(&self, py: Python<'_>) {
        let (stopping, stopped) = channel();
        let _ = self.0.send(Message::Stop(stopping));
        py.detach(move || {
            // The sender is dropped when the thread has ended: the error means that it has, or that time is up.
            let _ = stopped.recv_timeout(STOP_WAIT_MAX);
        });
    }
}

fn deliver_all(receiver: &Receiver<Message>) {
    while let Ok(first) = receiver.recv() {
        let more = receiver.try_iter().take(DELIVERED_AT_ONCE_MAX - 1);
        let (mut batch, mut stopping) = (Vec::new(), None);
        for message in std::iter::once(first).chain(more) {
            match message {
                Message::Deliver(delivery) => batch.push(delivery),
                Message::Stop(sender) => stopping = Some(sender),
            }
        }
        if stopping.is_some() {
            return;
        }
        // `None` while the interpreter ends.
        if Python::try_attach(|py| batch.into_iter().for_each(|one| deliver(py, one))).is_none() {
            return;
        }
    }
}

/// Sets the result, from a callback of the event loop. A loop that was closed has nobody who waits. Nor has a future that
/// was cancelled: its result is dropped here, since its loop may be blocked, perhaps by a wait for what it holds.
fn deliver(py: Python<'_>, delivery: Delivery) {
    let Delivery { to: (event_loop, future), make } = delivery;
    let is_done = future.call_method0(py, "done").and_then(|done| done.extract(py));
    if is_done.unwrap_or(false) {
        return;
    }
    let set = Set(make(py));
    let _ = event_loop.call_method1(py, "call_soon_threadsafe", (set, future));
}

/// Sets the result of a future, unless it is done: then the result is dropped, and what it holds released.
#[pyclass(frozen)]
struct Set(PyResult<Py<PyAny>>);

#[pymethods]
impl Set {
    fn __call__(&self, py: Python<'_>, future: &Bound<'_, PyAny>) -> PyResult<()> {
        if future.call_method0("done")?.extract()? {
            return Ok(());
        }
        match &self.0 {
            Ok(value) => future.call_method1("set_result", (value,))?,
            Err(error) => future.call_method1("set_exception", (error.value(py),))?,
        };
        Ok(())
    }
}
