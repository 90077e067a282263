//! Token budgets for streams whose length is unknown at the start.

use std::sync::{Arc, Mutex};

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use throttlekit::budget::{Reserve, TokenStream as Stream};
use throttlekit::clock::BootClock;

use crate::args::{Cost, Extra, OwnedCall, Span};
use crate::decision::{Answer, Decision};
use crate::errors::{self, Failure};
use crate::limiter::{answered, done, on_outage};
use crate::pending::Pending;
use crate::process::Process;
use crate::shared::{Lazy, Shared};
use crate::store::{Backend, StoreArg};
use crate::values::LimitArg;

/// A token budget for each key, spent by streams whose length is unknown at the start.
///
/// `open` reserves tokens, `debit` spends them chunk by chunk, and the rest is returned when the stream ends. Counts in
/// this process, or on a `store`. `reserve` is the number of tokens reserved for each stream. Default: learned for each
/// key from the lengths of its streams.
#[pyclass(frozen, module = "throttlekit")]
pub(crate) struct TokenBudget(Shared<Budget>);

type Budget = throttlekit::budget::TokenBudget<Backend>;
type Opened = throttlekit::budget::Opened<Backend, BootClock>;

#[pymethods]
impl TokenBudget {
    #[new]
    #[pyo3(signature = (
        budget, *, store=None, name=String::from("tokens"), reserve=None, idle_timeout=None, on_outage="closed",
        nodes=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        budget: LimitArg,
        store: Option<StoreArg>,
        name: String,
        reserve: Option<u64>,
        idle_timeout: Option<Span>,
        on_outage: &str,
        nodes: Option<u32>,
    ) -> PyResult<Self> {
        let store = match store {
            Some(store) => store,
            None => "memory".into_pyobject(py)?.extract()?,
        };
        let fallback = self::on_outage(on_outage, nodes)?;
        let shared = Shared::new(py, store.0, move |store| {
            let mut builder = throttlekit::budget::TokenBudget::builder(store, &name, budget.tokens());
            if let Some(tokens) = reserve {
                builder = builder.reserve(Reserve::Fixed(tokens));
            }
            if let Some(Span(timeout)) = idle_timeout {
                builder = builder.idle_timeout(timeout);
            }
            builder.on_outage(fallback).build()
        });
        Ok(Self(shared?))
    }

    /// Opens a stream, and reserves tokens for it. `hint` is the expected number of tokens. The stream is true if it was
    /// admitted.
    #[pyo3(signature = (key, *, hint=None))]
    fn open(&self, py: Python<'_>, key: &Bound<'_, PyAny>, hint: Option<u64>) -> PyResult<Py<PyAny>> {
        let call = OwnedCall::new(key, Cost::ONE, Extra::default())?;
        opened(py, Process::get(py)?.wait(py, open(self.0.lazy(py)?, call, hint))?)
    }

    /// Opens a stream, for asyncio: `async with budget.open_async(key) as stream:`.
    #[pyo3(signature = (key, *, hint=None))]
    fn open_async(&self, py: Python<'_>, key: &Bound<'_, PyAny>, hint: Option<u64>) -> PyResult<Pending> {
        let call = OwnedCall::new(key, Cost::ONE, Extra::default())?;
        Pending::spawn(py, open(self.0.lazy(py)?, call, hint), opened)
    }

    /// Returns what a key has left, without charging. Tokens that are reserved count as used.
    fn peek(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let call = OwnedCall::new(key, Cost::ONE, Extra::default())?;
        answered(py, Process::get(py)?.wait(py, peeked(self.0.lazy(py)?, call))?)
    }

    /// Returns what a key has left, for asyncio.
    fn peek_async(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Pending> {
        let call = OwnedCall::new(key, Cost::ONE, Extra::default())?;
        Pending::spawn(py, peeked(self.0.lazy(py)?, call), answered)
    }
}

async fn open(lazy: Lazy<Budget>, call: OwnedCall, hint: Option<u64>) -> Result<Opened, Failure> {
    Ok(lazy.get().await?.open(call.key(), hint).await?)
}

async fn peeked(lazy: Lazy<Budget>, call: OwnedCall) -> Result<throttlekit::Answer, Failure> {
    Ok(lazy.get().await?.shared().peek(call.key()).await?)
}

fn opened(py: Python<'_>, opened: Result<Opened, Failure>) -> PyResult<Py<PyAny>> {
    let Opened { answer, stream } = opened?;
    let decision = answer.decision;
    let stream = Arc::new(Mutex::new(stream.map_or(State::Ended, |stream| State::Open(Box::new(stream)))));
    let stream = TokenStream { answer: Answer::answered(py, answer)?, stream };
    let object = PyClassInitializer::from(Decision(decision)).add_subclass(stream);
    Ok(Py::new(py, object)?.into_any())
}

