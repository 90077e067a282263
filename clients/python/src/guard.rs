//! Concurrency limiters, in process and over a store.

use std::sync::Arc;
use std::time::Duration;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use throttlekit::admit::Admit;
use throttlekit::guard::KeyedGuard;
use throttlekit::{Axis, Retry, SharedPermit};
use tokio::time::timeout as within;

use crate::args::{Cost, Extra, OwnedCall, Span};
use crate::decision::Decision;
use crate::errors::{self, Failure};
use crate::limiter::{admitted, done};
use crate::pending::Pending;
use crate::permit::Permit;
use crate::process::Process;
use crate::shared::{Lazy, Shared};
use crate::store::StoreArg;
use crate::values::ConcurrencyArg;
use crate::waiting::{self, Turns};

/// Longest wait for a slot by default.
const WAIT_MAX_DEFAULT: Duration = Duration::from_secs(60);
const QUEUE_MAX_DEFAULT: u32 = 1_000;

/// A concurrency limiter for this process: at most `n` at a time, fixed or adaptive, in total or per key.
///
/// `queue_max` is the maximum number of waiters of each priority. Default: 1,000. Each number in `priorities` adds a
/// priority below the last, from which this many thousandths of the limit are withheld.
#[pyclass(frozen, module = "throttlekit")]
pub(crate) struct Guard(pub(crate) Slots);

/// A guard with or without keys.
#[derive(Clone)]
pub(crate) enum Slots {
    Total(throttlekit::Guard),
    PerKey(KeyedGuard),
}

#[pymethods]
impl Guard {
    #[new]
    #[pyo3(signature = (limit, *, queue_max=QUEUE_MAX_DEFAULT, priorities=Vec::new(), keys_max=None))]
    fn new(
        limit: ConcurrencyArg,
        queue_max: u32,
        priorities: Vec<u16>,
        keys_max: Option<usize>,
    ) -> PyResult<Self> {
        let mut builder = throttlekit::Guard::builder(limit.0.limit).queue_max(queue_max);
        for withheld in priorities {
            builder = builder.priority_below(withheld);
        }
        if let Some(keys) = keys_max {
            builder = builder.keys_max(keys);
        }
        let slots = if limit.0.is_per_key {
            builder.build_per_key().map(Slots::PerKey)
        } else {
            builder.build().map(Slots::Total)
        };
        Ok(Self(slots.map_err(|error| errors::build(&error))?))
    }

    /// Acquires a slot if one is free now. Returns `None` otherwise.
    #[pyo3(signature = (key=None, *, priority=None))]
    fn try_acquire(
        &self,
        py: Python<'_>,
        key: Option<&Bound<'_, PyAny>>,
        priority: Option<u8>,
    ) -> PyResult<Option<Permit>> {
        Ok(self.0.try_acquire(&request(py, key, priority)?).ok().map(Permit::new))
    }

    /// Acquires a slot, now or after waiting. Raises `Denied` if the queue is full, or if it takes longer than `timeout`.
    /// Default: 60 s.
    #[pyo3(signature = (key=None, *, priority=None, timeout=None))]
    fn acquire(
        &self,
        py: Python<'_>,
        key: Option<&Bound<'_, PyAny>>,
        priority: Option<u8>,
        timeout: Option<Span>,
    ) -> PyResult<Permit> {
        let call = request(py, key, priority)?;
        let acquired = match self.0.try_acquire(&call) {
            Ok(permit) => Ok(permit),
            Err(_) => Process::get(py)?.wait(py, self.0.clone().acquire(call, timeout))?,
        };
        acquired.map(Permit::new).map_err(denied)
    }

    /// Acquires a slot, for asyncio: `async with guard.acquire_async() as permit:`.
    #[pyo3(signature = (key=None, *, priority=None, timeout=None))]
    fn acquire_async(
        &self,
        py: Python<'_>,
        key: Option<&Bound<'_, PyAny>>,
        priority: Option<u8>,
        timeout: Option<Span>,
    ) -> PyResult<Pending> {
        let call = request(py, key, priority)?;
        match self.0.try_acquire(&call) {
            Ok(permit) => Ok(Pending::ready(Permit::new(permit).into_py_any(py))),
            Err(_) => Pending::spawn(py, self.0.clone().acquire(call, timeout), |py, acquired| {
                Permit::new(acquired.map_err(denied)?).into_py_any(py)
            }),
        }
    }

    /// Decides a call without admitting it.
    #[pyo3(signature = (key=None, *, priority=None))]
    fn peek(
        &self,
        py: Python<'_>,
        key: Option<&Bound<'_, PyAny>>,
        priority: Option<u8>,
    ) -> PyResult<Decision> {
        let call = request(py, key, priority)?;
        Ok(Decision(call.with(|call| self.0.peek(call))))
    }

