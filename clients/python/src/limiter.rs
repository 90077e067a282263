//! Rate limiters, in process and over a store.

use std::num::NonZeroU32;
use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use throttlekit::leasing::{Batch, Leasing};
use throttlekit::store::DebitId;
use throttlekit::wait::Queue;
use throttlekit::{Admit, BuildError, Guarantee, OnOutage};

use crate::args::{Cost, Extra, OwnedCall, Span, owned_calls, with_call};
use crate::clock::{AnyClock, ManualClock};
use crate::decision::{Answer, Decision, Forecast, Receipt};
use crate::errors::{self, Failure};
use crate::pending::Pending;
use crate::process::Process;
use crate::rates::{Rates, RatesArg};
use crate::shared::{Lazy, Shared};
use crate::values::LimitArg;
use crate::waiting::{self, Turns};

/// A rate limiter for many keys, in this process.
///
/// `Limiter("100/minute")` limits each key. `limits` adds named limits, all of which must allow:
/// `limits={"daily": Budget.per_day(10_000)}`. A pair such as `(1, "1000/minute")` counts by the second key of the
/// request, which is then a tuple: `limiter.check(("alice", "acme"))`.
#[pyclass(frozen, module = "throttlekit")]
pub(crate) struct Limiter {
    inner: Arc<throttlekit::Limiter<AnyClock>>,
    turns: Turns,
}

#[pymethods]
impl Limiter {
    #[new]
    #[pyo3(signature = (limit, *, limits=None, any=false, memory_budget=None, expected_keys=None, clock=None))]
    fn new(
        limit: LimitArg,
        limits: Option<&Bound<'_, PyDict>>,
        any: bool,
        memory_budget: Option<usize>,
        expected_keys: Option<usize>,
        clock: Option<&Bound<'_, ManualClock>>,
    ) -> PyResult<Self> {
        let first = limit.limit()?;
        let named = named_limits(limits)?;
        let all: Vec<_> = std::iter::once(first).chain(named.iter().map(|named| named.limit)).collect();
        let clock = AnyClock::new(clock.map(Bound::get), &all);
        let mut builder = throttlekit::Limiter::builder(first).clock(clock);
        for NamedLimit { name, index, limit } in named {
            builder = builder.limit_by(index, &name, limit);
        }
        builder = if any { builder.any() } else { builder };
        if let Some(bytes) = memory_budget {
            builder = builder.memory_budget(bytes);
        }
        if let Some(keys) = expected_keys {
            builder = builder.expected_keys(keys);
        }
        let inner = Arc::new(builder.build().map_err(|error| errors::build(&error))?);
        Ok(Self { inner, turns: Turns::default() })
    }

    /// Checks one request, and charges it if allowed. A list of costs has one for each limit.
    #[pyo3(signature = (key, cost=Cost::ONE))]
    #[inline]
    fn check(&self, key: &Bound<'_, PyAny>, cost: Cost) -> PyResult<Decision> {
        with_call(key, &cost, |call| Decision(self.inner.check(call)))
    }

    /// Checks each request at one instant, in order. An item is a key, or a pair of a key and its cost.
    #[pyo3(signature = (keys, cost=Cost::ONE))]
    fn check_many(&self, keys: &Bound<'_, PyAny>, cost: Cost) -> PyResult<Vec<Decision>> {
        let calls = owned_calls(keys, &cost)?;
        let others: Vec<_> = calls.iter().map(OwnedCall::others).collect();
        let borrowed = calls.iter().zip(&others).map(|(call, others)| call.call(others));
        Ok(self.inner.check_many(borrowed).into_iter().map(Decision).collect())
    }

    /// Returns what a key has left, without charging.
    fn peek(&self, key: &Bound<'_, PyAny>) -> PyResult<Decision> {
        with_call(key, &Cost::ONE, |call| Decision(self.inner.peek(call)))
    }

    /// Returns what a key can spend at this cost, now and later.
    #[pyo3(signature = (key, cost=1))]
    fn forecast(&self, key: &Bound<'_, PyAny>, cost: u64) -> PyResult<Forecast> {
        with_call(key, &Cost::All(cost), |call| Forecast(self.inner.forecast(call)))
    }

    /// Forgets what a key has used.
    fn reset(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        with_call(key, &Cost::ONE, |call| self.inner.reset(call))
    }

