//! The runtime of this process, and what must be rebuilt after a fork.
//!
//! A forked child has a copy of all memory and none of the threads: the runtime does not run, and connections belong to
//! the parent. So everything that depends on them is built for one process, and built again in another. What the parent
//! built is leaked in the child: dropping it would wait for threads that are not there.
//!
//! Locks of this module are taken only by threads that are attached to the interpreter, and never held while they detach.
//! `os.fork` holds the interpreter's lock too, so no such lock is held in a child.

use std::process;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyCFunction};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::timeout;

use crate::pending::Deliverer;

/// Number of forks between the first process and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

static PROCESS: Mutex<Option<Arc<Process>>> = Mutex::new(None);

/// Interval at which a thread that waits lets Python handle signals, such as Ctrl-C.
const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// The threads of this process.
pub(crate) struct Process {
    runtime: Runtime,
    /// Delivers results to event loops.
    pub(crate) deliverer: Deliverer,
    pid: u32,
}

/// Counts forks from now on, and stops the delivery of results before the interpreter ends.
pub(crate) fn watch(py: Python<'_>) -> PyResult<()> {
    let count = PyCFunction::new_closure(py, None, None, |_args, _kwargs| {
        FORKS.fetch_add(1, Relaxed);
    })?;
    let os = py.import("os")?;
    // Systems without `fork` have nothing to register.
    if os.hasattr("register_at_fork")? {
        os.call_method("register_at_fork", (), Some(&[("after_in_child", count)].into_py_dict(py)?))?;
    }
    let stop = PyCFunction::new_closure(py, None, None, |args, _kwargs| Process::stop(args.py()))?;
    py.import("atexit")?.call_method1("register", (stop,))?;
    Ok(())
}

impl Process {
    /// Returns the threads of this process, and starts them if it has none.
    pub(crate) fn get(_attached: Python<'_>) -> PyResult<Arc<Self>> {
        let mut current = lock(&PROCESS);
        let pid = process::id();
        if let Some(process) = current.as_ref().filter(|process| process.pid == pid) {
            return Ok(process.clone());
        }
        let started = Arc::new(Self::start(pid)?);
        std::mem::forget(current.replace(started.clone()));
        Ok(started)
    }

    /// Stops the delivery of results, if this process has started it.
    fn stop(py: Python<'_>) {
        let current = lock(&PROCESS).clone();
        if let Some(process) = current.filter(|process| process.pid == process::id()) {
            process.deliverer.stop(py);
        }
    }

    fn start(pid: u32) -> PyResult<Self> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).thread_name("throttlekit").enable_all();
        let failed = |error: std::io::Error| {
            PyRuntimeError::new_err(format!(
                "cannot start a thread: {error}: raise the thread limit of the process"
            ))
        };
        Ok(Self {
            runtime: builder.build().map_err(failed)?,
            deliverer: Deliverer::start().map_err(failed)?,
            pid,
        })
    }

    /// Returns a handle of the runtime.
    pub(crate) fn handle(&self) -> Handle {
        self.runtime.handle().clone()
    }

    /// Waits for a future with the interpreter's lock released. Its own deadline ends it; signals interrupt it.
    pub(crate) fn wait<T: Send>(&self, py: Python<'_>, work: impl Future<Output = T> + Send) -> PyResult<T> {
        let mut work = Box::pin(work);
        loop {
            let step =
                py.detach(|| self.runtime.block_on(async { timeout(SIGNALS_EVERY, work.as_mut()).await }));
            match step {
                Ok(done) => return Ok(done),
                Err(_) => py.check_signals()?,
            }
        }
    }
}

/// A value that is built once in each process.
pub(crate) struct PerProcess<T>(Mutex<Option<(u64, Arc<T>)>>);

impl<T> PerProcess<T> {
    /// Creates one with no value yet.
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Returns the value of this process, if it was built.
    #[inline]
    pub(crate) fn built(&self, _attached: Python<'_>) -> Option<Arc<T>> {
        let built = lock(&self.0);
        built.as_ref().filter(|(forks, _)| *forks == FORKS.load(Relaxed)).map(|(_, value)| value.clone())
    }

    /// Returns the value of this process, and builds it first if needed. Two threads may build at once; one value stays.
    pub(crate) fn get(&self, py: Python<'_>, build: impl FnOnce() -> PyResult<T>) -> PyResult<Arc<T>> {
        if let Some(value) = self.built(py) {
            return Ok(value);
        }
        let value = Arc::new(build()?);
        let mut built = lock(&self.0);
        let forks = FORKS.load(Relaxed);
        if let Some((_, first)) = built.as_ref().filter(|(of, _)| *of == forks) {
            return Ok(first.clone());
        }
        std::mem::forget(built.replace((forks, value.clone())));
        Ok(value)
    }
}

/// Locks. A panic while a lock is held leaves a value that is complete.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
