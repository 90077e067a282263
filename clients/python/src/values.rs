//! Values: what is allowed.

use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};
use throttlekit::policy::TokenLimit;
use throttlekit::rate::{Cadence, LimitError, SlidingWindow, Timestamp, Weekday};

use crate::args::Span;
use crate::errors;
use crate::text;

/// A smooth rate with a burst (GCRA).
///
/// `Rate("100/minute; burst 20")`, or units and a period: `Rate(100, timedelta(minutes=1), burst=20)`. The burst is the
/// number of units that may pass at once after an idle period. Default: the units.
#[pyclass(frozen, eq, module = "throttlekit")]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Rate(pub(crate) throttlekit::Rate);

#[pymethods]
impl Rate {
    #[new]
    #[pyo3(signature = (units, per=None, *, burst=None))]
    fn new(units: &Bound<'_, PyAny>, per: Option<Span>, burst: Option<u64>) -> PyResult<Self> {
        let rate = match (units.cast::<PyString>(), per) {
            (Ok(text), None) => parsed(text.to_str()?)?,
            (Ok(_), Some(_)) => {
                return Err(PyTypeError::new_err(
                    "invalid rate: text such as \"100/minute\" has its own period",
                ));
            }
            (Err(_), Some(Span(period))) => throttlekit::Rate::per(units.extract()?, period),
            (Err(_), None) => {
                return Err(PyTypeError::new_err("invalid rate: expected a period, as in Rate(100, 60)"));
            }
        };
        Ok(Self(burst.map_or(rate, |burst| rate.burst(burst))))
    }

    /// Returns a rate of `units` a second.
    #[staticmethod]
    fn per_second(units: u64) -> Self {
        Self(throttlekit::Rate::per_second(units))
    }

    /// Returns a rate of `units` a minute.
    #[staticmethod]
    fn per_minute(units: u64) -> Self {
        Self(throttlekit::Rate::per_minute(units))
    }

    /// Returns a rate of `units` an hour.
    #[staticmethod]
    fn per_hour(units: u64) -> Self {
        Self(throttlekit::Rate::per_hour(units))
    }

    /// Returns a rate of one unit every `period`, one at a time.
    #[staticmethod]
    fn every(period: Span) -> Self {
        Self(throttlekit::Rate::every(period.0))
    }