    /// Sets a fixed limit. No effect on limits per key.
    fn set_limit(&self, limit: u32) {
        if let Slots::Total(guard) = &self.0 {
            guard.set_limit(limit);
        }
    }
}

impl Slots {
    /// Acquires a slot if one is free now.
    fn try_acquire(&self, call: &OwnedCall) -> Result<SharedPermit, throttlekit::Decision> {
        let acquired = call.with(|call| match self {
            Self::Total(guard) => guard.try_acquire_owned(call).map(SharedPermit::new),
            Self::PerKey(guard) => guard.try_acquire(call).map(SharedPermit::new),
        });
        acquired.map_err(|denied| denied.decision)
    }

    /// Acquires a slot, now or after waiting.
    async fn acquire(
        self,
        call: OwnedCall,
        timeout: Option<Span>,
    ) -> Result<SharedPermit, throttlekit::Decision> {
        let others = call.others();
        let (call, slots) = (call.call(&others), self.clone());
        let acquired = async {
            match slots {
                Self::Total(guard) => guard.acquire_owned(call).await.map(SharedPermit::new),
                Self::PerKey(guard) => guard.acquire(call).await.map(SharedPermit::new),
            }
        };
        match within(timeout.map_or(WAIT_MAX_DEFAULT, |timeout| timeout.0), acquired).await {
            Ok(acquired) => acquired.map_err(|denied| denied.decision),
            Err(_) => Err(throttlekit::Decision { retry_after: Retry::OnRelease, ..self.peek(call) }),
        }
    }

    fn peek(&self, call: throttlekit::Call<'_>) -> throttlekit::Decision {
        match self {
            Self::Total(guard) => guard.peek(call),
            Self::PerKey(guard) => guard.peek(call),
        }
    }
}

fn denied(decision: throttlekit::Decision) -> PyErr {
    errors::denied(Some(Axis::Concurrency), throttlekit::Decision { allowed: false, ..decision })
}

/// Returns a request for a slot.
fn request(py: Python<'_>, key: Option<&Bound<'_, PyAny>>, priority: Option<u8>) -> PyResult<OwnedCall> {
    let none = py.None().into_bound(py);
    OwnedCall::new(key.unwrap_or(&none), Cost::ONE, Extra { priority, ..Extra::default() })
}

/// A concurrency limiter for several processes, counted on a store: at most `n` at a time in all of them.
///
/// A slot is held under a lease that heartbeats extend. If a process dies, its slots are free again after `lease`.
/// Default: 30 s. With `divided=True` each process admits its share without a call to the store.
#[pyclass(frozen, module = "throttlekit")]
pub(crate) struct SharedGuard(Shared<BuiltGuard>);

struct BuiltGuard {
    guard: throttlekit::SharedGuard,
    turns: Turns,
}

type LazyGuard = Lazy<BuiltGuard>;

#[pymethods]
impl SharedGuard {
    #[new]
    #[pyo3(signature = (store, name, limit, *, lease=None, divided=false))]
    fn new(
        py: Python<'_>,
        store: StoreArg,
        name: String,
        limit: ConcurrencyArg,
        lease: Option<Span>,
        divided: bool,
    ) -> PyResult<Self> {
        let shared = Shared::new(py, store.0, move |store| {
            let mut builder = throttlekit::SharedGuard::builder(store, &name, limit.0.limit);
            if let Some(Span(lease)) = lease {
                builder = builder.lease(lease);
            }
            let guard = if divided { builder.divided().build()? } else { builder.build()? };
            Ok(BuiltGuard { guard, turns: Turns::default() })
        });
        Ok(Self(shared?))
    }

    /// Requests a slot without waiting. The admission holds it; a denial states when to retry.
    #[pyo3(signature = (key=None, *, priority=None))]
    fn admit(
        &self,
        py: Python<'_>,
        key: Option<&Bound<'_, PyAny>>,
        priority: Option<u8>,
    ) -> PyResult<Py<PyAny>> {
        let entered = entered(self.0.lazy(py)?, request(py, key, priority)?);
        admitted(py, Process::get(py)?.wait(py, entered)?)
    }

    /// Requests a slot, for asyncio.
    #[pyo3(signature = (key=None, *, priority=None))]
    fn admit_async(
        &self,
        py: Python<'_>,
        key: Option<&Bound<'_, PyAny>>,
        priority: Option<u8>,
    ) -> PyResult<Pending> {
        Pending::spawn(py, entered(self.0.lazy(py)?, request(py, key, priority)?), admitted)
    }

