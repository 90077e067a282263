//! Decisions, and what a shared limiter adds to them.

use std::sync::Mutex;
use std::time::{Duration, UNIX_EPOCH};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use throttlekit::admit::LimitName;
use throttlekit::clock::{Clock, WallClock};
use throttlekit::{Guarantee, Retry};

use crate::errors;

/// The decision about one request. True if the request may proceed.
#[pyclass(frozen, subclass, module = "throttlekit")]
#[derive(Clone, Copy)]
pub(crate) struct Decision(pub(crate) throttlekit::Decision);

impl From<throttlekit::Decision> for Decision {
    #[inline]
    fn from(decision: throttlekit::Decision) -> Self {
        Self(decision)
    }
}

#[pymethods]
impl Decision {
    /// True if the request may proceed.
    #[getter]
    fn allowed(&self) -> bool {
        self.0.allowed
    }

    /// Largest number of units that the limit ever admits at once.
    #[getter]
    fn limit(&self) -> u64 {
        self.0.limit
    }

    /// Units left after this decision.
    #[getter]
    fn remaining(&self) -> u64 {
        self.0.remaining
    }

    /// Time at which the whole limit is free again if no further request arrives.
    #[getter]
    fn reset_at<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let at = UNIX_EPOCH + Duration::from_nanos(self.0.reset_at.as_nanos());
        Ok(at.into_pyobject(py)?.into_any())
    }

    /// The same, in nanoseconds since 1970.
    #[getter]
    fn reset_at_ns(&self) -> u64 {
        self.0.reset_at.as_nanos()
    }

    /// Seconds to wait before retrying, or before starting if a shaper allowed the request. `None` if no clock determines
    /// it: `retry` states why.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        self.0.retry_after.wait().map(|wait| wait.as_secs_f64())
    }

    /// The same, in nanoseconds.
    #[getter]
    fn retry_after_ns(&self) -> Option<u128> {
        self.0.retry_after.wait().map(|wait| wait.as_nanos())
    }

    /// The same, in milliseconds, rounded up.
    #[getter]
    fn retry_after_ms(&self) -> Option<u64> {
        self.0.retry_after.wait_ms()
    }

    /// Advice on waiting: `now`, `after`, `on_release` or `never`.
    #[getter]
    fn retry(&self) -> &'static str {
        match self.0.retry_after {
            Retry::Now => "now",
            Retry::After(_) => "after",
            Retry::OnRelease => "on_release",
            Retry::Never => "never",
        }
    }

    /// Returns the values of the headers `RateLimit-Policy` and `RateLimit`, for a limit of this name.
    fn headers(&self, name: &str) -> (String, String) {
        let throttlekit::Decision { limit, remaining, reset_at, .. } = self.0;
        let reset = reset_at.since(WallClock.now());
        let seconds = reset.as_secs() + u64::from(reset.subsec_nanos() > 0);
        (format!("\"{name}\";q={limit}"), format!("\"{name}\";r={remaining};t={seconds}"))
    }

    fn __bool__(&self) -> bool {
        self.0.allowed
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn __hash__(&self) -> u64 {
        self.0.reset_at.as_nanos() ^ self.0.remaining
    }

    fn __repr__(&self) -> String {
        let throttlekit::Decision { allowed, limit, remaining, retry_after, .. } = self.0;
        let allowed = if allowed { "True" } else { "False" };
        let wait = retry_after
            .wait()
            .map_or_else(|| format!("{:?}", self.retry()), |wait| format!("{:?}", wait.as_secs_f64()));
        format!("Decision(allowed={allowed}, remaining={remaining}, limit={limit}, retry_after={wait})")
    }
}

/// A decision of a shared limiter, with its guarantee.
#[pyclass(frozen, extends = Decision, module = "throttlekit")]
pub(crate) struct Answer {
    guarantee: Guarantee,
    binding: usize,
    limit_name: Option<LimitName>,
    outage: Option<throttlekit::StoreError>,
    receipt: Option<Py<Receipt>>,
    shadow_denied: bool,
}