    /// Returns this rate with another burst.
    fn burst(&self, units: u64) -> Self {
        Self(self.0.burst(units))
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// Returns the rate of a text.
fn parsed(text: &str) -> PyResult<throttlekit::Rate> {
    let text::RateText { units, period, burst } = text::rate(text).map_err(PyValueError::new_err)?;
    let rate = throttlekit::Rate::per(units, period);
    Ok(burst.map_or(rate, |burst| rate.burst(burst)))
}

/// A number of units in each window of time.
///
/// `Budget(10_000, timedelta(minutes=5))` counts in windows of that length. `Budget.per_day` and `Budget.per_month`
/// follow the calendar, in UTC.
#[pyclass(frozen, eq, module = "throttlekit")]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Budget(pub(crate) throttlekit::Budget);

#[pymethods]
impl Budget {
    #[new]
    #[pyo3(signature = (units, per, *, anchor_ns=0))]
    fn new(units: u64, per: Span, anchor_ns: u64) -> Self {
        let anchor = Timestamp::from_nanos(anchor_ns);
        Self(throttlekit::Budget::new(units, Cadence::Every { length: per.0, anchor }))
    }

    /// Returns a budget of `units` a minute.
    #[staticmethod]
    fn per_minute(units: u64) -> Self {
        Self(throttlekit::Budget::per_minute(units))
    }

    /// Returns a budget of `units` an hour.
    #[staticmethod]
    fn per_hour(units: u64) -> Self {
        Self(throttlekit::Budget::per_hour(units))
    }

    /// Returns a budget of `units` a calendar day.
    #[staticmethod]
    #[pyo3(signature = (units, *, utc_offset=None))]
    fn per_day(units: u64, utc_offset: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let utc_offset_minutes = offset_minutes(utc_offset)?;
        Ok(Self(throttlekit::Budget::new(units, Cadence::Day { utc_offset_minutes })))
    }

    /// Returns a budget of `units` a calendar week, which begins on `starts_on`. Default: Monday.
    #[staticmethod]
    #[pyo3(signature = (units, *, starts_on="monday", utc_offset=None))]
    fn per_week(units: u64, starts_on: &str, utc_offset: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let (starts_on, utc_offset_minutes) = (weekday(starts_on)?, offset_minutes(utc_offset)?);
        Ok(Self(throttlekit::Budget::new(units, Cadence::Week { starts_on, utc_offset_minutes })))
    }

    /// Returns a budget of `units` a calendar month.
    #[staticmethod]
    #[pyo3(signature = (units, *, utc_offset=None))]
    fn per_month(units: u64, utc_offset: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let utc_offset_minutes = offset_minutes(utc_offset)?;
        Ok(Self(throttlekit::Budget::new(units, Cadence::Month { utc_offset_minutes })))
    }

    /// Returns the limit in which the debit that crosses the edge passes and counts in full.
    fn tokens(&self) -> PyResult<Limit> {
        built(self.0.tokens())
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

fn weekday(name: &str) -> PyResult<Weekday> {
    Ok(match name {
        "monday" => Weekday::Monday,
        "tuesday" => Weekday::Tuesday,
        "wednesday" => Weekday::Wednesday,
        "thursday" => Weekday::Thursday,
        "friday" => Weekday::Friday,
        "saturday" => Weekday::Saturday,
        "sunday" => Weekday::Sunday,
        _ => {
            return Err(PyValueError::new_err(format!(
                "invalid day {name:?}: expected \"monday\" to \"sunday\""
            )));
        }
    })
}

/// Returns the minutes of an offset, which is a `timedelta` that may be negative.
fn offset_minutes(offset: Option<&Bound<'_, PyAny>>) -> PyResult<i32> {
    let Some(offset) = offset else { return Ok(0) };
    let seconds: f64 = offset.call_method0("total_seconds")?.extract()?;
    Ok((seconds / 60.0).round() as i32)
}

/// A limit by another rule than a smooth rate or a budget.
#[pyclass(frozen, eq, module = "throttlekit")]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Limit(pub(crate) throttlekit::Limit);

#[pymethods]
impl Limit {
    /// Returns a bucket of `capacity` units that refills at a rate.
    #[staticmethod]
    fn token_bucket(capacity: u64, refill: RateArg) -> PyResult<Self> {
        built(throttlekit::Limit::token_bucket(capacity, refill.0))
    }

    /// Returns a shaper: requests start at a rate, in turn, and none waits longer than `max_wait`.
    #[staticmethod]
    fn leaky_bucket(rate: RateArg, max_wait: Span) -> PyResult<Self> {
        built(throttlekit::Limit::leaky_bucket(rate.0, max_wait.0))
    }

    /// Returns a quota of `units` in each window of this length.
    #[staticmethod]
    fn fixed_window(units: u64, length: Span) -> PyResult<Self> {
        built(throttlekit::Limit::fixed_window(units, length.0))
    }

    /// Returns a limit of `units` in the time before each request, counted in `buckets`.
    #[staticmethod]
    #[pyo3(signature = (units, length, *, buckets=None))]
    fn sliding_window(units: u64, length: Span, buckets: Option<u32>) -> PyResult<Self> {
        built(match buckets {
            None => throttlekit::Limit::sliding_window(units, length.0),
            Some(buckets) => {
                SlidingWindow::new(units, length.0, buckets).map(throttlekit::Limit::SlidingWindow)
            }
        })
    }

    /// Returns a limit of `units` in the time before each request, counted exactly.
    #[staticmethod]
    fn sliding_log(units: u64, length: Span) -> PyResult<Self> {
        built(throttlekit::Limit::sliding_log(units, length.0))
    }

    /// Largest number of units that this limit ever admits at once.
    #[getter]
    fn units(&self) -> u64 {
        self.0.units()
    }

    /// Period of the limit.
    #[getter]
    fn period(&self) -> Duration {
        self.0.period()
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

fn built(limit: Result<throttlekit::Limit, LimitError>) -> PyResult<Limit> {
    limit.map(Limit).map_err(|error| errors::build(&error.into()))
}

/// At most `n` at a time: fixed or adaptive, in total or per key.
#[pyclass(frozen, eq, module = "throttlekit")]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Concurrency {
    pub(crate) limit: throttlekit::Concurrency,
    pub(crate) is_per_key: bool,
}

#[pymethods]
impl Concurrency {
    /// Returns a fixed limit. Zero denies every call.
    #[staticmethod]
    fn fixed(n: u32) -> Self {
        Self { limit: throttlekit::Concurrency::fixed(n), is_per_key: false }
    }

    /// Returns a limit that is inferred from latency, within these bounds.
    #[staticmethod]
    fn adaptive(low: u32, high: u32) -> Self {
        Self { limit: throttlekit::Concurrency::adaptive(low..=high), is_per_key: false }
    }

    /// Returns the same limit for each key, and optionally one over all keys.
    #[staticmethod]
    #[pyo3(signature = (each, *, total=None))]
    fn per_key(each: ConcurrencyArg, total: Option<ConcurrencyArg>) -> Self {
        let each = throttlekit::Concurrency::per_key(each.0.limit);
        let limit = total.map_or(each, |total| each.total(total.0.limit));
        Self { limit, is_per_key: true }
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.limit)
    }
}

/// A rate, as an argument: a `Rate` or its text.
pub(crate) struct RateArg(pub(crate) throttlekit::Rate);

impl<'py> FromPyObject<'_, 'py> for RateArg {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = value.cast::<PyString>() {
            return parsed(text.to_str()?).map(Self);
        }
        match value.cast::<Rate>() {
            Ok(rate) => Ok(Self(rate.get().0)),
            Err(_) => {
                Err(PyTypeError::new_err("invalid rate: expected a Rate, or text such as \"100/minute\""))
            }
        }
    }
}

/// A limit, as an argument: a `Rate` or its text, a `Budget`, or a `Limit`.
#[derive(Clone, Copy)]
pub(crate) enum LimitArg {
    Rate(throttlekit::Rate),
    Budget(throttlekit::Budget),
    Limit(throttlekit::Limit),
}

impl LimitArg {
    /// Returns the limit, in which a budget is a hard quota.
    pub(crate) fn limit(self) -> PyResult<throttlekit::Limit> {
        let limit = match self {
            Self::Rate(rate) => rate.try_into(),
            Self::Budget(budget) => budget.try_into(),
            Self::Limit(limit) => Ok(limit),
        };
        limit.map_err(|error: LimitError| errors::build(&error.into()))
    }

