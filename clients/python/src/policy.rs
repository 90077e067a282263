//! Policies: every axis that a request must pass.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use throttlekit::admit::{Admit, Dimension};
use throttlekit::{Axis, BuildError, Concurrency, Limit};

use crate::admission::Admission;
use crate::args::{Cost, Extra, OwnedCall, Span};
use crate::clock::{AnyClock, ManualClock};
use crate::errors::{self, Failure};
use crate::fair::FairLimiter;
use crate::guard::{Guard, Slots};
use crate::limiter::{admitted, on_outage};
use crate::pending::Pending;
use crate::process::Process;
use crate::shared::{Lazy, Shared};
use crate::store::StoreArg;
use crate::values::{Budget, ConcurrencyArg, LimitArg};
use crate::waiting::{self, Turns};

/// Every axis that a request must pass, in this process: one call, one decision, one permit.
///
/// `concurrency` is a number, a `Concurrency` or a `Guard`; `rate` limits how often each key may call; `tokens` limits
/// how much each key may use; `fair` is a `Budget` or a `FairLimiter` that all callers share. `limits` adds further
/// limits: `[("rate", 1, "1000/minute")]` counts calls by the second key of the request.
#[pyclass(frozen, module = "throttlekit")]
pub(crate) struct Policy {
    inner: Arc<throttlekit::Policy<AnyClock>>,
    turns: Turns,
}

/// Axis, index of the key, and limit.
type Further = (String, usize, LimitArg);

/// The concurrency axis of a policy.
#[derive(FromPyObject)]
enum ConcurrencyAxis<'py> {
    #[pyo3(transparent)]
    Guard(Bound<'py, Guard>),
    #[pyo3(transparent)]
    Limit(ConcurrencyArg),
}

/// The fairness axis of a policy.
#[derive(FromPyObject)]
enum FairAxis<'py> {
    #[pyo3(transparent)]
    Limiter(Bound<'py, FairLimiter>),
    #[pyo3(transparent)]
    Budget(Bound<'py, Budget>),
}

#[pymethods]
impl Policy {
    #[new]
    #[pyo3(signature = (
        name, *, concurrency=None, rate=None, tokens=None, fair=None, limits=Vec::new(), clock=None
    ))]
    fn new(
        name: &str,
        concurrency: Option<ConcurrencyAxis<'_>>,
        rate: Option<LimitArg>,
        tokens: Option<LimitArg>,
        fair: Option<FairAxis<'_>>,
        limits: Vec<Further>,
        clock: Option<&Bound<'_, ManualClock>>,
    ) -> PyResult<Self> {
        let further = further(limits)?;
        let rate = rate.map(LimitArg::limit).transpose()?;
        // A limit of tokens may follow the calendar, as a hard quota of the same budget does.
        let quota = tokens.map(LimitArg::limit).transpose()?;
        let all: Vec<Limit> =
            rate.into_iter().chain(quota).chain(further.iter().map(|(_, limit)| *limit)).collect();
        let mut builder =
            throttlekit::Policy::builder(name).clock(AnyClock::new(clock.map(Bound::get), &all));
        builder = match concurrency {
            None => builder,
            Some(ConcurrencyAxis::Limit(limit)) => builder.concurrency(limit.0.limit),
            Some(ConcurrencyAxis::Guard(guard)) => match guard.get().0.clone() {
                Slots::Total(guard) => builder.guard(guard),
                Slots::PerKey(guard) => builder.guard(guard),
            },
        };
        if let Some(rate) = rate {
            builder = builder.rate(rate);
        }
        if let Some(tokens) = tokens {
            builder = builder.tokens(tokens.tokens());
        }
        for (on, limit) in further {
            builder = builder.limit(on, limit);
        }
        builder = match fair {
            None => builder,
            Some(FairAxis::Budget(budget)) => builder.fair(budget.get().0),
            Some(FairAxis::Limiter(limiter)) => builder.fair_limiter(limiter.get().0.clone()),
        };
        let inner = Arc::new(builder.build().map_err(|error| errors::build(&error))?);
        Ok(Self { inner, turns: Turns::default() })
    }

    /// Decides one request over all axes, and charges it if all allow. `cost` is reserved; the permit settles it.
    #[pyo3(signature = (key, cost=1, *, weight=None, priority=None))]
    fn admit(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        cost: u64,
        weight: Option<u64>,
        priority: Option<u8>,
    ) -> PyResult<Py<PyAny>> {
        let call = request(key, cost, weight, priority)?;
        match call.with(|call| self.inner.admit(call)).now_or_later() {
            Ok(admission) => Admission::of(py, admission),
            Err(later) => Admission::of(py, Process::get(py)?.wait(py, later)?),
        }
    }

    /// Waits until the request is admitted. Raises `NotReady` if that takes longer than `timeout`. Default: 60 s.
    #[pyo3(signature = (key, cost=1, *, weight=None, priority=None, timeout=None))]
    fn until_ready(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        cost: u64,
        weight: Option<u64>,
        priority: Option<u8>,
        timeout: Option<Span>,
    ) -> PyResult<Py<PyAny>> {
        let call = request(key, cost, weight, priority)?;
        let queue = self.turns.queue(|| Arc::new(self.inner.clone()));
        waiting::wait(py, queue, call, timeout.map(|timeout| timeout.0))
    }

    /// Waits like `until_ready`, for asyncio.
    #[pyo3(signature = (key, cost=1, *, weight=None, priority=None, timeout=None))]
    fn until_ready_async(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        cost: u64,
        weight: Option<u64>,
        priority: Option<u8>,
        timeout: Option<Span>,
    ) -> PyResult<Pending> {
        let call = request(key, cost, weight, priority)?;
        let queue = self.turns.queue(|| Arc::new(self.inner.clone()));
        waiting::wait_async(py, queue, call, timeout.map(|timeout| timeout.0))
    }

    /// Name of the policy.
    #[getter]
    fn name(&self) -> &str {
        self.inner.name()
    }
}