    /// Waits until the request is admitted, in order of arrival for each key. Raises `NotReady` if that takes longer
    /// than `timeout`. Default: 60 s.
    #[pyo3(signature = (key, cost=Cost::ONE, *, timeout=None))]
    fn until_ready(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        cost: Cost,
        timeout: Option<Span>,
    ) -> PyResult<Py<PyAny>> {
        let call = OwnedCall::new(key, cost, Extra::default())?;
        waiting::wait(py, self.queue(), call, timeout.map(|timeout| timeout.0))
    }

    /// Waits like `until_ready`, for asyncio.
    #[pyo3(signature = (key, cost=Cost::ONE, *, timeout=None))]
    fn until_ready_async(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        cost: Cost,
        timeout: Option<Span>,
    ) -> PyResult<Pending> {
        let call = OwnedCall::new(key, cost, Extra::default())?;
        waiting::wait_async(py, self.queue(), call, timeout.map(|timeout| timeout.0))
    }
}

impl Limiter {
    fn queue(&self) -> Queue<Arc<dyn Admit>> {
        self.turns.queue(|| self.inner.clone())
    }
}

/// A limit with its name, and the index of the key that it counts by.
#[derive(Clone)]
struct NamedLimit {
    name: String,
    index: usize,
    limit: throttlekit::Limit,
}

fn named_limits(limits: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<NamedLimit>> {
    let Some(limits) = limits else { return Ok(Vec::new()) };
    let named = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let (index, limit): (usize, LimitArg) = match value.extract::<LimitArg>() {
            Ok(limit) => (0, limit),
            Err(error) => value.extract().map_err(|_| error)?,
        };
        Ok(NamedLimit { name: name.extract()?, index, limit: limit.limit()? })
    };
    limits.iter().map(named).collect()
}

/// The fallback while a store is unavailable, as an argument.
pub(crate) fn on_outage(choice: &str, nodes: Option<u32>) -> PyResult<OnOutage> {
    match (choice, nodes.and_then(NonZeroU32::new)) {
        ("closed", None) => Ok(OnOutage::Closed),
        ("open", None) => Ok(OnOutage::Open),
        ("local", Some(nodes)) => Ok(OnOutage::Local { nodes }),
        _ => Err(PyValueError::new_err(
            "invalid fallback: expected on_outage=\"closed\", \"open\", or \"local\" with nodes=n",
        )),
    }
}

/// A rate limit that several processes share, counted on a store.
///
/// Every process that names the same policy on the same store counts together, in Python and in Rust. With
/// `leased=True` units are fetched in batches and spent in this process; `"auto"` does so for keys with many requests;
/// `"cached_denials"` only remembers denials. `on_outage` decides while the store is unavailable: `"closed"` denies,
/// `"open"` allows, and `"local"` with `nodes=n` continues with one part in `n` of the limit.
///
/// With a `Client` instead of a store, units are leased from a policy of a server: `name` is that policy, which needs
/// `fleet: {}`, and `limit` its limit. Use `leased=True`. `peek`, `forecast`, `settle` and `reset` are not supported
/// then: use `Client.policy`.
#[pyclass(frozen, module = "throttlekit")]
pub(crate) struct SharedLimiter {
    shared: Shared<Built>,
    is_leased: bool,
}

struct Built {
    limiter: throttlekit::SharedLimiter<Rates>,
    rates: Rates,
    turns: Turns,
}

impl Built {
    /// Returns the guarantee of a decision from a lease: that of the store as of now.
    #[inline]
    fn guarantee(&self) -> Guarantee {
        throttlekit::store::Store::guarantee(&self.rates)
    }
}

/// Modes in which most requests need no call to the store.
#[derive(FromPyObject)]
enum LeasedArg {
    Flag(bool),
    Mode(String),
}

impl LeasedArg {
    fn leasing(self, batch: Option<u64>) -> PyResult<Option<Leasing>> {
        let leasing = match self {
            Self::Flag(false) => return Ok(None),
            Self::Flag(true) => Leasing::new(),
            Self::Mode(mode) if mode == "auto" => Leasing::auto(),
            Self::Mode(mode) if mode == "cached_denials" => Leasing::cached_denials(),
            Self::Mode(mode) => {
                return Err(PyValueError::new_err(format!(
                    "invalid mode {mode:?}: expected leased=True, \"auto\" or \"cached_denials\""
                )));
            }
        };
        Ok(Some(batch.map_or(leasing.clone(), |units| leasing.batch(Batch::Fixed(units)))))
    }
}

