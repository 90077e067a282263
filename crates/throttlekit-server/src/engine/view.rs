//! Views of the engine for telemetry.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use throttlekit::KeyMemory;
use throttlekit::fair::TenantShare;

use super::backend::Backend;
use super::failures::{Failures, StoreFailure};
use super::running_policy::RunningPolicy;
use super::{Engine, GuardView};
use crate::policy::PolicyFile;

/// What became of a new policy file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Names of policies that were not there before.
    pub added: Vec<String>,
    /// Those that changed. Their counts go on.
    pub changed: Vec<String>,
    /// Those that are gone.
    pub removed: Vec<String>,
    /// Counts that begin anew, since another rule cannot read them; and other things to know.
    pub warnings: Vec<String>,
}

/// How the store is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreHealth {
    /// `memory`, `redis` or `postgres`.
    pub kind: &'static str,
    /// Whether it answers, as far as calls to it have shown.
    pub serving: bool,
    /// Calls sent, answered or not.
    pub calls: u64,
    /// Calls that got no answer, or none in time, or were not sent since the last ones got none.
    pub outages: u64,
    /// Calls under way.
    pub in_flight: u64,
    /// The last call that failed, if one ever did.
    pub last_failure: Option<StoreFailure>,
}

/// One policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyView {
    /// Its name.
    pub name: String,
    /// `rate`, `leased`, `fair`, `budget`, `admission` or `unlimited`.
    pub kind: &'static str,
    /// The most units of its first limit; zero if it has none.
    pub limit: u64,
    /// How its first limit is counted, as the file says; empty if it has none.
    pub strategy: String,
    /// How often the store was called for it.
    pub store_calls: u64,
    /// Whether it only looks.
    pub shadow: bool,
}

impl Engine {
    /// The file in force.
    pub fn file(&self) -> Arc<PolicyFile> {
        self.shared.running.load().file.clone()
    }

    /// How the store is doing.
    pub fn store_health(&self) -> StoreHealth {
        StoreHealth::of(&self.shared.options.backend, &self.shared.failures)
    }

    /// How full the memory for keys is, where it is this process's.
    pub fn key_memory(&self) -> Option<KeyMemory> {
        self.shared.options.backend.key_memory()
    }

    /// Asks the store for nothing, to find out whether it answers.
    pub async fn probe(&self) -> bool {
        let answer = self.shared.options.backend.probe().await;
        let _ = answer.as_ref().inspect_err(|error| self.shared.failures.note(error));
        !answer.is_err_and(|error| error.is_outage())
    }

    /// Lets readiness turn to not serving, for good. Decisions go on.
    pub fn begin_draining(&self) {
        self.shared.draining.store(true, Relaxed);
    }

    /// Whether this server is about to stop.
    pub fn is_draining(&self) -> bool {
        self.shared.draining.load(Relaxed)
    }

    /// The policies that run, by name.
    fn sorted(&self) -> Vec<Arc<RunningPolicy>> {
        let running = self.shared.running.load_full();
        let mut all: Vec<_> = running.policies.values().cloned().collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Every policy, by name.
    pub fn policies(&self) -> Vec<PolicyView> {
        self.sorted().iter().map(|served| PolicyView::of(served)).collect()
    }

    /// How a tenant of a fair policy stands at this instance. Nothing if it has not asked in this window.
    pub fn share_of(&self, policy: &str, tenant: &[u8]) -> Option<TenantShare> {
        self.policy(policy).ok()?.share_of(tenant)
    }

    /// The slots of every policy that has some.
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
        let budget = || spec.cost.as_ref().map(|cost| (cost.budget, "TokenBudget".to_owned()));
        let fair = || spec.fair.as_ref().map(|fair| (fair.limit, "FairShare".to_owned()));
        let (limit, strategy) = first.or_else(budget).or_else(fair).unwrap_or_default();
        Self {
            name: served.name.to_string(),
            kind: served.kind(),
            limit,
            strategy,
            store_calls: served.store_calls(),
            shadow: spec.shadow,
        }
    }
}
