//! Views of the engine for telemetry.

use std::sync::Arc;

use throttlekit::fair::TenantShare;
use throttlekit::limiter::KeyMemory;

use super::backend::Backend;
use super::failures::{Failures, StoreFailure};
use super::running_policy::RunningPolicy;
use super::{Engine, GuardView};
use crate::policy::PolicyFile;

/// Result of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Names of new policies.
    pub added: Vec<String>,
    /// Names of changed policies. Their counts continue.
    pub changed: Vec<String>,
    /// Names of removed policies.
    pub removed: Vec<String>,
    /// Counts that restart, since a different algorithm cannot read them; and other remarks.
    pub warnings: Vec<String>,
}

/// Health of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreHealth {
    /// `memory`, `redis` or `postgres`.
    pub kind: &'static str,
    /// True if it responds, as far as calls to it have shown.
    pub serving: bool,
    /// Calls sent, with or without a response.
    pub calls: u64,
    /// Calls without a response, or without one in time, or rejected by the open circuit breaker.
    pub outages: u64,
    /// Calls in flight.
    pub in_flight: u64,
    /// The last call that failed, if one ever did.
    pub last_failure: Option<StoreFailure>,
}

/// One policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyView {
    /// Name.
    pub name: String,
    /// `rate`, `leased`, `fair`, `budget`, `admission` or `unlimited`.
    pub kind: &'static str,
    /// Maximum number of units of its first limit; zero if it has none.
    pub limit: u64,
    /// Algorithm of its first limit, as in the file; empty if it has none.
    pub strategy: String,
    /// Number of store calls for it.
    pub store_calls: u64,
    /// True in shadow mode.
    pub shadow: bool,
    /// Number of calls that wait here.
    pub waiting: u64,
}

impl Engine {
    /// Returns the current file.
    pub fn file(&self) -> Arc<PolicyFile> {
        self.shared.running.load().file.clone()
    }

    /// Returns the health of the store.
    pub fn store_health(&self) -> StoreHealth {
        StoreHealth::of(&self.shared.options.backend, &self.shared.failures)
    }

    /// Returns the usage of the memory for keys, if they are in this process.
    pub fn key_memory(&self) -> Option<KeyMemory> {
        self.shared.options.backend.key_memory()
    }

    /// Sends a no-op call to check whether the store responds.
    pub async fn probe(&self) -> bool {
        let answer = self.shared.options.backend.probe().await;
        let _ = answer.as_ref().inspect_err(|error| self.shared.failures.note(error));
        !answer.is_err_and(|error| error.is_outage())
    }

    /// Sets readiness to not serving, permanently. Decisions continue, and calls that wait are decided at once.
    pub fn begin_draining(&self) {
        self.shared.draining.send_replace(true);
    }

    /// Checks whether this server is about to stop.
    pub fn is_draining(&self) -> bool {
        *self.shared.draining.borrow()
    }

    /// Completes when this server begins to drain.
    pub(super) async fn drains(&self) {
        let mut draining = self.shared.draining.subscribe();
        // The sender is part of the engine, so it cannot fail.
        let _ = draining.wait_for(|draining| *draining).await;
    }

    /// Returns the running policies, by name.
    fn sorted(&self) -> Vec<Arc<RunningPolicy>> {
        let running = self.shared.running.load_full();
        let mut all: Vec<_> = running.policies.values().cloned().collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Returns every policy, by name.
    pub fn policies(&self) -> Vec<PolicyView> {
        self.sorted().iter().map(|served| PolicyView::of(served)).collect()
    }

    /// Returns the share of a tenant of a fair policy at this instance. `None` if it sent no request in this window.
    pub fn share_of(&self, policy: &str, tenant: &[u8]) -> Option<TenantShare> {
        self.policy(policy).ok()?.share_of(tenant)
    }

    /// Returns the slots of every policy that has some.
    pub fn guards(&self) -> Vec<GuardView> {
        let held = |served: &Arc<RunningPolicy>| {
            let guard = served.guard(self.shared.leases.held(&served.name))?;
            let recovering = self.recovering(served).is_some();
            Some(GuardView { fenced: guard.fenced || recovering, ..guard })
        };
        self.sorted().iter().filter_map(held).collect()
    }
}

impl StoreHealth {
    pub(super) fn of(backend: &Backend, failures: &Failures) -> Self {
        let line = backend.line_stats().unwrap_or_default();
        Self {
            kind: backend.kind(),
            serving: !line.open,
            calls: line.calls,
            outages: line.failed + line.timed_out + line.refused_open,
            in_flight: line.in_flight,
            last_failure: failures.last(),
        }
    }
}

impl PolicyView {
    pub(super) fn of(served: &RunningPolicy) -> Self {
        let spec = &served.spec;
        let first = spec
            .rate
            .first()
            .and_then(|rate| Some((rate.to_limit().ok()?.units(), format!("{:?}", rate.algorithm))));
        let budget = || spec.cost.first().map(|cost| (cost.budget, "TokenBudget".to_owned()));
        let fair = || spec.fair.as_ref().map(|fair| (fair.limit, "FairShare".to_owned()));
        let (limit, strategy) = first.or_else(budget).or_else(fair).unwrap_or_default();
        Self {
            name: served.name.to_string(),
            kind: served.kind(),
            limit,
            strategy,
            store_calls: served.store_calls(),
            shadow: spec.shadow,
            waiting: served.waiting(),
        }
    }
}