#[pymethods]
impl SharedLimiter {
    #[new]
    #[pyo3(signature = (
        store, name, limit, *, limits=None, any=false, leased=LeasedArg::Flag(false), batch=None,
        on_outage="closed", nodes=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        store: RatesArg,
        name: String,
        limit: LimitArg,
        limits: Option<&Bound<'_, PyDict>>,
        any: bool,
        leased: LeasedArg,
        batch: Option<u64>,
        on_outage: &str,
        nodes: Option<u32>,
    ) -> PyResult<Self> {
        let (first, named) = (limit.limit()?, named_limits(limits)?);
        let fallback = self::on_outage(on_outage, nodes)?;
        let leasing = leased.leasing(batch)?;
        let is_leased = leasing.is_some();
        let build = move |rates: Rates| -> Result<Built, BuildError> {
            let mut builder =
                throttlekit::SharedLimiter::builder(rates.clone(), &name, first).on_outage(fallback);
            for NamedLimit { name, index, limit } in named.clone() {
                builder = builder.limit_by(index, &name, limit);
            }
            builder = if any { builder.any() } else { builder };
            if let Some(leasing) = leasing.clone() {
                builder = builder.leased_with(leasing);
            }
            Ok(Built { limiter: builder.build()?, rates, turns: Turns::default() })
        };
        let shared = match store {
            RatesArg::Store(store) => Shared::new(py, store.0, move |store| build(Rates::Store(store))),
            RatesArg::Server(server) => {
                Shared::of_server(py, server, move |server| build(Rates::Server(server)))
            }
        };
        Ok(Self { shared: shared?, is_leased })
    }

    /// Checks one request, and charges it if allowed.
    #[pyo3(signature = (key, cost=Cost::ONE))]
    fn check(&self, py: Python<'_>, key: &Bound<'_, PyAny>, cost: Cost) -> PyResult<Py<PyAny>> {
        if let Some(answer) = self.check_held(py, key, &cost)? {
            return Ok(answer);
        }
        let checked = checked(self.shared.lazy(py)?, OwnedCall::new(key, cost, Extra::default())?);
        answered(py, Process::get(py)?.wait(py, checked)?)
    }

    /// Checks one request, for asyncio.
    #[pyo3(signature = (key, cost=Cost::ONE))]
    fn check_async(&self, py: Python<'_>, key: &Bound<'_, PyAny>, cost: Cost) -> PyResult<Pending> {
        if let Some(answer) = self.check_held(py, key, &cost)? {
            return Ok(Pending::ready(Ok(answer)));
        }
        let call = OwnedCall::new(key, cost, Extra::default())?;
        Pending::spawn(py, checked(self.shared.lazy(py)?, call), answered)
    }

    /// Checks a request with what this process holds or remembers. Returns `None` if that does not suffice. Never waits,
    /// and never decides if nothing is leased.
    #[pyo3(signature = (key, cost=Cost::ONE))]
    fn try_check(&self, py: Python<'_>, key: &Bound<'_, PyAny>, cost: Cost) -> PyResult<Option<Py<PyAny>>> {
        self.check_held(py, key, &cost)
    }

    /// Checks several requests, each independently, in one round trip. An item is a key, or a pair of a key and its cost.
    #[pyo3(signature = (keys, cost=Cost::ONE))]
    fn check_many(&self, py: Python<'_>, keys: &Bound<'_, PyAny>, cost: Cost) -> PyResult<Vec<Py<PyAny>>> {
        let all = checked_all(self.shared.lazy(py)?, owned_calls(keys, &cost)?);
        each_answered(py, Process::get(py)?.wait(py, all)?)
    }

    /// Checks several requests, for asyncio.
    #[pyo3(signature = (keys, cost=Cost::ONE))]
    fn check_many_async(&self, py: Python<'_>, keys: &Bound<'_, PyAny>, cost: Cost) -> PyResult<Pending> {
        let all = checked_all(self.shared.lazy(py)?, owned_calls(keys, &cost)?);
        Pending::spawn(py, all, |py, answers| each_answered(py, answers)?.into_py_any(py))
    }

    /// Returns what a key has left, without charging.
    fn peek(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let peeked = peeked(self.shared.lazy(py)?, OwnedCall::new(key, Cost::ONE, Extra::default())?);
        answered(py, Process::get(py)?.wait(py, peeked)?)
    }

    /// Returns what a key has left, for asyncio.
    fn peek_async(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Pending> {
        let call = OwnedCall::new(key, Cost::ONE, Extra::default())?;
        Pending::spawn(py, peeked(self.shared.lazy(py)?, call), answered)
    }

    /// Returns what a key can spend at this cost, now and later.
    #[pyo3(signature = (key, cost=1))]
    fn forecast(&self, py: Python<'_>, key: &Bound<'_, PyAny>, cost: u64) -> PyResult<Forecast> {
        let call = OwnedCall::new(key, Cost::All(cost), Extra::default())?;
        Ok(Forecast(Process::get(py)?.wait(py, forecast(self.shared.lazy(py)?, call))??))
    }

    /// Returns what a key can spend, for asyncio.
    #[pyo3(signature = (key, cost=1))]
    fn forecast_async(&self, py: Python<'_>, key: &Bound<'_, PyAny>, cost: u64) -> PyResult<Pending> {
        let call = OwnedCall::new(key, Cost::All(cost), Extra::default())?;
        Pending::spawn(py, forecast(self.shared.lazy(py)?, call), |py, forecast| {
            Forecast(forecast?).into_py_any(py)
        })
    }

    /// Charges a debit once, however often it is sent: `stream` names a stream of debits, `number` counts from 1.
    #[pyo3(signature = (key, cost, *, stream, number))]
    fn debit(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        cost: u64,
        stream: u128,
        number: u64,
    ) -> PyResult<Py<PyAny>> {
        let call = OwnedCall::new(key, Cost::All(cost), Extra::default())?;
        let debited = debited(self.shared.lazy(py)?, call, DebitId { stream, number });
        answered(py, Process::get(py)?.wait(py, debited)?)
    }

    /// Charges a debit once, for asyncio.
    #[pyo3(signature = (key, cost, *, stream, number))]
    fn debit_async(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        cost: u64,
        stream: u128,
        number: u64,
    ) -> PyResult<Pending> {
        let call = OwnedCall::new(key, Cost::All(cost), Extra::default())?;
        let debited = debited(self.shared.lazy(py)?, call, DebitId { stream, number });
        Pending::spawn(py, debited, answered)
    }

    /// Replaces the cost that was charged by the actual cost.
    fn settle(&self, py: Python<'_>, receipt: &Bound<'_, Receipt>, actual: u64) -> PyResult<()> {
        let settled = settled(self.shared.lazy(py)?, receipt.get().take()?, actual);
        Ok(Process::get(py)?.wait(py, settled)??)
    }

    /// Replaces the cost that was charged, for asyncio.
    fn settle_async(&self, py: Python<'_>, receipt: &Bound<'_, Receipt>, actual: u64) -> PyResult<Pending> {
        let settled = settled(self.shared.lazy(py)?, receipt.get().take()?, actual);
        Pending::spawn(py, settled, done)
    }

    /// Forgets what a key has used.
    fn reset(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let reset = reset(self.shared.lazy(py)?, OwnedCall::new(key, Cost::ONE, Extra::default())?);
        Ok(Process::get(py)?.wait(py, reset)??)
    }

    /// Forgets what a key has used, for asyncio.
    fn reset_async(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Pending> {
        let call = OwnedCall::new(key, Cost::ONE, Extra::default())?;
        Pending::spawn(py, reset(self.shared.lazy(py)?, call), done)
    }

    /// Waits until the request is admitted, in order of arrival for each key of this process. Raises `NotReady` if that
    /// takes longer than `timeout`. Default: 60 s.
    #[pyo3(signature = (key, cost=Cost::ONE, *, timeout=None))]
    fn until_ready(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        cost: Cost,
        timeout: Option<Span>,
    ) -> PyResult<Py<PyAny>> {
        let call = OwnedCall::new(key, cost, Extra::default())?;
        let ready = ready(self.shared.lazy(py)?, call, timeout);
        admitted(py, Process::get(py)?.wait(py, ready)?)
    }

    /// Waits like `until_ready`, for asyncio.
    #[pyo3(signature = (key, cost=Cost::ONE, *, timeout=None))]
    fn until_ready_async(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        cost: Cost,
        timeout: Option<Span>,
    ) -> PyResult<Pending> {
        let call = OwnedCall::new(key, cost, Extra::default())?;
        Pending::spawn(py, ready(self.shared.lazy(py)?, call, timeout), admitted)
    }

    /// Returns leased units to the store. Call it before the process ends; otherwise they expire.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.shared.built(py).is_none() {
            return Ok(());
        }
        let lazy = self.shared.lazy(py)?;
        Ok(Process::get(py)?.wait(py, closed(lazy))??)
    }

    /// Returns leased units, for asyncio.
    fn close_async(&self, py: Python<'_>) -> PyResult<Pending> {
        if self.shared.built(py).is_none() {
            return Ok(Pending::ready(Ok(py.None())));
        }
        Pending::spawn(py, closed(self.shared.lazy(py)?), done)
    }
}

