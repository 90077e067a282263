//! Results of requests to a shared limiter.

use std::ops::Deref;

use throttlekit_core::rate::{Mark, Verdict};
use throttlekit_core::{Decision, Timestamp};

use crate::call::Part;
use crate::store::{Outcome, StoreError};
use crate::{Guarantee, LimitName};

/// The decision on one request, and its guarantee. Derefs to the [`Decision`]: `answer.allowed`, `answer.remaining`.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// The decision.
    pub decision: Decision,
    /// Index of the limit to report: for a denial the one to wait for, for an admission the one closest to binding.
    pub binding: usize,
    /// Name of the limit that denied, if one did and has a name.
    pub limit_name: Option<LimitName>,
    /// Guarantee of the decision.
    pub guarantee: Guarantee,
    /// Time of the decision by the store's clock, which `reset_at` uses.
    pub now: Timestamp,
    /// Reason why the store did not respond, if the fallback decided.
    pub outage: Option<StoreError>,
    /// Receipt with which the actual cost can be settled. Only what the store charged can be.
    pub receipt: Option<Receipt>,
    /// Allowed only because the policy is in shadow mode. Reported by servers.
    pub shadow_denied: bool,
}

/// Proof of charges, by which they can be settled when the actual cost is known. Once: it cannot be copied.
#[derive(Debug, PartialEq, Eq)]
pub struct Receipt {
    pub(crate) charged: Vec<Paid>,
}

/// Charge to one limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Paid {
    /// Index of the limit.
    pub(crate) limit: usize,
    /// The key as the store keeps it.
    pub(crate) key: String,
    pub(crate) cost: u64,
    /// Charge position.
    pub(crate) mark: Mark,
}

impl Answer {
    /// Returns the decision.
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// Creates an answer without a receipt, made at `now`. For limiters of other crates.
    #[inline]
    pub fn new(decision: Decision, guarantee: Guarantee, now: Timestamp) -> Self {
        let (outage, receipt, shadow_denied) = (None, None, false);
        Self { decision, binding: 0, limit_name: None, guarantee, now, outage, receipt, shadow_denied }
    }

    pub(super) fn from_store(
        outcome: &Outcome,
        keys: Vec<String>,
        parts: &[Part<'_>],
        guarantee: Guarantee,
    ) -> Self {
        let Verdict { decision, binding } = outcome.verdict;
        let receipt = decision.allowed.then(|| Receipt::of(outcome, keys, parts));
        Self { binding, receipt, ..Self::new(decision, guarantee, outcome.now) }
    }
}

impl Deref for Answer {
    type Target = Decision;

    fn deref(&self) -> &Decision {
        &self.decision
    }
}

impl Receipt {
    /// Creates a receipt. Of several limits where any may allow, those that denied were not charged.
    fn of(outcome: &Outcome, keys: Vec<String>, parts: &[Part<'_>]) -> Self {
        let each = keys.into_iter().zip(parts).zip(&outcome.marks).zip(&outcome.decisions).enumerate();
        let charged = each
            .filter(|(_, (_, decision))| decision.allowed)
            .map(|(limit, (((key, part), &mark), _))| Paid { limit, key, cost: part.cost, mark })
            .collect();
        Self { charged }
    }
}
