//! The audit log, and counts of what operators did.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The target of all events of the audit log.
pub(crate) const AUDIT: &str = "throttlekit::audit";

/// An action of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Reset,
    Grant,
    SetOverride,
    RemoveOverride,
    ListOverrides,
    SetPlan,
    RemovePlan,
    ListPlans,
    ListLeases,
    ReleaseLeases,
    Drain,
    Reload,
    SetLogFilter,
    GetConfig,
}

/// The label of each action, in the order of the actions.
const LABELS: [&str; 14] = [
    "reset",
    "grant",
    "set_override",
    "remove_override",
    "list_overrides",
    "set_plan",
    "remove_plan",
    "list_plans",
    "list_leases",
    "release_leases",
    "drain",
    "reload",
    "set_log_filter",
    "get_config",
];

/// Counts of actions that were done.
#[derive(Debug, Default)]
pub(crate) struct Actions([AtomicU64; LABELS.len()]);

impl Action {
    /// Returns its label in metrics and in the audit log.
    pub(crate) fn label(self) -> &'static str {
        LABELS[self as usize]
    }
}

impl Actions {
    pub(crate) fn count(&self, action: Action) {
        self.0[action as usize].fetch_add(1, Relaxed);
    }

    /// Returns all counts so far, by label.
    pub(crate) fn counts(&self) -> [(&'static str, u64); LABELS.len()] {
        std::array::from_fn(|index| (LABELS[index], self.0[index].load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_action_is_counted_under_its_label() {
        let actions = Actions::default();
        actions.count(Action::Reset);
        actions.count(Action::GetConfig);
        actions.count(Action::GetConfig);
        let counts = actions.counts();
        assert_eq!((counts[0], counts[13]), (("reset", 1), ("get_config", 2)));
    }
}