impl SharedLimiter {
    /// Checks a request with what this process holds, if that suffices.
    #[inline]
    fn check_held(&self, py: Python<'_>, key: &Bound<'_, PyAny>, cost: &Cost) -> PyResult<Option<Py<PyAny>>> {
        if !self.is_leased {
            return Ok(None);
        }
        let Some(cell) = self.shared.built(py) else { return Ok(None) };
        let Some(built) = cell.get() else { return Ok(None) };
        let decision = with_call(key, cost, |call| built.limiter.try_check(call))?;
        decision.map(|decision| Answer::of_lease(py, decision, built.guarantee())).transpose()
    }
}

async fn checked(lazy: Lazy<Built>, call: OwnedCall) -> Result<throttlekit::Answer, Failure> {
    let others = call.others();
    Ok(lazy.get().await?.limiter.check(call.call(&others)).await?)
}

async fn checked_all(
    lazy: Lazy<Built>,
    calls: Vec<OwnedCall>,
) -> Result<Vec<Result<throttlekit::Answer, throttlekit::StoreError>>, Failure> {
    let others: Vec<_> = calls.iter().map(OwnedCall::others).collect();
    let borrowed: Vec<_> = calls.iter().zip(&others).map(|(call, others)| call.call(others)).collect();
    Ok(lazy.get().await?.limiter.check_many(borrowed).await)
}

