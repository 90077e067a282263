//! The native module of the Python package `throttlekit`: the Rust limiters, stores and client as Python classes.
//!
//! * [`values`]: what is allowed. [`args`] converts Python arguments.
//! * [`limiter`], [`fair`], [`guard`], [`policy`], [`budget`]: what decides, in process and over a store.
//! * [`decision`], [`admission`], [`permit`]: what callers receive. [`errors`] has the exceptions.
//! * [`fields`]: header fields of responses. [`outbound`]: limits of calls to providers.
//! * [`store`], [`address`], [`rates`], [`shared`] and [`client`]: where a limit is counted. [`monitor`]: the state of a
//!   server.
//! * [`process`]: the runtime of this process, rebuilt after a fork. [`pending`]: results for asyncio.
#![forbid(unsafe_code)]

mod address;
mod admission;
mod args;
mod budget;
mod client;
mod clock;
mod decision;
mod errors;
mod fair;
mod fields;
mod guard;
mod limiter;
mod monitor;
mod outbound;
mod pending;
mod permit;
mod policy;
mod process;
mod rates;
mod shared;
mod store;
mod text;
mod values;
mod waiting;

use pyo3::prelude::*;

/// Limits rate, concurrency and cost.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::admission::Admission;
    #[pymodule_export]
    use crate::budget::{TokenBudget, TokenStream};
    #[pymodule_export]
    use crate::client::{Client, CostHint, RemotePolicy};
    #[pymodule_export]
    use crate::clock::ManualClock;
    #[pymodule_export]
    use crate::decision::{Answer, Decision, Forecast, Receipt};
    #[pymodule_export]
    use crate::fair::{FairLimiter, SharedFairLimiter};
    #[pymodule_export]
    use crate::fields::ResponseFields;
    #[pymodule_export]
    use crate::guard::{Guard, SharedGuard};
    #[pymodule_export]
    use crate::limiter::{Limiter, SharedLimiter};
    #[pymodule_export]
    use crate::monitor::{Denial, Watch};
    #[pymodule_export]
    use crate::outbound::{Outbound, OutboundPermit};
    #[pymodule_export]
    use crate::pending::Pending;
    #[pymodule_export]
    use crate::permit::Permit;
    #[pymodule_export]
    use crate::policy::{Policy, SharedPolicy};
    #[pymodule_export]
    use crate::store::Store;
    #[pymodule_export]
    use crate::values::{Budget, Concurrency, Limit, Rate};

    use pyo3::prelude::*;

    /// Does nothing with the arguments of a check, for benchmarks.
    #[pyfunction]
    #[pyo3(signature = (key, cost=1))]
    fn _empty_call(key: &Bound<'_, PyAny>, cost: u64) {
        let _ = (key, cost);
    }

    /// Returns a decision that is not made, for benchmarks.
    #[pyfunction]
    #[pyo3(signature = (key, cost=1))]
    fn _empty_decision(key: &Bound<'_, PyAny>, cost: u64) -> Decision {
        let _ = (key, cost);
        Decision(throttlekit::rate::ALLOW_FULL)
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        crate::process::watch(module.py())
    }
}
