//! Header fields of responses.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use throttlekit::clock::{Clock, WallClock};

use crate::decision::Decision;

/// The fields `RateLimit-Policy` and `RateLimit` of responses, as ASGI sends them: pairs of bytes.
#[pyclass(frozen, name = "_ResponseFields")]
pub(crate) struct ResponseFields {
    /// Name of the limit, in quotes.
    name: Box<str>,
    left_name: Py<PyBytes>,
    /// The last limit and its field `RateLimit-Policy`, which rarely changes. Locked only by threads that are attached to
    /// the interpreter, and never while they detach.
    policy: Mutex<Option<(u64, Py<PyTuple>)>>,
}

#[pymethods]
impl ResponseFields {
    #[new]
    fn new(py: Python<'_>, name: &str) -> Self {
        let left_name = PyBytes::new(py, b"ratelimit").unbind();
        Self { name: format!("\"{name}\"").into(), left_name, policy: Mutex::new(None) }
    }

    /// Returns the fields of a decision after those in `fields`.
    fn append<'py>(
        &self,
        py: Python<'py>,
        fields: &Bound<'py, PyAny>,
        decision: &Bound<'py, Decision>,
    ) -> PyResult<Bound<'py, PyList>> {
        let decision = decision.get().0;
        let all = PyList::empty(py);
        all.call_method1(pyo3::intern!(py, "extend"), (fields,))?;
        all.append(self.policy(py, decision.limit)?)?;
        all.append(PyTuple::new(py, [self.left_name.bind(py), &self.left(py, decision)])?)?;
        Ok(all)
    }
}

impl ResponseFields {
    fn policy<'py>(&self, py: Python<'py>, limit: u64) -> PyResult<Bound<'py, PyTuple>> {
        let mut last = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, field)) = last.as_ref().filter(|(of, _)| *of == limit) {
            return Ok(field.bind(py).clone());
        }
        let value = format!("{};q={limit}", self.name);
        let field =
            PyTuple::new(py, [PyBytes::new(py, b"ratelimit-policy"), PyBytes::new(py, value.as_bytes())])?;
        *last = Some((limit, field.clone().unbind()));
        Ok(field)
    }

    fn left<'py>(&self, py: Python<'py>, decision: throttlekit::Decision) -> Bound<'py, PyBytes> {
        let reset = decision.reset_at.since(WallClock.now());
        let seconds = reset.as_secs() + u64::from(reset.subsec_nanos() > 0);
        let mut value = Vec::with_capacity(self.name.len() + 32);
        // Writing to a vector does not fail.
        let _ = write!(value, "{};r={};t={seconds}", self.name, decision.remaining);
        PyBytes::new(py, &value)
    }
}