fn request(
    key: &Bound<'_, PyAny>,
    cost: u64,
    weight: Option<u64>,
    priority: Option<u8>,
) -> PyResult<OwnedCall> {
    OwnedCall::new(key, Cost::All(cost), Extra { weight, priority, ..Extra::default() })
}

fn further(limits: Vec<Further>) -> PyResult<Vec<(Dimension, Limit)>> {
    let one = |(axis, index, limit): Further| {
        let axis = match &*axis {
            "rate" => Axis::Rate,
            "cost" => Axis::Cost,
            _ => {
                return Err(PyValueError::new_err(format!(
                    "invalid axis {axis:?}: expected \"rate\" or \"cost\""
                )));
            }
        };
        Ok((axis.by(index), limit.limit()?))
    };
    limits.into_iter().map(one).collect()
}

/// Every axis that a request must pass, counted on a store that several processes share.
#[pyclass(frozen, module = "throttlekit")]
pub(crate) struct SharedPolicy(Shared<BuiltPolicy>);

struct BuiltPolicy {
    policy: Arc<throttlekit::SharedPolicy>,
    turns: Turns,
}

type LazyPolicy = Lazy<BuiltPolicy>;

#[pymethods]
impl SharedPolicy {
    #[new]
    #[pyo3(signature = (
        store, name, *, concurrency=None, rate=None, tokens=None, fair=None, limits=Vec::new(),
        on_outage="closed", nodes=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        store: StoreArg,
        name: String,
        concurrency: Option<ConcurrencyArg>,
        rate: Option<LimitArg>,
        tokens: Option<LimitArg>,
        fair: Option<Bound<'_, Budget>>,
        limits: Vec<Further>,
        on_outage: &str,
        nodes: Option<u32>,
    ) -> PyResult<Self> {
        let (rate, further) = (rate.map(LimitArg::limit).transpose()?, further(limits)?);
        let (fair, fallback) = (fair.map(|budget| budget.get().0), self::on_outage(on_outage, nodes)?);
        let concurrency: Option<Concurrency> = concurrency.map(|limit| limit.0.limit);
        let shared = Shared::new(py, store.0, move |store| {
            let mut builder = throttlekit::SharedPolicy::builder(store, &name).on_outage(fallback);
            if let Some(limit) = concurrency {
                builder = builder.concurrency(limit);
            }
            if let Some(rate) = rate {
                builder = builder.rate(rate);
            }
            if let Some(tokens) = tokens {
                builder = builder.tokens(tokens.tokens());
            }
            for &(on, limit) in &further {
                builder = builder.limit(on, limit);
            }
            if let Some(budget) = fair {
                builder = builder.fair(budget);
            }
            let policy = Arc::new(builder.build()?);
            Ok::<_, BuildError>(BuiltPolicy { policy, turns: Turns::default() })
        });
        Ok(Self(shared?))
    }

    /// Decides one request over all axes, and charges it if all allow. `cost` is reserved; the permit settles it.
    #[pyo3(signature = (key, cost=1, *, weight=None, priority=None))]
    fn admit(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        cost: u64,
        weight: Option<u64>,
        priority: Option<u8>,
    ) -> PyResult<Py<PyAny>> {
        let entered = entered(self.0.lazy(py)?, request(key, cost, weight, priority)?);
        admitted(py, Process::get(py)?.wait(py, entered)?)
    }

    /// Decides one request, for asyncio: `async with policy.admit_async(key) as admission:`.
    #[pyo3(signature = (key, cost=1, *, weight=None, priority=None))]
    fn admit_async(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        cost: u64,
        weight: Option<u64>,
        priority: Option<u8>,
    ) -> PyResult<Pending> {
        Pending::spawn(py, entered(self.0.lazy(py)?, request(key, cost, weight, priority)?), admitted)
    }

    /// Waits until the request is admitted. Raises `NotReady` if that takes longer than `timeout`. Default: 60 s.
    #[pyo3(signature = (key, cost=1, *, weight=None, priority=None, timeout=None))]
    fn until_ready(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        cost: u64,
        weight: Option<u64>,
        priority: Option<u8>,
        timeout: Option<Span>,
    ) -> PyResult<Py<PyAny>> {
        let ready = ready(self.0.lazy(py)?, request(key, cost, weight, priority)?, timeout);
        admitted(py, Process::get(py)?.wait(py, ready)?)
    }

    /// Waits like `until_ready`, for asyncio.
    #[pyo3(signature = (key, cost=1, *, weight=None, priority=None, timeout=None))]
    fn until_ready_async(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        cost: u64,
        weight: Option<u64>,
        priority: Option<u8>,
        timeout: Option<Span>,
    ) -> PyResult<Pending> {
        Pending::spawn(py, ready(self.0.lazy(py)?, request(key, cost, weight, priority)?, timeout), admitted)
    }
}

async fn entered(lazy: LazyPolicy, call: OwnedCall) -> Result<throttlekit::Admission, Failure> {
    let others = call.others();
    Ok(lazy.get().await?.policy.admit(call.call(&others)).await?)
}

async fn ready(
    lazy: LazyPolicy,
    call: OwnedCall,
    timeout: Option<Span>,
) -> Result<throttlekit::Admission, Failure> {
    let built = lazy.get().await?;
    let queue = built.turns.queue(|| Arc::new(built.policy.clone()));
    waiting::ready(queue, call, timeout.map(|timeout| timeout.0)).await.map_err(Failure::NotReady)
}
