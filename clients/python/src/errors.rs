//! Exceptions. Their classes are Python's, in `throttlekit/_errors.py`.

use pyo3::prelude::*;
use throttlekit::{Axis, Retry, wait};

use crate::decision::Decision;

pyo3::import_exception!(throttlekit._errors, BuildError);
pyo3::import_exception!(throttlekit._errors, Denied);
pyo3::import_exception!(throttlekit._errors, Ended);
pyo3::import_exception!(throttlekit._errors, NotReady);
pyo3::import_exception!(throttlekit._errors, StoreError);
pyo3::import_exception!(throttlekit._errors, StoreUnavailable);

/// Reason why a call on a shared limiter has no result.
pub(crate) enum Failure {
    Store(throttlekit::StoreError),
    Build(throttlekit::BuildError),
    NotReady(wait::NotReady),
}

impl From<throttlekit::StoreError> for Failure {
    fn from(error: throttlekit::StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Store(error) => store(&error),
            Failure::Build(error) => build(&error),
            Failure::NotReady(error) => not_ready(&error),
        }
    }
}

/// Returns the exception of a builder.
pub(crate) fn build(error: &throttlekit::BuildError) -> PyErr {
    BuildError::new_err(error.to_string())
}

/// Returns the exception of a store that decided nothing.
pub(crate) fn store(error: &throttlekit::StoreError) -> PyErr {
    // The remedy by its name in Python.
    let text = error.to_string().replace("PostgresStoreBuilder::migrate", "Store(url, migrate=True)");
    let args = (text, kind(error));
    if error.is_outage() { StoreUnavailable::new_err(args) } else { StoreError::new_err(args) }
}

/// Returns the name of an error's kind, for programs.
fn kind(error: &throttlekit::StoreError) -> &'static str {
    use throttlekit::StoreError as E;
    match error {
        E::Unavailable(_) => "unavailable",
        E::Deadline(_) => "deadline",
        E::Overloaded => "overloaded",
        E::Misconfigured(_) => "misconfigured",
        E::BadState(_) => "bad_state",
        E::Rejected(_) => "rejected",
        E::Stale(_) => "stale",
        _ => "other",
    }
}

/// Returns the exception of a denial.
pub(crate) fn denied(axis: Option<Axis>, decision: throttlekit::Decision) -> PyErr {
    let by = axis.map_or_else(|| "denied".to_owned(), |axis| format!("denied by the {axis} limit"));
    let throttlekit::Decision { limit, remaining, retry_after, .. } = decision;
    let advice = match retry_after {
        Retry::Now => String::new(),
        Retry::After(wait) => format!(", retry after {wait:?}"),
        Retry::OnRelease => ", retry when a slot is released".to_owned(),
        Retry::Never => ", the cost exceeds the limit".to_owned(),
    };
    let text = format!("{by}: {remaining} of {limit} left{advice}");
    Denied::new_err((text, Decision::from(decision), axis.map(Axis::label)))
}

/// Returns the exception of a wait that ended without an admission.
pub(crate) fn not_ready(error: &wait::NotReady) -> PyErr {
    let reason = match error {
        wait::NotReady::Store(error) => return store(error),
        wait::NotReady::Never(_) => "never",
        wait::NotReady::Full(_) => "full",
        _ => "timeout",
    };
    let denied = error.denied();
    let axis = denied.and_then(|denied| denied.axis).map(Axis::label);
    let decision = denied.map(|denied| Decision::from(denied.decision));
    NotReady::new_err((error.to_string(), decision, axis, reason))
}

/// Returns the exception for a permit or a stream that has ended.
pub(crate) fn ended(what: &'static str) -> PyErr {
    Ended::new_err(format!("the {what} has ended: use it inside its `with` block"))
}
