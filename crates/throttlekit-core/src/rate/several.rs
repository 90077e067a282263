//! Several limits for one request: all must allow, or any may.

use alloc::vec::Vec;

use super::{Limit, Rule, State};
use crate::{Cost, Decision, Retry, Timestamp, combine};

/// Condition that a request must meet across several limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Every limit must allow. If one denies, none is charged.
    All,
    /// At least one limit must allow. Those that allow are charged; if all deny, none is.
    Any,
}

/// Combined decision of several limits, and the limit that determined it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The decision.
    pub decision: Decision,
    /// The limit to report: for a denial the one to wait for, for an admission the one closest to binding (for
    /// [`Need::Any`], the one that admitted the request with the most to spare).
    pub binding: usize,
}

/// One limit × one key's state × one cost.
#[derive(Debug)]
pub struct LimitCharge<'a> {
    /// The rule.
    pub limit: &'a Limit,
    /// Its state of the key.
    pub state: &'a mut State,
    /// Cost of the request on this limit.
    pub cost: Cost,
}

impl Need {
    /// Combines the decisions of the limits, in their order. Panics if there are none.
    pub fn judge(self, decisions: &[Decision]) -> Verdict {
        assert!(!decisions.is_empty(), "an ask names at least one limit");
        match self {
            Self::All => judge_all(decisions),
            Self::Any => judge_any(decisions),
        }
    }

    /// Decides over all charges and applies them all or none (guarantee `deny-is-free`). Panics if there are none.
    pub fn check(self, charges: &mut [LimitCharge<'_>], now: Timestamp) -> Verdict {
        let decisions: Vec<_> = charges.iter().map(|c| c.limit.decide(c.state, c.cost, now)).collect();
        let verdict = self.judge(&decisions);
        if verdict.decision.allowed {
            for (charge, _) in charges.iter_mut().zip(&decisions).filter(|(_, d)| d.allowed) {
                charge.limit.charge(charge.state, charge.cost, now);
            }
        }
        verdict
    }
}

/// Allowed: all combined, naming the least left. Denied: the deniers combined, naming the longest wait; since a request
/// that passes continues to pass as time goes by, all pass when that wait is over.
fn judge_all(decisions: &[Decision]) -> Verdict {
    let denied = decisions.iter().any(|d| !d.allowed);
    let deciders = || decisions.iter().enumerate().filter(|(_, d)| d.allowed != denied);
    let binding = if denied {
        deciders().max_by_key(|(i, d)| (d.retry_after, core::cmp::Reverse(*i)))
    } else {
        deciders().min_by_key(|(_, d)| d.remaining)
    };
    let decision = deciders().map(|(_, d)| *d).reduce(combine);
    Verdict { decision: decision.expect("not empty"), binding: binding.expect("not empty").0 }
}

/// Allowed: the allower with the most left. Denied: the denier with the shortest wait.
fn judge_any(decisions: &[Decision]) -> Verdict {
    let rank = |(i, d): &(usize, &Decision)| {
        let wait = if d.allowed { Retry::Now } else { d.retry_after };
        (!d.allowed, wait, core::cmp::Reverse(d.remaining), *i)
    };
    let best = decisions.iter().enumerate().min_by_key(rank).expect("not empty");
    Verdict { decision: *best.1, binding: best.0 }
}