impl Answer {
    /// Creates the Python object of an answer.
    pub(crate) fn answered(py: Python<'_>, answer: throttlekit::Answer) -> PyResult<Py<PyAny>> {
        let throttlekit::Answer {
            decision,
            binding,
            limit_name,
            guarantee,
            outage,
            receipt,
            shadow_denied,
            ..
        } = answer;
        let receipt = receipt.map(|receipt| Py::new(py, Receipt(Mutex::new(Some(receipt))))).transpose()?;
        Self::object(py, decision, Self { guarantee, binding, limit_name, outage, receipt, shadow_denied })
    }

    /// Creates the Python object of a decision that a node made from its own lease.
    pub(crate) fn of_lease(
        py: Python<'_>,
        decision: throttlekit::Decision,
        guarantee: Guarantee,
    ) -> PyResult<Py<PyAny>> {
        let (binding, limit_name, shadow_denied) = (0, None, false);
        let answer = Self { guarantee, binding, limit_name, outage: None, receipt: None, shadow_denied };
        Self::object(py, decision, answer)
    }

    fn object(py: Python<'_>, decision: throttlekit::Decision, answer: Self) -> PyResult<Py<PyAny>> {
        let object = PyClassInitializer::from(Decision(decision)).add_subclass(answer);
        Ok(Py::new(py, object)?.into_any())
    }
}

#[pymethods]
impl Answer {
    /// Guarantee of the decision: `exact`, `bounded`, `local`, `open` or `closed`.
    #[getter]
    fn guarantee(&self) -> &'static str {
        self.guarantee.label()
    }

    /// Units by which the limit may be exceeded, if the guarantee is `bounded`; otherwise 0.
    #[getter]
    fn overshoot_bound(&self) -> u64 {
        if let Guarantee::Bounded(units) = self.guarantee { units } else { 0 }
    }

    /// Index of the limit to report.
    #[getter]
    fn binding(&self) -> usize {
        self.binding
    }

    /// Name of the limit that denied, if it has one: which of several token budgets, for example.
    #[getter]
    fn limit_name(&self) -> Option<&'static str> {
        self.limit_name.map(LimitName::as_str)
    }

    /// Reason why the store did not respond, if the fallback decided.
    #[getter]
    fn outage(&self) -> Option<String> {
        self.outage.as_ref().map(ToString::to_string)
    }

    /// Receipt with which the actual cost can be settled.
    #[getter]
    fn receipt(&self, py: Python<'_>) -> Option<Py<Receipt>> {
        self.receipt.as_ref().map(|receipt| receipt.clone_ref(py))
    }

    /// True if the request is allowed only because the policy is in shadow mode.
    #[getter]
    fn shadow_denied(&self) -> bool {
        self.shadow_denied
    }
}

/// Proof of charges, by which they can be settled once.
#[pyclass(frozen, module = "throttlekit")]
pub(crate) struct Receipt(Mutex<Option<throttlekit::limiter::Receipt>>);

impl Receipt {
    /// Takes the receipt out. Fails if it was used.
    pub(crate) fn take(&self) -> PyResult<throttlekit::limiter::Receipt> {
        let taken = self.0.lock().map_err(|_| errors::ended("receipt"))?.take();
        taken.ok_or_else(|| PyValueError::new_err("the receipt was settled before: settle each receipt once"))
    }
}

/// Units that a key can spend, now and later, if no other request arrives.
#[pyclass(frozen, module = "throttlekit")]
pub(crate) struct Forecast(pub(crate) throttlekit::rate::Forecast);

#[pymethods]
impl Forecast {
    /// Number of requests of the given cost that pass now.
    #[getter]
    fn spendable_now(&self) -> u64 {
        self.0.spendable_now
    }

    /// Time at which one more unit is available, in nanoseconds since 1970.
    #[getter]
    fn next_replenish_at_ns(&self) -> u64 {
        self.0.next_replenish_at.as_nanos()
    }

    /// Time at which every unit is available again, in nanoseconds since 1970.
    #[getter]
    fn full_at_ns(&self) -> u64 {
        self.0.full_at.as_nanos()
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}
