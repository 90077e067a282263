//! A variant of a policy: the limits that apply to some of its keys.

mod build;
mod decide;

use throttlekit::{Guarantee, SharedLimiter, SharedPolicy};

pub(super) use build::Common;

use super::Refusal;
use super::backend::Counted;
use super::fairness::Fairness;
use super::lender::Lender;
use super::limit_group::LimitGroup;

/// The limits that apply to some keys of a policy.
pub(super) struct Variant {
    asks: Asks,
    /// All limits on the store as a group, for peeks and forecasts.
    all: Option<LimitGroup>,
    /// The budget alone, for debits.
    budget: Option<SharedLimiter<Counted>>,
    /// Number of keys that its limits count by.
    keys: usize,
    /// Leased limiter of this instance, if there is one.
    leased: Option<SharedLimiter<Counted>>,
    pub(super) lender: Option<Lender>,
}

/// Method of a check.
enum Asks {
    /// Without limits.
    Nobody,
    /// By rates, on the store.
    Rates(SharedLimiter<Counted>),
    /// By a rate of which this instance leases units, with the guarantee of a decision from them.
    Leased(SharedLimiter<Counted>, Guarantee),
    /// By a budget that all keys share.
    Fairness(Fairness),
    /// Not at all: it is a budget, which is debited.
    Budget,
    /// By several axes, or slots.
    Axes { policy: Box<SharedPolicy>, slots: bool },
}

impl Variant {
    /// Creates a variant that allows everything.
    pub(super) fn unlimited() -> Self {
        Self { asks: Asks::Nobody, all: None, budget: None, keys: 1, leased: None, lender: None }
    }

    /// Returns the name of its kind.
    pub(super) fn kind(&self) -> &'static str {
        match &self.asks {
            Asks::Nobody => "unlimited",
            Asks::Rates(_) => "rate",
            Asks::Leased(..) => "leased",
            Asks::Fairness(_) => "fair",
            Asks::Budget => "budget",
            Asks::Axes { .. } => "admission",
        }
    }

    /// Checks that all keys were sent. A limit by a missing key would count all such calls as one.
    pub(super) fn has_keys(&self, keys: usize) -> Result<(), Refusal> {
        if keys >= self.keys {
            return Ok(());
        }
        Err(Refusal::Invalid(format!(
            "this policy counts by {} keys, and {keys} came: send the others along",
            self.keys
        )))
    }

    /// Checks whether everything is allowed.
    pub(super) fn asks_nobody(&self) -> bool {
        matches!(self.asks, Asks::Nobody)
    }

    /// Checks whether returns to stores are still pending.
    pub(super) fn is_settling(&self) -> bool {
        matches!(&self.asks, Asks::Axes { policy, .. } if policy.stats().settlements_waiting > 0)
    }

    /// Returns the policy that admits work, if this is one.
    pub(super) fn admits(&self) -> Result<Option<&SharedPolicy>, Refusal> {
        match &self.asks {
            Asks::Axes { policy, .. } => Ok(Some(policy)),
            Asks::Nobody => Ok(None),
            Asks::Budget => {
                Err(unsupported("is a token budget: use Debit, or give the policy slots or a rate too"))
            }
            Asks::Rates(_) | Asks::Leased(..) | Asks::Fairness(_) => {
                Err(unsupported("holds nothing while work runs: use Check, or give the policy slots"))
            }
        }
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
