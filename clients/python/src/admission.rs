//! The result of a request over all axes.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use throttlekit::admit::LimitName;
use throttlekit::{Axis, Guarantee};

use crate::decision::Decision;
use crate::errors;
use crate::pending::Pending;
use crate::permit::Permit;

/// The result of one request, over all axes. True if it was admitted. Use it in a `with` or an `async with` block: it
/// holds the permit until the block ends.
#[pyclass(frozen, extends = Decision, module = "throttlekit")]
pub(crate) struct Admission {
    permit: Option<Py<Permit>>,
    denied_by: Option<Axis>,
    limit_name: Option<LimitName>,
    axes: Vec<(Axis, throttlekit::Decision)>,
    guarantee: Guarantee,
    outage: Option<throttlekit::StoreError>,
    shadow_denied: bool,
}

impl Admission {
    /// Creates the Python object of an admission.
    pub(crate) fn object(py: Python<'_>, mut admission: throttlekit::Admission) -> PyResult<Py<PyAny>> {
        let permit = admission.permit.take().map(|permit| Py::new(py, Permit::new(permit))).transpose()?;
        let (decision, denied_by) = (admission.decision(), admission.denied_by());
        let limit_name = admission.limit_name();
        let axes = admission.axes().iter().map(|(axis, decision)| (axis, *decision)).collect();
        let throttlekit::Admission { guarantee, outage, shadow_denied, .. } = admission;
        let admission = Self { permit, denied_by, limit_name, axes, guarantee, outage, shadow_denied };
        let object = PyClassInitializer::from(Decision(decision)).add_subclass(admission);
        Ok(Py::new(py, object)?.into_any())
    }

    /// Creates the result of a call to a store.
    pub(crate) fn of(
        py: Python<'_>,
        result: Result<throttlekit::Admission, throttlekit::StoreError>,
    ) -> PyResult<Py<PyAny>> {
        Self::object(py, result.map_err(|error| errors::store(&error))?)
    }
}

#[pymethods]
impl Admission {
    /// Permit, if the request was admitted.
    #[getter]
    fn permit(&self, py: Python<'_>) -> Option<Py<Permit>> {
        self.permit.as_ref().map(|permit| permit.clone_ref(py))
    }

    /// Axis that denied: `concurrency`, `price`, `rate`, `cost` or `fairness`.
    #[getter]
    fn denied_by(&self) -> Option<&'static str> {
        self.denied_by.map(Axis::label)
    }

    /// Name of the limit that denied, if it has one: which of several token budgets, for example.
    #[getter]
    fn limit_name(&self) -> Option<&'static str> {
        self.limit_name.map(LimitName::as_str)
    }

    /// Decision of each axis that was evaluated.
    #[getter]
    fn axes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let axes = PyDict::new(py);
        for (axis, decision) in &self.axes {
            axes.set_item(axis.label(), Decision(*decision))?;
        }
        Ok(axes)
    }

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

    /// Reason why the store did not respond, if the fallback decided.
    #[getter]
    fn outage(&self) -> Option<String> {
        self.outage.as_ref().map(ToString::to_string)
    }

    /// True if the request is allowed only because the policy is in shadow mode.
    #[getter]
    fn shadow_denied(&self) -> bool {
        self.shadow_denied
    }

    /// Returns the permit, or raises `Denied` with the axis that denied.
    fn into_permit(slf: &Bound<'_, Self>) -> PyResult<Py<Permit>> {
        let this = slf.get();
        match &this.permit {
            Some(permit) => Ok(permit.clone_ref(slf.py())),
            None => {
                let decision = slf.as_super().get().0;
                Err(errors::denied(this.denied_by, decision))
            }
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<bool> {
        if let Some(permit) = &self.permit {
            permit.call_method1(py, "__exit__", exception.clone())?;
        }
        Ok(false)
    }

    fn __aenter__(slf: Bound<'_, Self>) -> Pending {
        Pending::ready(Ok(slf.into_any().unbind()))
    }

    #[pyo3(signature = (*exception))]
    fn __aexit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<Pending> {
        self.__exit__(py, exception)?;
        Ok(Pending::ready(false.into_py_any(py)))
    }
}