    /// Returns the limit of tokens, in which the last debit may cross the edge of a budget.
    pub(crate) fn tokens(self) -> TokenLimit {
        match self {
            Self::Rate(rate) => rate.into(),
            Self::Budget(budget) => budget.into(),
            Self::Limit(limit) => limit.into(),
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for LimitArg {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(budget) = value.cast::<Budget>() {
            return Ok(Self::Budget(budget.get().0));
        }
        if let Ok(limit) = value.cast::<Limit>() {
            return Ok(Self::Limit(limit.get().0));
        }
        if value.is_instance_of::<PyString>() || value.is_instance_of::<Rate>() {
            return value.extract().map(|RateArg(rate)| Self::Rate(rate));
        }
        Err(PyTypeError::new_err(
            "invalid limit: expected a Rate, a Budget, a Limit, or text such as \"100/minute\"",
        ))
    }
}

/// A concurrency limit, as an argument: a number or a `Concurrency`.
#[derive(Clone, Copy)]
pub(crate) struct ConcurrencyArg(pub(crate) Concurrency);

impl<'py> FromPyObject<'_, 'py> for ConcurrencyArg {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if value.is_instance_of::<PyInt>() {
            return Ok(Self(Concurrency::fixed(value.extract()?)));
        }
        match value.cast::<Concurrency>() {
            Ok(concurrency) => Ok(Self(*concurrency.get())),
            Err(_) => {
                Err(PyTypeError::new_err("invalid concurrency limit: expected an int or a Concurrency"))
            }
        }
    }
}
