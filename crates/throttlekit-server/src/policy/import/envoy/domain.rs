//! Import of one domain.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::super::super::check::NAME_CHARS_MAX;
use super::super::super::envoy::{DomainSpec, EntrySpec, RuleSpec};
use super::super::super::error::did_you_mean;
use super::super::super::model::{Algorithm, Period, PolicySpec, RateSpec};
use super::super::super::span::Span;
use super::super::super::tree::shown;
use super::super::Wrong;
use super::wire::{Descriptor, RateLimit};

/// Units of time, as that service counts them: a month has 30 days, a year 365.
const UNITS: [(&str, u64); 7] = [
    ("second", 1),
    ("minute", 60),
    ("hour", 3_600),
    ("day", 86_400),
    ("week", 7 * 86_400),
    ("month", 30 * 86_400),
    ("year", 365 * 86_400),
];

/// A domain while it is imported.
pub(super) struct OneDomain<'i> {
    policies: &'i mut BTreeMap<String, PolicySpec>,
    notes: &'i mut Vec<String>,
    domain: String,
    rules: Vec<RuleSpec>,
    /// Policies by the name of their limit. Several limits may have one name.
    named: HashMap<String, Vec<String>>,
    /// Names of limits that a rule, by its index, replaces.
    replaces: Vec<(usize, Vec<String>)>,
    errors: Vec<Wrong>,
}

impl<'i> OneDomain<'i> {
    pub(super) fn new(
        policies: &'i mut BTreeMap<String, PolicySpec>,
        notes: &'i mut Vec<String>,
        domain: &str,
    ) -> Self {
        let (domain, rules, errors) = (domain.to_owned(), Vec::new(), Vec::new());
        Self { policies, notes, domain, rules, named: HashMap::new(), replaces: Vec::new(), errors }
    }

    pub(super) fn wrong(&mut self, at: String, message: String) {
        self.errors.push((at, message));
    }

    pub(super) fn walk(&mut self, at: &str, level: &[Descriptor], above: &[EntrySpec]) {
        let mut seen = HashMap::new();
        for (index, descriptor) in level.iter().enumerate() {
            let at = format!("{at}[{index}]");
            let entry = self.entry(&at, descriptor);
            if let Some(first) = seen.insert((entry.key.clone(), entry.value.clone()), index) {
                let message =
                    format!("duplicate of descriptor {first} of this list (same key and value): keep one");
                self.wrong(at, message);
                continue;
            }
            let entries: Vec<EntrySpec> = above.iter().cloned().chain([entry]).collect();
            self.remark(&entries, descriptor);
            let inner = descriptor.descriptors.as_deref().unwrap_or_default();
            match &descriptor.rate_limit {
                Some(limit) => self.limit(&at, descriptor, limit, &entries),
                // A value without a limit is allowed, though its key may have one.
                None if inner.is_empty() || has_wider(level, descriptor) => {
                    let entries = entries.clone();
                    self.rules.push(RuleSpec { entries, unlimited: true, ..RuleSpec::default() });
                }
                None => {}
            }
            self.walk(&format!("{at}.descriptors"), inner, &entries);
        }
    }

    fn limit(&mut self, at: &str, spec: &Descriptor, limit: &RateLimit, entries: &[EntrySpec]) {
        let at = format!("{at}.rate_limit");
        let replaced: Vec<_> = limit.replaces.iter().flatten().map(|other| other.name.clone()).collect();
        if !replaced.is_empty() {
            self.replaces.push((self.rules.len(), replaced));
        }
        let entries = entries.to_vec();
        if limit.unlimited {
            if limit.unit.is_some() {
                let message = "`unlimited` and `unit` contradict each other: keep one";
                self.wrong(format!("{at}.unit"), message.into());
            }
            self.rules.push(RuleSpec { entries, unlimited: true, ..RuleSpec::default() });
            return;
        }
        let name = self.free_name(&entries);
        let description = limit.name.as_ref().map(|name| format!("Was named {name}."));
        let policy = PolicySpec { description, shadow: spec.shadow_mode, ..PolicySpec::default() };
        let policy = match self.rate(&at, limit) {
            Some(rate) => PolicySpec { rate: vec![rate], ..policy },
            None => PolicySpec { deny: true, ..policy },
        };
        self.policies.insert(name.clone(), policy);
        if let Some(named) = &limit.name {
            self.named.entry(named.clone()).or_default().push(name.clone());
        }
        self.rules.push(RuleSpec { entries, policy: Some(name), ..RuleSpec::default() });
    }

