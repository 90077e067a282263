//! The fairness axis in this process.

use std::sync::Arc;

use throttlekit_core::fair::Weight;
use throttlekit_core::{Cost, Decision, Timestamp};

use crate::{Ask, Clock, FairLimiter, KeyHash};

/// A budget that tenants share, whatever clock and hash it goes by.
pub(super) trait Fairness: Send + Sync {
    /// How much a tenant weighs. The caller's own code says so: nothing may be held while it is asked.
    fn weight(&self, tenant: &[u8]) -> Weight;

    /// Answers an ask, and charges it if allowed: then with what can be settled.
    fn charge(&self, tenant: &[u8], weight: Weight, cost: Cost) -> (Decision, Option<Portion>);

    /// Charges what was not set aside, if allowed. The tenant weighs what it did.
    fn debit(&self, portion: &Portion, cost: Cost) -> Decision;

    /// Replaces what was charged by what was used.
    fn settle(&self, portion: &Portion, charged: Cost, actual: Cost);
}

/// What a tenant was charged, and in which window.
#[derive(Clone, Debug)]
pub(super) struct Portion {
    tenant: Box<[u8]>,
    weight: Weight,
    reset_at: Timestamp,
}

impl Portion {
    /// The same tenant's, in the window of this answer.
    #[cfg(feature = "store")]
    pub(super) fn in_window_of(&self, decision: &Decision) -> Self {
        Self { reset_at: decision.reset_at, ..self.clone() }
    }
}

impl<C: Clock + 'static, H: KeyHash + 'static> Fairness for Arc<FairLimiter<C, H>> {
    fn weight(&self, tenant: &[u8]) -> Weight {
        self.weighs(tenant)
    }

    fn charge(&self, tenant: &[u8], weight: Weight, cost: Cost) -> (Decision, Option<Portion>) {
        let decision = self.check_weighing(Ask { key: tenant, cost }, weight);
        let portion = || Portion { tenant: tenant.into(), weight, reset_at: decision.reset_at };
        (decision, decision.allowed.then(portion))
    }

    fn debit(&self, portion: &Portion, cost: Cost) -> Decision {
        self.check_weighing(Ask { key: &portion.tenant, cost }, portion.weight)
    }

    fn settle(&self, portion: &Portion, charged: Cost, actual: Cost) {
        if actual < charged {
            self.refund(&*portion.tenant, charged - actual, portion.reset_at);
        } else if actual > charged {
            self.owe_weighing(Ask { key: &portion.tenant, cost: actual - charged }, portion.weight);
        }
    }
}