async fn peeked(lazy: Lazy<Built>, call: OwnedCall) -> Result<throttlekit::Answer, Failure> {
    let others = call.others();
    Ok(lazy.get().await?.limiter.peek(call.call(&others)).await?)
}

async fn forecast(lazy: Lazy<Built>, call: OwnedCall) -> Result<throttlekit::rate::Forecast, Failure> {
    let others = call.others();
    Ok(lazy.get().await?.limiter.forecast(call.call(&others)).await?)
}

async fn debited(lazy: Lazy<Built>, call: OwnedCall, id: DebitId) -> Result<throttlekit::Answer, Failure> {
    let others = call.others();
    Ok(lazy.get().await?.limiter.debit(call.call(&others), id).await?)
}

async fn settled(
    lazy: Lazy<Built>,
    receipt: throttlekit::limiter::Receipt,
    actual: u64,
) -> Result<(), Failure> {
    Ok(lazy.get().await?.limiter.settle(receipt, actual).await?)
}

async fn reset(lazy: Lazy<Built>, call: OwnedCall) -> Result<(), Failure> {
    let others = call.others();
    Ok(lazy.get().await?.limiter.reset(call.call(&others)).await?)
}

async fn closed(lazy: Lazy<Built>) -> Result<(), Failure> {
    Ok(lazy.get().await?.limiter.close().await?)
}

async fn ready(
    lazy: Lazy<Built>,
    call: OwnedCall,
    timeout: Option<Span>,
) -> Result<throttlekit::Admission, Failure> {
    let built = lazy.get().await?;
    let queue = built.turns.queue(|| Arc::new(built.limiter.clone()));
    waiting::ready(queue, call, timeout.map(|timeout| timeout.0)).await.map_err(Failure::NotReady)
}

pub(crate) fn answered(py: Python<'_>, answer: Result<throttlekit::Answer, Failure>) -> PyResult<Py<PyAny>> {
    Answer::answered(py, answer?)
}

pub(crate) fn admitted(
    py: Python<'_>,
    admission: Result<throttlekit::Admission, Failure>,
) -> PyResult<Py<PyAny>> {
    crate::admission::Admission::object(py, admission?)
}

pub(crate) fn done(py: Python<'_>, done: Result<(), Failure>) -> PyResult<Py<PyAny>> {
    done?;
    Ok(py.None())
}

/// Returns the answer to each request. One that has none raises for all of them.
pub(crate) fn each_answered(
    py: Python<'_>,
    answers: Result<Vec<Result<throttlekit::Answer, throttlekit::StoreError>>, Failure>,
) -> PyResult<Vec<Py<PyAny>>> {
    let each = answers?.into_iter().map(|answer| answered(py, answer.map_err(Failure::Store)));
    each.collect()
}