/// A stream of tokens, with the decision on it. Use it in a `with` or an `async with` block: the end returns what was
/// reserved and not used.
#[pyclass(frozen, extends = Decision, module = "throttlekit")]
pub(crate) struct TokenStream {
    answer: Py<PyAny>,
    stream: Slot,
}

type Slot = Arc<Mutex<State>>;

enum State {
    Open(Box<Stream<Backend, BootClock>>),
    /// A debit is in progress; true if the stream ended meanwhile.
    Debiting(bool),
    Ended,
}

#[pymethods]
impl TokenStream {
    /// Answer of the store, with its guarantee.
    #[getter]
    fn answer(&self, py: Python<'_>) -> Py<PyAny> {
        self.answer.clone_ref(py)
    }

    /// Decides a chunk of tokens, and charges it if allowed. Call it before the chunk is sent; stop after a denial.
    fn debit(&self, py: Python<'_>, tokens: u64) -> PyResult<Py<PyAny>> {
        let debit = self.take()?;
        answered(py, Process::get(py)?.wait(py, debit.run(tokens))?)
    }

    /// Decides a chunk of tokens, for asyncio.
    fn debit_async(&self, py: Python<'_>, tokens: u64) -> PyResult<Pending> {
        Pending::spawn(py, self.take()?.run(tokens), answered)
    }

    /// Ends the stream and waits until the rest of its reservation is returned.
    fn settle(&self, py: Python<'_>) -> PyResult<()> {
        let Some(stream) = self.end() else { return Ok(()) };
        Ok(Process::get(py)?.wait(py, async { stream.settle().await.map_err(Failure::Store) })??)
    }

    /// Ends the stream and waits, for asyncio.
    fn settle_async(&self, py: Python<'_>) -> PyResult<Pending> {
        let Some(stream) = self.end() else { return Ok(Pending::ready(Ok(py.None()))) };
        Pending::spawn(py, async { stream.settle().await.map_err(Failure::Store) }, done)
    }

    /// Tokens allowed so far.
    #[getter]
    fn produced(&self) -> PyResult<u64> {
        self.read(|stream| stream.produced())
    }

    /// Reserved tokens that can still be spent.
    #[getter]
    fn reserved(&self) -> PyResult<u64> {
        self.read(|stream| stream.reserved())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) -> bool {
        drop(self.end());
        false
    }

    fn __aenter__(slf: Bound<'_, Self>) -> Pending {
        Pending::ready(Ok(slf.into_any().unbind()))
    }

    #[pyo3(signature = (*_exception))]
    fn __aexit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> Pending {
        drop(self.end());
        Pending::ready(false.into_py_any(py))
    }
}

impl TokenStream {
    /// Takes the stream out, if it is open. A debit in progress ends it afterwards.
    fn end(&self) -> Option<Box<Stream<Backend, BootClock>>> {
        with(&self.stream, |state| match std::mem::replace(state, State::Ended) {
            State::Open(stream) => Some(stream),
            State::Debiting(_) => {
                *state = State::Debiting(true);
                None
            }
            State::Ended => None,
        })
    }

    fn read<T>(&self, read: impl FnOnce(&Stream<Backend, BootClock>) -> T) -> PyResult<T> {
        with(&self.stream, |state| match state {
            State::Open(stream) => Ok(read(stream)),
            State::Debiting(_) => Err(in_progress()),
            State::Ended => Err(errors::ended("stream")),
        })
    }

    fn take(&self) -> PyResult<Debit> {
        let stream = with(&self.stream, |state| match std::mem::replace(state, State::Debiting(false)) {
            State::Open(stream) => Ok(stream),
            before => {
                let error =
                    if matches!(before, State::Ended) { errors::ended("stream") } else { in_progress() };
                *state = before;
                Err(error)
            }
        })?;
        Ok(Debit { stream: Some(stream), home: self.stream.clone() })
    }
}

fn in_progress() -> PyErr {
    PyRuntimeError::new_err("a debit of this stream is in progress: await it first")
}

fn with<T>(slot: &Slot, then: impl FnOnce(&mut State) -> T) -> T {
    then(&mut slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// A stream while a debit of it is in progress. Put back when that ends, also if it is cancelled.
struct Debit {
    stream: Option<Box<Stream<Backend, BootClock>>>,
    home: Slot,
}

impl Debit {
    async fn run(mut self, tokens: u64) -> Result<throttlekit::Answer, Failure> {
        let Some(stream) = &mut self.stream else {
            return Err(Failure::Store(throttlekit::StoreError::rejected("the stream has ended")));
        };
        Ok(stream.debit(tokens).await?)
    }
}

impl Drop for Debit {
    fn drop(&mut self) {
        let stream = self.stream.take();
        let ended = with(&self.home, |state| match (std::mem::replace(state, State::Ended), stream) {
            (State::Debiting(false), Some(stream)) => {
                *state = State::Open(stream);
                None
            }
            (_, stream) => stream,
        });
        drop(ended);
    }
}
