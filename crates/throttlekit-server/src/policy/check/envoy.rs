//! The rules for Envoy's descriptors.

use std::collections::HashSet;

use super::super::defaults::KEYS_MAX;
use super::super::envoy::{EntrySpec, RuleSpec};
use super::super::error::did_you_mean;
use super::super::model::{Algorithm, PolicyFile, PolicySpec, RateSpec};
use super::super::tree::shown;
use super::{At, Report};

/// Maximum number of rules of all domains.
pub const RULES_MAX: usize = 10_000;
/// Maximum number of entries of one rule.
pub const ENTRIES_MAX: usize = 16;

/// Maximum number of findings with a search for what was meant.
const HINTS_MAX: usize = 5;

pub(super) fn check(file: &PolicyFile, report: &mut Report) {
    let all = At::key("envoy");
    let mut domains = HashSet::new();
    for (index, domain) in file.envoy.iter().enumerate() {
        let at = all.index(index);
        if domain.domain.is_empty() {
            report.error(&at.then("domain"), "missing domain name: use the one that Envoy's filter sends");
        }
        if !domains.insert(&domain.domain) {
            let message = format!("duplicate domain `{}`: merge its rules", shown(&domain.domain));
            report.error(&at.then("domain"), message);
        }
        let mut matches = HashSet::new();
        for (index, rule) in domain.rules.iter().enumerate() {
            let at = at.then("rules").index(index);
            one_rule(&at, rule, file, report);
            let shape: Vec<_> = rule.entries.iter().map(|entry| (&entry.key, &entry.value)).collect();
            if !matches.insert(shape) {
                report.error(&at, "another rule matches the same descriptors: keep one of them");
            }
        }
    }
}

fn one_rule(at: &At, rule: &RuleSpec, file: &PolicyFile, report: &mut Report) {
    if rule.entries.is_empty() || rule.entries.len() > ENTRIES_MAX {
        let message = format!("a rule has 1 to {ENTRIES_MAX} entries, found {}", rule.entries.len());
        report.error(&at.then("entries"), message);
    }
    rule.entries
        .iter()
        .enumerate()
        .for_each(|(i, entry)| one_entry(&at.then("entries").index(i), entry, report));
    for (index, name) in rule.replaces.iter().enumerate() {
        let at = at.then("replaces").index(index);
        if rule.policy.as_ref() == Some(name) {
            report.error(&at, "the rule would replace its own policy: remove it");
        } else if !file.policies.contains_key(name) {
            unknown(&at, name, file, report);
        }
    }
    match (&rule.policy, rule.unlimited) {
        (Some(_), true) => {
            report.error(&at.then("policy"), "`unlimited` and a policy contradict each other: keep one");
        }
        (None, false) => report.error(at, "the rule has no policy: set `policy` or `unlimited: true`"),
        (None, true) => {}
        (Some(name), false) => leads_to(&at.then("policy"), name, rule, file, report),
    }
}

fn leads_to(at: &At, name: &str, rule: &RuleSpec, file: &PolicyFile, report: &mut Report) {
    let Some(policy) = file.policies.get(name) else { return unknown(at, name, file, report) };
    if policy.concurrency.is_some() {
        report.error(at, "this policy holds slots, which Envoy never releases: use one without concurrency");
    }
    counting(at, rule, policy, report);
    let counted = policy
        .rate
        .iter()
        .map(|rate| rate.by)
        .chain(policy.cost.iter().filter_map(|cost| cost.by.first().copied()));
    let brought = |by: &u8| *by == 0 || rule.entries.iter().any(|entry| entry.by == *by);
    if let Some(by) = counted.filter(|by| !brought(by)).min() {
        report.error(
            at,
            format!("this policy counts by key {by} of a call, which no entry sets: add `by: {by}` to one"),
        );
    }
    if policy.fleet.is_some() {
        report.warning(at, "clients lease units of this policy: Envoy's requests are counted in addition");
    }
}

fn unknown(at: &At, name: &str, file: &PolicyFile, report: &mut Report) {
    let names = file.policies.keys().map(String::as_str);
    let hint = if report.findings.len() < HINTS_MAX { did_you_mean(name, names) } else { String::new() };
    report.error(at, format!("unknown policy `{}`{hint}", shown(name)));
}

fn one_entry(at: &At, entry: &EntrySpec, report: &mut Report) {
    if entry.key.is_empty() {
        report.error(&at.then("key"), "missing key of an entry");
    }
    let prefix = entry.value.as_ref().is_some_and(|value| value.ends_with('*'));
    if entry.shared && !prefix {
        report.error(
            &at.then("shared"),
            "only the values of a prefix, such as `abc*`, can be counted together",
        );
    }
    if usize::from(entry.by) >= KEYS_MAX {
        report
            .error(&at.then("by"), format!("invalid key index: a call has {KEYS_MAX} keys, counted from 0"));
    }
    let apart = !entry.shared && (entry.value.is_none() || prefix);
    if entry.by > 0 && !apart {
        report.error(
            &at.then("by"),
            "its value is not counted separately, so it is not part of a key: remove `by`",
        );
    }
}

/// Checks that the policy of a rule can count as the rule wants.
fn counting(at: &At, rule: &RuleSpec, policy: &PolicySpec, report: &mut Report) {
    if policy.deny {
        return;
    }
    let others = policy.fair.is_some() || policy.price.is_some() || policy.concurrency.is_some();
    let rates_only = !policy.rate.is_empty() && policy.cost.is_empty() && !others;
    let budget_only = policy.rate.is_empty() && !policy.cost.is_empty() && !others;
    let leased = policy.rate.iter().any(|rate| rate.lease.is_some());
    if rule.debit && (!(rates_only || budget_only) || leased) {
        report.error(at, "`debit` needs a policy with rates only, without `lease`, or with only a cost");
    }
    let slides = |rate: &RateSpec| matches!(rate.algorithm, Algorithm::SlidingWindow | Algorithm::SlidingLog);
    if rule.allow_refunds && (!(rates_only || budget_only) || leased || policy.rate.iter().any(slides)) {
        report.error(
            at,
            "`allow_refunds` needs a policy with rates only, or with only a cost; without `lease`, \
             sliding_window and sliding_log",
        );
    }
    let quota = policy.rate.iter().any(|rate| rate.algorithm == Algorithm::Quota);
    if rule.allow_limit_override && (!rates_only || policy.rate.len() != 1 || leased || quota) {
        report.error(at, "`allow_limit_override` needs a policy with one rate, without `lease` and quota");
    }
    if rule.allow_limit_override && rule.debit {
        report.error(at, "`debit` counts whatever the limit is: remove `allow_limit_override`");
    }
}
