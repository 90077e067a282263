//! Arguments of Python calls: durations, keys and requests.

use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyString, PyTuple};
use throttlekit::Call;

use crate::text;

/// A duration: a `timedelta`, a number of seconds, or text such as `"5m"`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span(pub(crate) Duration);

impl<'py> FromPyObject<'_, 'py> for Span {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = value.cast::<PyString>() {
            return text::duration(text.to_str()?).map(Self).map_err(PyValueError::new_err);
        }
        if value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyInt>() {
            let seconds: f64 = value.extract()?;
            let length = Duration::try_from_secs_f64(seconds);
            let expected =
                || PyValueError::new_err(format!("invalid duration {seconds}: expected 0 s or more"));
            return length.map(Self).map_err(|_| expected());
        }
        value.extract().map(Self).map_err(|_| {
            PyTypeError::new_err(
                "invalid duration: expected a timedelta, a number of seconds, or text such as \"5m\"",
            )
        })
    }
}

/// The cost of a request: a number, or one for each limit.
#[derive(Clone, Debug)]
pub(crate) enum Cost {
    All(u64),
    Each(Vec<u64>),
}

impl Cost {
    pub(crate) const ONE: Self = Self::All(1);

    #[inline]
    fn of<'a>(&'a self, call: Call<'a>) -> Call<'a> {
        match self {
            Self::All(cost) => call.cost(*cost),
            Self::Each(costs) => call.costs(costs).cost(costs.first().copied().unwrap_or(1)),
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Cost {
    type Error = PyErr;

    #[inline]
    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(cost) = value.extract() {
            return Ok(Self::All(cost));
        }
        value.extract().map(Self::Each).map_err(|_| {
            PyValueError::new_err("invalid cost: expected an integer from 0 to 2**64 - 1, or a list of them")
        })
    }
}

/// The parts of a request beside its keys and cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extra {
    pub(crate) weight: Option<u64>,
    pub(crate) priority: Option<u8>,
    pub(crate) value: Option<f64>,
}

impl Extra {
    fn of<'a>(&self, mut call: Call<'a>) -> Call<'a> {
        if let Some(weight) = self.weight {
            call = call.weight(weight);
        }
        if let Some(priority) = self.priority {
            call = call.priority(priority);
        }
        if let Some(value) = self.value {
            call = call.value(value);
        }
        call
    }
}

/// Calls `then` with the request of a key, or of a tuple of keys. Borrows all of it from Python.
#[inline]
pub(crate) fn with_call<R>(
    key: &Bound<'_, PyAny>,
    cost: &Cost,
    then: impl FnOnce(Call<'_>) -> R,
) -> PyResult<R> {
    // Text first: nearly every key is.
    if let Ok(text) = key.cast::<PyString>() {
        return Ok(then(cost.of(Call::by(text.to_str()?.as_bytes()))));
    }
    match key.cast::<PyTuple>() {
        Err(_) => Ok(then(cost.of(Call::by(bytes(key)?)))),
        Ok(keys) => with_keys(keys, cost, then),
    }
}

#[inline(never)]
fn with_keys<R>(keys: &Bound<'_, PyTuple>, cost: &Cost, then: impl FnOnce(Call<'_>) -> R) -> PyResult<R> {
    let items: Vec<_> = keys.iter().collect();
    let slices = items.iter().map(bytes).collect::<PyResult<Vec<_>>>()?;
    let [first, others @ ..] = &slices[..] else {
        return Err(PyValueError::new_err("invalid key: an empty tuple names no caller"));
    };
    Ok(then(cost.of(Call::by(*first).and(others))))
}

/// Returns the bytes of a key. `None` is the empty key.
#[inline]
fn bytes<'a>(key: &'a Bound<'_, PyAny>) -> PyResult<&'a [u8]> {
    if let Ok(text) = key.cast::<PyString>() {
        return Ok(text.to_str()?.as_bytes());
    }
    match key.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.as_bytes()),
        Err(_) if key.is_none() => Ok(b""),
        Err(_) => Err(PyTypeError::new_err("invalid key: expected str, bytes, None, or a tuple of them")),
    }
}

/// A request that outlives the Python call.
#[derive(Clone, Debug)]
pub(crate) struct OwnedCall {
    keys: Vec<Box<[u8]>>,
    cost: Cost,
    extra: Extra,
}

impl OwnedCall {
    /// Copies a request from Python.
    pub(crate) fn new(key: &Bound<'_, PyAny>, cost: Cost, extra: Extra) -> PyResult<Self> {
        let keys = with_call(key, &Cost::ONE, |call| {
            (0..call.key_count()).map(|index| call.key_at(index).into()).collect()
        })?;
        Ok(Self { keys, cost, extra })
    }

    /// Returns the keys after the first, for [`call`](Self::call).
    pub(crate) fn others(&self) -> Vec<&[u8]> {
        self.keys[1..].iter().map(|key| &**key).collect()
    }

    /// Borrows the request.
    pub(crate) fn call<'a>(&'a self, others: &'a [&'a [u8]]) -> Call<'a> {
        self.extra.of(self.cost.of(Call::by(&self.keys[0]).and(others)))
    }

    /// Borrows the request for the length of a call.
    pub(crate) fn with<R>(&self, then: impl FnOnce(Call<'_>) -> R) -> R {
        then(self.call(&self.others()))
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.keys[0]
    }
}

/// Requests from an iterable of keys, or of pairs of a key and its cost.
pub(crate) fn owned_calls(calls: &Bound<'_, PyAny>, cost: &Cost) -> PyResult<Vec<OwnedCall>> {
    let one = |item: PyResult<Bound<'_, PyAny>>| {
        let item = item?;
        match pair(&item) {
            Some((key, cost)) => OwnedCall::new(&key, cost, Extra::default()),
            None => OwnedCall::new(&item, cost.clone(), Extra::default()),
        }
    };
    calls.try_iter()?.map(one).collect()
}

/// Returns a key and its cost, if the item is a pair of them.
fn pair<'py>(item: &Bound<'py, PyAny>) -> Option<(Bound<'py, PyAny>, Cost)> {
    let pair = item.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2)?;
    let cost = pair.get_item(1).ok()?;
    if !cost.is_instance_of::<PyInt>() || cost.is_instance_of::<PyBool>() {
        return None;
    }
    Some((pair.get_item(0).ok()?, cost.extract().ok()?))
}
