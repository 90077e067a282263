//! Results of requests to a shared limiter.

use throttlekit_core::rate::{Mark, Verdict};
use throttlekit_core::{Cost, Decision, Timestamp};

use crate::Guarantee;
use crate::store::{Charge, Outcome, StoreError};

/// The decision on one request, and its guarantee.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// The decision.
    pub decision: Decision,
    /// Index of the limit to report: for a denial the one to wait for, for an admission the one closest to binding.
    pub binding: usize,
    /// Guarantee of the decision.
    pub guarantee: Guarantee,
    /// Time of the decision by the store's clock, which `reset_at` uses.
    pub now: Timestamp,
    /// Reason why the store did not respond, if the fallback decided.
    pub outage: Option<StoreError>,
    /// Receipt with which the actual cost can be settled. Only what the store charged can be.
    pub receipt: Option<Receipt>,
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
    pub(crate) cost: Cost,
    /// Charge position.
    pub(crate) mark: Mark,
}

impl Answer {
    /// Creates an answer of the store that is not settled.
    pub(super) fn of(decision: Decision, guarantee: Guarantee, now: Timestamp) -> Self {
        Self { decision, binding: 0, guarantee, now, outage: None, receipt: None }
    }

    pub(super) fn from_store(
        outcome: &Outcome,
        keys: Vec<String>,
        costs: &[Cost],
        guarantee: Guarantee,
    ) -> Self {
        let Verdict { decision, binding } = outcome.verdict;
        let receipt = decision.allowed.then(|| Receipt::of(outcome, keys, costs));
        Self { decision, binding, guarantee, now: outcome.now, outage: None, receipt }
    }
}

impl Receipt {
    /// Creates a receipt. Of several limits where any may allow, those that denied were not charged.
    fn of(outcome: &Outcome, keys: Vec<String>, costs: &[Cost]) -> Self {
        let each = keys.into_iter().zip(costs).zip(&outcome.marks).zip(&outcome.decisions).enumerate();
        let charged = each
            .filter(|(_, (_, decision))| decision.allowed)
            .map(|(limit, (((key, &cost), &mark), _))| Paid { limit, key, cost, mark })
            .collect();
        Self { charged }
    }
}

/// Returns the charges of one request, borrowed from the limiter.
pub(super) fn charges<'a, const N: usize>(
    keys: &'a [String],
    forms: &'a [throttlekit_core::rate::shared::ScriptEncoding; N],
    costs: &[Cost],
) -> Vec<Charge<'a>> {
    let each = keys.iter().zip(forms).zip(costs);
    each.map(|((key, form), &cost)| Charge { key, form, cost }).collect()
}
