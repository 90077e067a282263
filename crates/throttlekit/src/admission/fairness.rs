//! The fairness axis in this process.

use std::sync::Arc;

use throttlekit_core::fair::Weight;
use throttlekit_core::{Cost, Decision, Timestamp};

use crate::{Call, Clock, FairLimiter, KeyHash};

/// A budget that tenants share, with any clock and hash.
pub(super) trait Fairness: Send + Sync {
    /// Returns the weight of a tenant. Runs the caller's own code: no lock may be held meanwhile.
    fn weight(&self, tenant: &[u8]) -> Weight;

    /// Decides a request, and charges it if allowed: then returns the portion that can be settled.
    fn charge(&self, tenant: &[u8], weight: Weight, cost: Cost) -> (Decision, Option<Portion>);

    /// Charges units that were not reserved, if allowed. The tenant's weight stays the same.
    fn debit(&self, portion: &Portion, cost: Cost) -> Decision;

    /// Replaces the charge by the actual use.
    fn settle(&self, portion: &Portion, charged: Cost, actual: Cost);
}

/// The charge of a tenant, and its window.
#[derive(Clone, Debug)]
pub(super) struct Portion {
    tenant: Box<[u8]>,
    weight: Weight,
    reset_at: Timestamp,
}

impl Portion {
    /// Returns the portion of the same tenant in the window of this decision.
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
        let decision = self.check_weighing(Call::by(tenant).cost(cost), weight);
        let portion = || Portion { tenant: tenant.into(), weight, reset_at: decision.reset_at };
        (decision, decision.allowed.then(portion))
    }

    fn debit(&self, portion: &Portion, cost: Cost) -> Decision {
        self.check_weighing(Call::by(&portion.tenant).cost(cost), portion.weight)
    }

    fn settle(&self, portion: &Portion, charged: Cost, actual: Cost) {
        if actual < charged {
            self.refund(&*portion.tenant, charged - actual, portion.reset_at);
        } else if actual > charged {
            self.owe_weighing(Call::by(&portion.tenant).cost(actual - charged), portion.weight);
        }
    }
}
