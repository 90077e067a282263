//! Fair limiters: one budget, many tenants, each by its weight.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::prelude::*;
use throttlekit::fair::FairRule;

use crate::args::{Cost, Extra, OwnedCall};
use crate::clock::{AnyClock, ManualClock};
use crate::decision::Decision;
use crate::errors::{self, Failure};
use crate::limiter::{answered, on_outage};
use crate::pending::Pending;
use crate::process::Process;
use crate::shared::{Lazy, Shared};
use crate::store::StoreArg;
use crate::values::Budget;

/// Weights of tenants by name; 1 for all others.
type Weights = HashMap<String, u64>;

fn weight_of(weights: Weights) -> impl Fn(&[u8]) -> u64 + Send + Sync + 'static {
    move |tenant| std::str::from_utf8(tenant).ok().and_then(|name| weights.get(name)).copied().unwrap_or(1)
}

/// One budget that tenants share by weight, in this process. What one does not use the others get.
///
/// With `borrowing=False` each tenant is capped at its part.
#[pyclass(frozen, module = "throttlekit")]
pub(crate) struct FairLimiter(pub(crate) Arc<throttlekit::FairLimiter<AnyClock>>);

#[pymethods]
impl FairLimiter {
    #[new]
    #[pyo3(signature = (budget, *, weights=Weights::new(), borrowing=true, tenants_max=None, clock=None))]
    fn new(
        budget: &Bound<'_, Budget>,
        weights: Weights,
        borrowing: bool,
        tenants_max: Option<usize>,
        clock: Option<&Bound<'_, ManualClock>>,
    ) -> PyResult<Self> {
        let budget = budget.get().0;
        let limit = throttlekit::Limit::try_from(budget).map_err(|error| errors::build(&error.into()))?;
        let clock = AnyClock::new(clock.map(Bound::get), &[limit]);
        let mut builder = throttlekit::FairLimiter::builder(budget).weights(weight_of(weights)).clock(clock);
        builder = if borrowing { builder } else { builder.rule(FairRule::Cap) };
        if let Some(tenants) = tenants_max {
            builder = builder.tenants_max(tenants);
        }
        Ok(Self(Arc::new(builder.build().map_err(|error| errors::build(&error))?)))
    }

    /// Checks one request of a tenant, and charges it if allowed.
    #[pyo3(signature = (tenant, cost=1, *, weight=None))]
    fn check(&self, tenant: &Bound<'_, PyAny>, cost: u64, weight: Option<u64>) -> PyResult<Decision> {
        let call = OwnedCall::new(tenant, Cost::All(cost), Extra { weight, ..Extra::default() })?;
        Ok(Decision(call.with(|call| self.0.check(call))))
    }

    /// Returns what a tenant has left, without charging.
    fn peek(&self, tenant: &Bound<'_, PyAny>) -> PyResult<Decision> {
        let call = OwnedCall::new(tenant, Cost::ONE, Extra::default())?;
        Ok(Decision(call.with(|call| self.0.peek(call))))
    }

    /// Forgets what a tenant has used.
    fn reset(&self, tenant: &Bound<'_, PyAny>) -> PyResult<()> {
        let call = OwnedCall::new(tenant, Cost::ONE, Extra::default())?;
        call.with(|call| self.0.reset(call));
        Ok(())
    }
}

/// One budget that tenants of several processes share by weight, counted on a store.
#[pyclass(frozen, module = "throttlekit")]
pub(crate) struct SharedFairLimiter(Shared<throttlekit::SharedFairLimiter>);

#[pymethods]
impl SharedFairLimiter {
    #[new]
    #[pyo3(signature = (store, name, budget, *, weights=Weights::new(), on_outage="closed", nodes=None))]
    fn new(
        py: Python<'_>,
        store: StoreArg,
        name: String,
        budget: &Bound<'_, Budget>,
        weights: Weights,
        on_outage: &str,
        nodes: Option<u32>,
    ) -> PyResult<Self> {
        let (budget, fallback) = (budget.get().0, self::on_outage(on_outage, nodes)?);
        let shared = Shared::new(py, store.0, move |store| {
            let builder = throttlekit::SharedFairLimiter::builder(store, &name, budget);
            builder.weights(weight_of(weights.clone())).on_outage(fallback).build()
        });
        Ok(Self(shared?))
    }

    /// Checks one request of a tenant, and charges it if allowed.
    #[pyo3(signature = (tenant, cost=1, *, weight=None))]
    fn check(
        &self,
        py: Python<'_>,
        tenant: &Bound<'_, PyAny>,
        cost: u64,
        weight: Option<u64>,
    ) -> PyResult<Py<PyAny>> {
        let call = OwnedCall::new(tenant, Cost::All(cost), Extra { weight, ..Extra::default() })?;
        answered(py, Process::get(py)?.wait(py, checked(self.0.lazy(py)?, call))?)
    }

    /// Checks one request of a tenant, for asyncio.
    #[pyo3(signature = (tenant, cost=1, *, weight=None))]
    fn check_async(
        &self,
        py: Python<'_>,
        tenant: &Bound<'_, PyAny>,
        cost: u64,
        weight: Option<u64>,
    ) -> PyResult<Pending> {
        let call = OwnedCall::new(tenant, Cost::All(cost), Extra { weight, ..Extra::default() })?;
        Pending::spawn(py, checked(self.0.lazy(py)?, call), answered)
    }

    /// Returns what a tenant has left, without charging.
    fn peek(&self, py: Python<'_>, tenant: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let call = OwnedCall::new(tenant, Cost::ONE, Extra::default())?;
        answered(py, Process::get(py)?.wait(py, peeked(self.0.lazy(py)?, call))?)
    }

    /// Returns what a tenant has left, for asyncio.
    fn peek_async(&self, py: Python<'_>, tenant: &Bound<'_, PyAny>) -> PyResult<Pending> {
        let call = OwnedCall::new(tenant, Cost::ONE, Extra::default())?;
        Pending::spawn(py, peeked(self.0.lazy(py)?, call), answered)
    }
}

type LazyFair = Lazy<throttlekit::SharedFairLimiter>;

async fn checked(lazy: LazyFair, call: OwnedCall) -> Result<throttlekit::Answer, Failure> {
    let others = call.others();
    Ok(lazy.get().await?.check(call.call(&others)).await?)
}

async fn peeked(lazy: LazyFair, call: OwnedCall) -> Result<throttlekit::Answer, Failure> {
    let others = call.others();
    Ok(lazy.get().await?.peek(call.call(&others)).await?)
}
