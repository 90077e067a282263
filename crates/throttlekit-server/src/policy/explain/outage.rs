//! The behavior during an outage of the store.

use throttlekit::Limit;

use super::super::model::{OutageSpec, PolicySpec, Scope};
use super::format::count;

pub(super) fn outage(policy: &PolicySpec, choice: OutageSpec) -> Vec<String> {
    let limits = limits(policy);
    let on_store =
        policy.concurrency.as_ref().is_some_and(|slots| matches!(slots.scope, Scope::Key | Scope::Fleet));
    if limits.is_empty() && policy.concurrency.is_none() {
        return Vec::new();
    }
    if limits.is_empty() && !on_store {
        return vec!["Counted in each server separately, without the store.".into()];
    }
    let away = match choice {
        OutageSpec::Closed => "While the store is unavailable, calls are rejected (fail closed).".into(),
        OutageSpec::Open => {
            "While the store is unavailable, everything is allowed and not counted (fail open).".into()
        }
        OutageSpec::Local { nodes } => {
            let shares: Vec<String> = limits.iter().map(|(name, limit)| share(name, limit, nodes)).collect();
            let shares = if shares.is_empty() { "its share".into() } else { shares.join("; ") };
            format!(
                "While the store is unavailable, each of at most {} servers continues with {shares}.",
                count(nodes.get().into())
            )
        }
    };
    vec![format!("Counted on the store that all servers share. {away}")]
}

/// Returns every valid limit of the policy, with its name.
fn limits(policy: &PolicySpec) -> Vec<(String, Limit)> {
    let rates = policy.rate.iter().map(|rate| {
        let name = rate.name.as_ref().map_or("the rate".to_owned(), |name| format!("`{name}`"));
        (name, rate.to_limit())
    });
    let cost = policy.cost.iter().map(|cost| {
        let name = cost.name.as_ref().map_or("the cost".to_owned(), |name| format!("`{name}`"));
        (name, cost.to_limit())
    });
    let fair = policy.fair.iter().map(|fair| ("the fair budget".to_owned(), fair.to_limit()));
    rates.chain(cost).chain(fair).filter_map(|(name, limit)| Some((name, limit.ok()?))).collect()
}

fn share(name: &str, limit: &Limit, nodes: std::num::NonZeroU32) -> String {
    match limit.share(nodes) {
        None => format!("nothing of {name} (its share is less than one unit)"),
        Some(part) => {
            let total = part.units().saturating_mul(nodes.get().into());
            let (part, total, all) = (count(part.units()), count(total), count(limit.units()));
            match limit {
                Limit::Gcra(_) => format!(
                    "a burst of {part} for {name}, refilled at 1/{nodes} of its speed (all servers \
                     together: {total} of {all})"
                ),
                _ => format!("{part} per window for {name} (all servers together: {total} of {all})"),
            }
        }
    }
}
