//! Clocks: that of the system, or one that tests set.

use pyo3::prelude::*;
use throttlekit::Limit;
use throttlekit::clock::{Clock, SystemClock};
use throttlekit::rate::Timestamp;

use crate::args::Span;

/// A clock that stands still until it is advanced, for tests of in-process limiters.
#[pyclass(frozen, module = "throttlekit")]
pub(crate) struct ManualClock(throttlekit::clock::ManualClock);

#[pymethods]
impl ManualClock {
    /// Creates a clock that reads `start_ns`, in nanoseconds since 1970.
    #[new]
    #[pyo3(signature = (start_ns=0))]
    fn new(start_ns: u64) -> Self {
        Self(throttlekit::clock::ManualClock::at(Timestamp::from_nanos(start_ns)))
    }

    /// Advances the clock.
    fn advance(&self, by: Span) {
        self.0.advance(by.0);
    }

    /// Sets the clock, in nanoseconds since 1970. It may go back.
    fn set_ns(&self, now_ns: u64) {
        self.0.set(Timestamp::from_nanos(now_ns));
    }

    /// Time of the clock, in nanoseconds since 1970.
    #[getter]
    fn now_ns(&self) -> u64 {
        self.0.now().as_nanos()
    }
}

/// The clock of an in-process limiter.
#[derive(Clone, Debug)]
pub(crate) enum AnyClock {
    System(SystemClock),
    Manual(throttlekit::clock::ManualClock),
}

impl AnyClock {
    /// Returns the given clock, or the system's that fits these limits.
    pub(crate) fn new(given: Option<&ManualClock>, limits: &[Limit]) -> Self {
        match given {
            Some(clock) => Self::Manual(clock.0.clone()),
            None => Self::System(SystemClock::for_limits(limits)),
        }
    }
}

impl Clock for AnyClock {
    #[inline(always)]
    fn now(&self) -> Timestamp {
        match self {
            Self::System(clock) => clock.now(),
            Self::Manual(clock) => clock.now(),
        }
    }
}