    /// Converts a limit. `None` if it denies everything, or after an error.
    fn rate(&mut self, at: &str, limit: &RateLimit) -> Option<RateSpec> {
        let unit = limit.unit.as_deref().unwrap_or_default();
        let seconds =
            UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, seconds)| *seconds);
        if seconds.is_none() {
            let hint = did_you_mean(unit, UNITS.iter().map(|(name, _)| *name));
            let hint = if hint.is_empty() { "." } else { &hint };
            let units = "second, minute, hour, day, week, month, year";
            self.wrong(format!("{at}.unit"), format!("unknown unit `{}`{hint} Units: {units}", shown(unit)));
        }
        let times = limit.unit_multiplier.unwrap_or(1);
        let whole = seconds.unwrap_or(1).checked_mul(times).filter(|seconds| *seconds > 0);
        if whole.is_none() {
            let message = "out of range: expected at least 1, and a window below 100 years";
            self.wrong(format!("{at}.unit_multiplier"), message.into());
        }
        if limit.requests_per_unit.is_none() {
            let message = "missing key `requests_per_unit`: add it; 0 denies everything";
            self.wrong(at.to_owned(), message.into());
        }
        let requests = limit.requests_per_unit.filter(|requests| *requests > 0)?;
        let window = Period::Span(Span(Duration::from_secs(whole?)));
        Some(RateSpec::new(Algorithm::FixedWindow, requests, window))
    }

    fn entry(&mut self, at: &str, descriptor: &Descriptor) -> EntrySpec {
        let value = descriptor.value.clone().filter(|value| !value.is_empty());
        let stars = value.as_ref().map_or(0, |value| value.matches('*').count());
        let prefix = value.as_ref().is_some_and(|value| value.ends_with('*'));
        if descriptor.key.is_empty() {
            self.wrong(format!("{at}.key"), "missing key of a descriptor".into());
        }
        if stars > usize::from(prefix) {
            let message = "only a `*` at the end is a wildcard: write a rule for each prefix";
            self.wrong(format!("{at}.value"), message.into());
        }
        if descriptor.share_threshold && !prefix {
            let message = "share_threshold applies only to values that end in `*`: remove it";
            self.wrong(format!("{at}.share_threshold"), message.into());
        }
        let (key, shared) = (descriptor.key.clone(), descriptor.share_threshold);
        EntrySpec { key, value, shared, ..EntrySpec::default() }
    }

    /// Notes what is not kept, and changes no decision or only rare ones.
    fn remark(&mut self, entries: &[EntrySpec], descriptor: &Descriptor) {
        let path = path_of(entries);
        if descriptor.detailed_metric || descriptor.value_to_metric {
            self.notes.push(format!(
                "{path}: detailed_metric and value_to_metric are ignored: metrics are labeled by policy, \
                 without values"
            ));
        }
        if descriptor.quota_mode {
            self.notes.push(format!("{path}: quota_mode is ignored: the limit denies like any other"));
        }
        if descriptor.shadow_mode && descriptor.rate_limit.is_none() {
            self.notes.push(format!("{path}: shadow_mode is ignored: the descriptor has no limit"));
        }
    }

    /// Returns a name made of domain and path that no other policy has.
    fn free_name(&self, entries: &[EntrySpec]) -> String {
        let whole = format!("{}/{}", self.domain, path_of(entries));
        let clean = |c: char| if c.is_whitespace() || c.is_control() { '_' } else { c };
        // Leaves space for a number at the end.
        let stem: String = whole.chars().map(clean).take(NAME_CHARS_MAX - 8).collect();
        let numbered = (2..).map(|number| format!("{stem}~{number}"));
        std::iter::once(stem.clone())
            .chain(numbered)
            .find(|name| !self.policies.contains_key(name))
            .unwrap_or(stem)
    }

    /// Returns the domain, and all errors.
    pub(super) fn end(mut self) -> (DomainSpec, Vec<Wrong>) {
        for (index, names) in std::mem::take(&mut self.replaces) {
            self.replace(index, &names);
        }
        let (domain, rules) = (self.domain, self.rules);
        (DomainSpec { domain, rules, tree: true, ..DomainSpec::default() }, self.errors)
    }

    /// Replaces the names of limits by those of their policies, now that all are known.
    fn replace(&mut self, index: usize, names: &[String]) {
        let Some(rule) = self.rules.get_mut(index) else { return };
        for name in names {
            let policies = self.named.get(name).into_iter().flatten();
            let others: Vec<_> = policies.filter(|policy| rule.policy.as_ref() != Some(*policy)).collect();
            if others.is_empty() {
                self.notes.push(format!(
                    "{}: `replaces` is ignored for `{}`: no other limit of the domain has this name",
                    path_of(&rule.entries),
                    shown(name)
                ));
            }
            for policy in others {
                if !rule.replaces.contains(policy) {
                    rule.replaces.push(policy.clone());
                }
            }
        }
    }
}

/// Checks whether a sibling matches what `descriptor` does, and more.
fn has_wider(level: &[Descriptor], descriptor: &Descriptor) -> bool {
    let value = descriptor.value.as_deref().unwrap_or_default();
    let wider = |other: &Descriptor| match other.value.as_deref().unwrap_or_default() {
        "" => !value.is_empty(),
        other => other != value && other.strip_suffix('*').is_some_and(|prefix| value.starts_with(prefix)),
    };
    level.iter().any(|other| other.key == descriptor.key && wider(other))
}

fn path_of(entries: &[EntrySpec]) -> String {
    let steps = entries.iter().map(|entry| match &entry.value {
        Some(value) => format!("{}={value}", entry.key),
        None => entry.key.clone(),
    });
    steps.collect::<Vec<_>>().join("/")
}
