//! Counts of descriptors, by the rule that matched them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::policy::{DomainSpec, EntrySpec, PolicyFile, RuleSpec};
use crate::telemetry::EnvoyRuleStats;

/// Maximum number of rules that are counted separately; further ones are counted together.
pub(super) const RULES_MAX: usize = 1_000;
/// Name of what they are counted as.
const OTHERS: &str = "other";

/// The counts of all rules of a file.
#[derive(Default)]
pub(super) struct RuleCounts {
    /// By the index of the rule.
    rules: Vec<Arc<Count>>,
    /// By domain and entries, each once.
    named: HashMap<(Box<str>, Box<str>), Arc<Count>>,
}

#[derive(Default)]
struct Count {
    within_limit: AtomicU64,
    over_limit: AtomicU64,
}

impl RuleCounts {
    /// Creates the counts of a file. Rules that were in the previous one continue theirs.
    pub(super) fn of(file: &PolicyFile, previous: &Self) -> Self {
        let mut counts = Self::default();
        for (domain, rule) in
            file.envoy.iter().flat_map(|domain| domain.rules.iter().map(move |rule| (domain, rule)))
        {
            let count = counts.named(name(domain, rule), previous);
            counts.rules.push(count);
        }
        counts
    }

    fn named(&mut self, name: (Box<str>, Box<str>), previous: &Self) -> Arc<Count> {
        let is_known = self.named.contains_key(&name);
        // One place is for the others.
        let name =
            if is_known || self.named.len() + 1 < RULES_MAX { name } else { (OTHERS.into(), OTHERS.into()) };
        let before = previous.named.get(&name);
        self.named.entry(name).or_insert_with(|| before.cloned().unwrap_or_default()).clone()
    }

    /// Counts a descriptor of a rule.
    pub(super) fn count(&self, rule: usize, is_over: bool) {
        let Some(count) = self.rules.get(rule) else { return };
        let count = if is_over { &count.over_limit } else { &count.within_limit };
        count.fetch_add(1, Relaxed);
    }

    pub(super) fn stats(&self) -> Vec<EnvoyRuleStats> {
        let stats = |((domain, entries), count): (&(Box<str>, Box<str>), &Arc<Count>)| EnvoyRuleStats {
            domain: domain.clone(),
            entries: entries.clone(),
            within_limit: count.within_limit.load(Relaxed),
            over_limit: count.over_limit.load(Relaxed),
        };
        let mut all: Vec<_> = self.named.iter().map(stats).collect();
        all.sort_by(|one, other| (&one.domain, &one.entries).cmp(&(&other.domain, &other.entries)));
        all
    }
}

/// Returns the domain, and the entries as `key`, or `key=value`.
fn name(domain: &DomainSpec, rule: &RuleSpec) -> (Box<str>, Box<str>) {
    let entry = |entry: &EntrySpec| match &entry.value {
        Some(value) => format!("{}={value}", entry.key),
        None => entry.key.clone(),
    };
    let entries: Vec<_> = rule.entries.iter().map(entry).collect();
    (domain.domain.as_str().into(), entries.join(",").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(rules: usize) -> PolicyFile {
        let rule =
            |number| serde_json::json!({ "entries": [{ "key": format!("k{number}") }], "policy": "p" });
        let rules: Vec<_> = (0..rules).map(rule).collect();
        let policy = serde_json::json!({ "rate": { "limit": 1, "per": "1s" } });
        let file = serde_json::json!({
            "version": 1, "policies": { "p": policy }, "envoy": [{ "domain": "d", "rules": rules }],
        });
        serde_json::from_value(file).unwrap()
    }

    #[test]
    fn a_new_file_continues_the_counts_of_its_rules_and_drops_the_others() {
        let first = RuleCounts::of(&file(3), &RuleCounts::default());
        first.count(0, false);
        first.count(2, true);
        let second = RuleCounts::of(&file(1), &first);
        second.count(0, false);
        let stats = second.stats();
        assert_eq!((stats.len(), &*stats[0].entries, stats[0].within_limit), (1, "k0", 2));
    }

    #[test]
    fn rules_beyond_the_maximum_are_counted_together() {
        let counts = RuleCounts::of(&file(RULES_MAX + 500), &RuleCounts::default());
        (0..RULES_MAX + 500).for_each(|rule| counts.count(rule, false));
        let stats = counts.stats();
        assert_eq!(stats.len(), RULES_MAX);
        let others = stats.iter().find(|stats| &*stats.domain == OTHERS).unwrap();
        assert_eq!(others.within_limit, 501);
        assert_eq!(stats.iter().map(|stats| stats.within_limit).sum::<u64>(), RULES_MAX as u64 + 500);
    }
}
