//! What an ask comes back with.

use throttlekit_core::rate::{Mark, Verdict};
use throttlekit_core::{Cost, Decision, Timestamp};

use crate::Guarantee;
use crate::store::{Charge, Outcome, StoreError};

/// The answer to one ask, and what it is worth.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// The answer.
    pub decision: Decision,
    /// The limit to name, by its place: of a denial the one to wait for, of an admission the one closest to binding.
    pub binding: usize,
    /// What the answer is worth.
    pub guarantee: Guarantee,
    /// The instant of the answer by the store's clock, which `reset_at` goes by.
    pub now: Timestamp,
    /// Why the store did not answer, where something stood in for it.
    pub outage: Option<StoreError>,
    /// With which the true cost can be settled. Only what the store charged can be.
    pub receipt: Option<Receipt>,
}

/// Proof of charges, by which they can be settled when the true cost is known. Once: it cannot be copied.
#[derive(Debug, PartialEq, Eq)]
pub struct Receipt {
    pub(crate) charged: Vec<Paid>,
}

/// What one limit was charged.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Paid {
    /// The limit's place.
    pub(crate) limit: usize,
    /// The key as the store keeps it.
    pub(crate) key: String,
    pub(crate) cost: Cost,
    /// Where it went.
    pub(crate) mark: Mark,
}

impl Answer {
    /// An answer of the store that nobody settles.
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
    /// Of several limits where any may allow, those that denied were not charged.
    fn of(outcome: &Outcome, keys: Vec<String>, costs: &[Cost]) -> Self {
        let each = keys.into_iter().zip(costs).zip(&outcome.marks).zip(&outcome.decisions).enumerate();
        let charged = each
            .filter(|(_, (_, decision))| decision.allowed)
            .map(|(limit, (((key, &cost), &mark), _))| Paid { limit, key, cost, mark })
            .collect();
        Self { charged }
    }
}

/// The charges of one ask, borrowed from what the limiter holds.
pub(super) fn charges<'a, const N: usize>(
    keys: &'a [String],
    forms: &'a [throttlekit_core::rate::shared::SharedForm; N],
    costs: &[Cost],
) -> Vec<Charge<'a>> {
    let each = keys.iter().zip(forms).zip(costs);
    each.map(|((key, form), &cost)| Charge { key, form, cost }).collect()
}
