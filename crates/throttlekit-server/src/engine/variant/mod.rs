//! A variant of a policy: the limits that apply to some of its keys.

mod build;
mod decide;
mod deny;
mod support;

use std::sync::Arc;

use throttlekit::admit::Unlimited;
use throttlekit::rate::Timestamp;
use throttlekit::{Admit, Axis, Guarantee, SharedLimiter, SharedPolicy};

pub(super) use build::Common;

use super::backend::Counted;
use super::call_queue::CallQueue;
use super::lender::Lender;
use super::limit_group::LimitGroup;
use super::reservations::TokenBudgets;
use super::{Answered, Refusal};
use deny::{Deny, denial};
use support::Support;

/// The limits that apply to some keys of a policy.
pub(super) struct Variant {
    /// Decides calls.
    pub(super) limits: Arc<dyn Admit>,
    /// The limiter of all limits, if checks need nothing else and nobody can wait: it decides at once on memory.
    alone: Option<SharedLimiter<Counted>>,
    /// The requests that it supports.
    support: Support,
    /// All limits on the store as a group, for peeks, forecasts and batches.
    all: Option<LimitGroup>,
    /// The budgets without the rates, for debits.
    budgets: Option<SharedLimiter<Counted>>,
    /// The numbers of the budgets, if it has any.
    token_budgets: Option<TokenBudgets>,
    /// Number of keys that its limits count by.
    keys: usize,
    /// Leased limiter of this instance, if there is one. Closed with the server.
    leased: Option<SharedLimiter<Counted>>,
    /// The policy of several axes, if it is one. It settles in the background.
    policy: Option<Arc<SharedPolicy>>,
    pub(super) lender: Option<Lender>,
    /// The calls that wait, if any may.
    pub(super) queue: Option<CallQueue>,
}

impl Variant {
    /// Creates a variant that allows everything.
    pub(super) fn unlimited() -> Self {
        Self {
            limits: Arc::new(Unlimited),
            alone: None,
            support: Support::UNLIMITED,
            all: None,
            budgets: None,
            token_budgets: None,
            keys: 1,
            leased: None,
            policy: None,
            lender: None,
            queue: None,
        }
    }

    /// Creates a variant that denies everything.
    pub(super) fn deny() -> Self {
        Self { limits: Arc::new(Deny), support: Support::DENY, ..Self::unlimited() }
    }

    /// Returns the denial, if everything is denied.
    pub(super) fn denies(&self) -> Option<Answered> {
        self.support.denies.then(|| Answered::of(denial(), Guarantee::Exact, Axis::Rate))
    }

    /// Returns the name of its kind.
    pub(super) fn kind(&self) -> &'static str {
        self.support.kind
    }

    /// Checks that all keys were sent. A limit by a missing key would count all such calls as one.
    pub(super) fn has_keys(&self, keys: usize) -> Result<(), Refusal> {
        if keys >= self.keys {
            return Ok(());
        }
        Err(Refusal::Invalid(format!(
            "this policy counts by {} keys, but the call has {keys}: send all of them",
            self.keys
        )))
    }

    /// Returns the budgets that calls reserve tokens of, and the time of their store.
    pub(super) fn token_budgets(&self) -> Option<(&TokenBudgets, Timestamp)> {
        Some((self.token_budgets.as_ref()?, self.all.as_ref()?.limiter.now()))
    }

    /// Checks whether everything is allowed.
    pub(super) fn is_unlimited(&self) -> bool {
        self.support.unlimited
    }

    /// Checks that calls can hold a lease while their work runs.
    pub(super) fn admits(&self) -> Result<(), Refusal> {
        self.support.admit.map_err(unsupported)
    }

    /// Checks whether admitted work holds a lease.
    pub(super) fn holds(&self) -> bool {
        self.support.holds
    }

    /// Returns the queue of waiting calls, if some wait now.
    fn waiting(&self) -> Option<&CallQueue> {
        self.queue.as_ref().filter(|queue| queue.waiting() > 0)
    }

    /// Checks whether returns to stores are still pending.
    pub(super) fn is_settling(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.stats().settlements_waiting > 0)
    }

    /// Returns units that were fetched and not spent.
    pub(super) async fn close(&self) {
        if let Some(leased) = &self.leased {
            // Units that do not arrive expire with their window.
            let _ = leased.close().await;
        }
    }
}

fn unsupported(why: &str) -> Refusal {
    Refusal::Unsupported(format!("this policy {why}"))
}