    /// Acquires a slot, now or after waiting. Raises `Denied` if it takes longer than `timeout`. Default: 60 s.
    #[pyo3(signature = (key=None, *, priority=None, timeout=None))]
    fn acquire(
        &self,
        py: Python<'_>,
        key: Option<&Bound<'_, PyAny>>,
        priority: Option<u8>,
        timeout: Option<Span>,
    ) -> PyResult<Py<PyAny>> {
        let acquired = acquired(self.0.lazy(py)?, request(py, key, priority)?, timeout);
        permit(py, Process::get(py)?.wait(py, acquired)?)
    }

    /// Acquires a slot, for asyncio: `async with guard.acquire_async() as permit:`.
    #[pyo3(signature = (key=None, *, priority=None, timeout=None))]
    fn acquire_async(
        &self,
        py: Python<'_>,
        key: Option<&Bound<'_, PyAny>>,
        priority: Option<u8>,
        timeout: Option<Span>,
    ) -> PyResult<Pending> {
        Pending::spawn(py, acquired(self.0.lazy(py)?, request(py, key, priority)?, timeout), permit)
    }

    /// Decides a call without admitting it.
    #[pyo3(signature = (key=None))]
    fn peek(&self, py: Python<'_>, key: Option<&Bound<'_, PyAny>>) -> PyResult<Decision> {
        let peeked = peeked(self.0.lazy(py)?, request(py, key, None)?);
        Ok(Decision(Process::get(py)?.wait(py, peeked)??))
    }

    /// Decides a call without admitting it, for asyncio.
    #[pyo3(signature = (key=None))]
    fn peek_async(&self, py: Python<'_>, key: Option<&Bound<'_, PyAny>>) -> PyResult<Pending> {
        let peeked = peeked(self.0.lazy(py)?, request(py, key, None)?);
        Pending::spawn(py, peeked, |py, decision| Decision(decision?).into_py_any(py))
    }

    /// Returns this process's share of a divided limit. Call it before the process ends.
    #[pyo3(signature = (*, timeout=None))]
    fn close(&self, py: Python<'_>, timeout: Option<Span>) -> PyResult<()> {
        if self.0.built(py).is_none() {
            return Ok(());
        }
        Ok(Process::get(py)?.wait(py, closed(self.0.lazy(py)?, timeout))??)
    }

    /// Returns this process's share, for asyncio.
    #[pyo3(signature = (*, timeout=None))]
    fn close_async(&self, py: Python<'_>, timeout: Option<Span>) -> PyResult<Pending> {
        if self.0.built(py).is_none() {
            return Ok(Pending::ready(Ok(py.None())));
        }
        Pending::spawn(py, closed(self.0.lazy(py)?, timeout), done)
    }
}

async fn entered(lazy: LazyGuard, call: OwnedCall) -> Result<throttlekit::Admission, Failure> {
    let admitting = {
        let built = lazy.get().await?;
        call.with(|call| built.guard.admit(call))
    };
    Ok(admitting.await?)
}

async fn acquired(
    lazy: LazyGuard,
    call: OwnedCall,
    timeout: Option<Span>,
) -> Result<throttlekit::Admission, Failure> {
    let built = lazy.get().await?;
    let queue = built.turns.queue(|| Arc::new(built.guard.clone()));
    let wait_max = timeout.map_or(WAIT_MAX_DEFAULT, |timeout| timeout.0);
    waiting::ready(queue, call, Some(wait_max)).await.map_err(Failure::NotReady)
}

async fn peeked(lazy: LazyGuard, call: OwnedCall) -> Result<throttlekit::Decision, Failure> {
    let others = call.others();
    Ok(lazy.get().await?.guard.peek(call.call(&others)).await?)
}

/// Waits for the share to be returned. What is not returned in time expires.
async fn closed(lazy: LazyGuard, timeout: Option<Span>) -> Result<(), Failure> {
    let built = lazy.get().await?;
    let _ = within(timeout.map_or(WAIT_MAX_DEFAULT, |timeout| timeout.0), built.guard.close()).await;
    Ok(())
}

/// Returns the permit of an admission.
fn permit(py: Python<'_>, admission: Result<throttlekit::Admission, Failure>) -> PyResult<Py<PyAny>> {
    let admission = admission?;
    let (axis, decision) = (admission.denied_by(), admission.decision());
    match admission.permit {
        Some(permit) => Permit::new(permit).into_py_any(py),
        None => Err(errors::denied(axis, decision)),
    }
}
