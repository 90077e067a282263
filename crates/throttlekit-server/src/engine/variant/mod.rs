//! A variant of a policy: the limits that apply to some of its keys.

mod build;
mod decide;

use std::sync::Arc;

use throttlekit::admission::SharedPolicy;
use throttlekit::{Guarantee, SharedLimiter, TwoTier};

pub(super) use build::Common;

use super::Refusal;
use super::backend::Counted;
use super::fairness::Fairness;
use super::lender::Lender;
use super::limit_group::LimitGroup;

/// The limits that hold for some keys of a policy.
pub(super) struct Variant {
    asks: Asks,
    /// Each limit on the store by itself, for looking and for debits; the budget last.
    looks: Vec<Look>,
    /// All of them, for looking at once.
    all: Option<Arc<dyn LimitGroup>>,
    has_budget: bool,
    /// By how many keys its limits count.
    keys: usize,
    /// What this instance has fetched units for.
    tier: Option<TwoTier<Counted>>,
    pub(super) lender: Option<Lender>,
}

/// What a check asks.
enum Asks {
    /// Nobody.
    Nobody,
    /// Rates, on the store.
    Rates(Arc<dyn LimitGroup>),
    /// A rate of which this instance leases units, and what an answer from them is worth.
    Leased(TwoTier<Counted>, usize, Guarantee),
    /// What all share.
    Fairness(Fairness),
    /// Nothing: it is a budget, which is debited.
    Budget,
    /// Several axes, or slots.
    Axes { policy: Box<SharedPolicy>, slots: bool },
}

struct Look {
    limiter: SharedLimiter<Counted>,
    by: usize,
}

impl Variant {
    /// Lets everything pass.
    pub(super) fn unlimited() -> Self {
        Self {
            asks: Asks::Nobody,
            looks: Vec::new(),
            all: None,
            has_budget: false,
            keys: 1,
            tier: None,
            lender: None,
        }
    }

    /// What kind of thing it is, in one word.
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

    /// A limit that went by a key which was not sent would count all such calls as one.
    pub(super) fn has_keys(&self, keys: usize) -> Result<(), Refusal> {
        if keys >= self.keys {
            return Ok(());
        }
        Err(Refusal::Invalid(format!(
            "this policy counts by {} keys, and {keys} came: send the others along",
            self.keys
        )))
    }

    /// Whether everything passes.
    pub(super) fn asks_nobody(&self) -> bool {
        matches!(self.asks, Asks::Nobody)
    }

    /// Whether stores have still to be told what was given back.
    pub(super) fn is_settling(&self) -> bool {
        matches!(&self.asks, Asks::Axes { policy, .. } if policy.settlements().waiting > 0)
    }

    /// The policy that admits work, if this is one.
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

    /// Hands back what was fetched and not spent.
    pub(super) async fn close(&self) {
        if let Some(tier) = &self.tier {
            // What does not arrive lapses with its window.
            let _ = tier.close().await;
        }
    }
}

fn unsupported(why: &str) -> Refusal {
    Refusal::Unsupported(format!("this policy {why}"))
}
