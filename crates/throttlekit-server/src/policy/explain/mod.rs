//! An explanation of a file: what it allows, in exact numbers.

mod axes;
mod format;
mod outage;
mod rate;

use std::fmt::Write as _;

use super::check::{Finding, check};
use super::model::{Defaults, OverrideSpec, PolicyFile, PolicySpec};
use format::{count, list};

/// Maximum number of overrides and weights that are listed individually.
const LISTED_MAX: usize = 20;

/// Explains each policy of a file in a paragraph, followed by the findings for its author.
pub fn explain(file: &PolicyFile) -> String {
    let mut text = String::new();
    for (name, policy) in &file.policies {
        paragraph(&mut text, name, policy, &file.defaults);
        text.push('\n');
    }
    envoy(&mut text, file);
    let findings: String = check(file).iter().map(Finding::to_string).map(|line| line + "\n").collect();
    if findings.is_empty() {
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text + &findings
}

fn paragraph(text: &mut String, name: &str, policy: &PolicySpec, defaults: &Defaults) {
    let about = policy.description.as_ref().map_or(String::new(), |about| format!(" {}", about.trim()));
    let _ = writeln!(text, "{name}:{about}");
    let counts = counts(policy, None);
    let choice = policy.on_outage.or(defaults.on_outage).unwrap_or_default();
    let overrides = policy.overrides.iter().take(LISTED_MAX).map(|(key, spec)| overridden(key, spec, policy));
    let more = policy.overrides.len().saturating_sub(LISTED_MAX) as u64;
    let sentences = (mode(policy).into_iter())
        .chain(policy.concurrency.as_ref().map(axes::concurrency))
        .chain(policy.rate.iter().map(|one| rate::rate(one, counts)))
        .chain(policy.cost.iter().map(axes::cost))
        .chain(policy.fair.as_ref().map(axes::fair))
        .chain(policy.price.as_ref().map(axes::price))
        .chain(policy.learn.as_ref().map(axes::learn))
        .chain(policy.wait.as_ref().map(axes::wait))
        .chain(policy.fleet.as_ref().map(|fleet| rate::reserved(fleet, policy.rate.first())))
        .chain(policy.rate.iter().filter_map(rate::lease))
        .chain(outage::outage(policy, choice))
        .chain(overrides)
        .chain((more > 0).then(|| format!("And {} more overrides.", count(more))));
    for sentence in sentences {
        let _ = writeln!(text, "  {sentence}");
    }
}

fn mode(policy: &PolicySpec) -> Option<String> {
    if policy.disabled {
        return Some("Disabled: everything is allowed, and nothing is checked or counted.".into());
    }
    if policy.deny {
        let denied = "Blocked: everything is denied, and nothing is checked or counted.";
        let shadow = if policy.shadow { " In shadow mode, every call is allowed all the same." } else { "" };
        return Some(format!("{denied}{shadow}"));
    }
    let shadow = "Shadow mode: decisions are made and counted, but every call is allowed.";
    policy.shadow.then(|| shadow.into())
}

/// Returns what rates count: if a cost or a fair budget counts the cost of a call, its rates count calls.
fn counts(policy: &PolicySpec, spec: Option<&OverrideSpec>) -> rate::Counts {
    let elsewhere =
        !policy.cost.is_empty() || policy.fair.is_some() || spec.is_some_and(|spec| !spec.cost.is_empty());
    if elsewhere { rate::Counts::Calls } else { rate::Counts::Units }
}

fn overridden(key: &str, spec: &OverrideSpec, policy: &PolicySpec) -> String {
    let who = match key.strip_suffix('*') {
        Some(prefix) => format!("Keys that start with `{prefix}`"),
        None => format!("The key `{key}`"),
    };
    if spec.unlimited {
        return format!("{who}: always allowed, not counted.");
    }
    if spec.deny {
        return format!("{who}: always denied, not counted.");
    }
    let counts = counts(policy, Some(spec));
    let rates = spec.rate.iter().map(|one| rate::rate(one, counts));
    let all: Vec<String> = rates.chain(spec.cost.iter().map(axes::cost)).collect();
    if all.is_empty() {
        format!("{who}: same as the policy.")
    } else {
        format!("{who} instead: {}", all.join(" "))
    }
}

fn envoy(text: &mut String, file: &PolicyFile) {
    for domain in &file.envoy {
        let _ = writeln!(text, "Envoy domain {}:", domain.domain);
        for rule in domain.rules.iter().take(LISTED_MAX) {
            let entries = rule.entries.iter().map(|entry| match &entry.value {
                None => format!("any {} (counted separately)", entry.key),
                Some(value) if entry.shared => format!("{} {value} (counted together)", entry.key),
                Some(value) if value.ends_with('*') => format!("{} {value} (counted separately)", entry.key),
                Some(value) => format!("{} {value}", entry.key),
            });
            let leads = rule
                .policy
                .as_ref()
                .map_or("is always allowed".to_owned(), |policy| format!("uses policy {policy}"));
            let named = rule.replaces.iter().map(|policy| format!("policy {policy}"));
            let replaced = match rule.replaces.is_empty() {
                true => String::new(),
                false => format!(", and replaces {}", list(named.collect(), " and ")),
            };
            let _ =
                writeln!(text, "  A descriptor of {} {leads}{replaced}.", list(entries.collect(), " and "));
        }
        if domain.rules.len() > LISTED_MAX {
            let _ = writeln!(text, "  And {} more rules.", count((domain.rules.len() - LISTED_MAX) as u64));
        }
        text.push('\n');
    }
}
