//! Decisions by key and window of the store, with their labels.

use std::collections::HashMap;

use throttlekit_proto::v1::Decision;

use super::Bug;
use crate::label_row::Round;

/// The units admitted to one key in one window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    admitted: u64,
    exact: u64,
    /// The largest number of a bounded decision.
    bound: u64,
}

/// All decisions of a round.
#[derive(Debug, Default)]
pub(super) struct Windows {
    windows: HashMap<(u32, i64), Window>,
    healthy: u64,
    healthy_exact: u64,
}

impl Windows {
    /// Counts a decision, as labelled by a seeded bug.
    pub(super) fn add(&mut self, key: u32, decision: &Decision, is_healthy: bool, bug: Option<Bug>) {
        if !decision.allowed {
            return;
        }
        let is_exact = match bug {
            Some(Bug::AsyncExact | Bug::PoolerExact) => true,
            Some(Bug::AlwaysBounded) => false,
            _ => decision.guarantee == "exact",
        };
        let bound = match decision.guarantee.as_str() {
            "bounded" if bug != Some(Bug::NothingLost) => decision.overshoot_bound.unsigned_abs(),
            // Labels other than `exact` and `bounded` guarantee nothing, and the policies do not permit them.
            _ => 0,
        };
        let window = self.windows.entry((key, decision.reset_at)).or_default();
        window.admitted += 1;
        window.exact += u64::from(is_exact);
        window.bound = window.bound.max(bound);
        self.healthy += u64::from(is_healthy);
        self.healthy_exact += u64::from(is_healthy && is_exact);
    }

    /// Returns the worst of all windows.
    pub(super) fn round(&self, limit: u64) -> Round {
        let windows = || self.windows.values();
        Round {
            limit,
            admitted: windows().map(|window| window.admitted).max().unwrap_or(0),
            exact: windows().map(|window| window.exact).max().unwrap_or(0),
            healthy: self.healthy,
            healthy_exact: self.healthy_exact,
            came_back: true,
            understated: windows().any(|window| window.admitted > limit.saturating_add(window.bound)),
            ..Round::default()
        }
    }
}
