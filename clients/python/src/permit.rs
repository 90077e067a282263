//! Permits: proof of admission, held while work runs.

use std::sync::{Arc, Mutex};

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use throttlekit::SharedPermit;
use throttlekit::admit::{Ending, LimitName};

use crate::args::Span;
use crate::decision::Decision;
use crate::errors;
use crate::pending::Pending;
use crate::process::Process;

/// Proof that a request was admitted. Held while its work runs; use it in a `with` or an `async with` block.
///
/// A block that ends normally ends the work as a success, and one that raises as dropped, except for a cancellation.
/// A permit that is garbage-collected ends as ignored.
#[pyclass(frozen, module = "throttlekit")]
pub(crate) struct Permit(Slot);

/// The permit, unless it has ended or a debit of it is in progress.
type Slot = Arc<Mutex<State>>;

enum State {
    Held(SharedPermit),
    /// A debit is in progress. The outcome, if the permit ended meanwhile.
    Debiting(Option<Ending>),
    Ended,
}

impl Permit {
    pub(crate) fn new(permit: SharedPermit) -> Self {
        Self(Arc::new(Mutex::new(State::Held(permit))))
    }

    fn end(&self, ending: Ending) {
        let ended = with(&self.0, |state| match state {
            State::Debiting(outcome) => {
                outcome.get_or_insert(ending);
                None
            }
            state => Some(std::mem::replace(state, State::Ended)),
        });
        if let Some(State::Held(permit)) = ended {
            end(permit, ending);
        }
    }

    fn read<T>(&self, read: impl FnOnce(&mut SharedPermit) -> T) -> PyResult<T> {
        with(&self.0, |state| match state {
            State::Held(permit) => Ok(read(permit)),
            State::Debiting(_) => Err(in_progress()),
            State::Ended => Err(errors::ended("permit")),
        })
    }

    /// Takes the permit out for a debit.
    fn take(&self) -> PyResult<Debit> {
        let permit = with(&self.0, |state| match std::mem::replace(state, State::Debiting(None)) {
            State::Held(permit) => Ok(permit),
            before => {
                let error =
                    if matches!(before, State::Ended) { errors::ended("permit") } else { in_progress() };
                *state = before;
                Err(error)
            }
        })?;
        Ok(Debit { permit: Some(permit), home: self.0.clone() })
    }
}

/// Ends the permit as the block that held it ended: with a success, a cancellation, or an error.
pub(crate) fn ending(exception: &Bound<'_, PyTuple>) -> PyResult<Ending> {
    let py = exception.py();
    let kind = exception.get_item(0)?;
    if kind.is_none() {
        return Ok(Ending::Success);
    }
    let cancelled = py.import("asyncio")?.getattr("CancelledError")?;
    let is_cancelled: bool = kind.cast::<pyo3::types::PyType>()?.is_subclass(&cancelled)?;
    Ok(if is_cancelled { Ending::Ignored } else { Ending::Dropped })
}

#[pymethods]
impl Permit {
    /// Decides a chunk of `units`, and charges it if allowed. Call it before the chunk is sent; stop after a denial.
    fn debit(&self, py: Python<'_>, units: u64) -> PyResult<Decision> {
        let debit = self.take()?;
        let decision = Process::get(py)?.wait(py, debit.run(units))?;
        decision.map(Decision).map_err(|error| errors::store(&error))
    }

    /// Decides a chunk, like `debit`, for asyncio.
    fn debit_async(&self, py: Python<'_>, units: u64) -> PyResult<Pending> {
        let debit = self.take()?;
        Pending::spawn(py, debit.run(units), |py, decision| match decision {
            Ok(decision) => Decision(decision).into_py_any(py),
            Err(error) => Err(errors::store(&error)),
        })
    }

    /// Sets the total use, settled when the permit ends.
    fn settle(&self, actual: u64) -> PyResult<()> {
        self.read(|permit| permit.settle(actual))
    }

    /// Name of the limit that denied the last chunk, if one did and has a name.
    #[getter]
    fn limit_name(&self) -> PyResult<Option<&'static str>> {
        self.read(|permit| permit.limit_name().map(LimitName::as_str))
    }

    /// Units counted so far.
    #[getter]
    fn used(&self) -> PyResult<u64> {
        self.read(|permit| permit.used())
    }

    /// Units reserved and not used yet.
    #[getter]
    fn reserved(&self) -> PyResult<u64> {
        self.read(|permit| permit.reserved())
    }

    /// Guarantee of the admission and of every chunk since, the weakest of them.
    #[getter]
    fn guarantee(&self) -> PyResult<&'static str> {
        self.read(|permit| permit.guarantee().label())
    }

    /// True if the work has to stop because its slot may be held by others.
    #[getter]
    fn is_fenced(&self) -> PyResult<bool> {
        self.read(|permit| permit.is_fenced())
    }

    /// True until the permit ends.
    #[getter]
    fn held(&self) -> bool {
        with(&self.0, |state| matches!(state, State::Held(_) | State::Debiting(None)))
    }

    /// Ends the work as a success. `after` is the latency that measures the load, such as the time to a first token.
    #[pyo3(signature = (*, after=None))]
    fn success(&self, after: Option<Span>) {
        if let Some(Span(latency)) = after {
            let held = with(&self.0, |state| match state {
                State::Held(_) => Some(std::mem::replace(state, State::Ended)),
                _ => None,
            });
            if let Some(State::Held(permit)) = held {
                return permit.success_after(latency);
            }
        }
        self.end(Ending::Success);
    }

    /// Ends the work as dropped because the backend was overloaded.
    fn dropped(&self) {
        self.end(Ending::Dropped);
    }

    /// Ends the work without a sample of the backend.
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

fn in_progress() -> PyErr {
    PyRuntimeError::new_err("a debit of this permit is in progress: await it first")
}

fn end(permit: SharedPermit, ending: Ending) {
    match ending {
        Ending::Success => permit.success(),
        Ending::Dropped => permit.dropped(),
        Ending::Ignored => permit.ignored(),
    }
}

/// Calls `then` with the state. The lock is held for a few instructions, by threads that need nothing else meanwhile.
fn with<T>(slot: &Slot, then: impl FnOnce(&mut State) -> T) -> T {
    then(&mut slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// A permit while a debit of it is in progress. Put back when that ends, also if it is cancelled.
struct Debit {
    permit: Option<SharedPermit>,
    home: Slot,
}

impl Debit {
    async fn run(mut self, units: u64) -> Result<throttlekit::Decision, throttlekit::StoreError> {
        match &mut self.permit {
            Some(permit) => permit.debit(units).await,
            None => Ok(throttlekit::rate::ALLOW_FULL),
        }
    }
}

impl Drop for Debit {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        let ended = with(&self.home, |state| match std::mem::replace(state, State::Ended) {
            State::Debiting(Some(ending)) => Some((permit, ending)),
            _ => {
                *state = State::Held(permit);
                None
            }
        });
        if let Some((permit, ending)) = ended {
            end(permit, ending);
        }
    }
}
