//! Import of files of the rate limit service that Envoy's documentation describes.
//!
//! There a file is one domain with a tree of descriptors. Here each limit of the tree becomes a policy, and the path to
//! it a rule of the domain. Limits are fixed windows aligned to the epoch, as they are there.

mod wire;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::check::{Finding, NAME_CHARS_MAX, Severity, VERSION, check};
use super::envoy::{DomainSpec, EntrySpec, RuleSpec};
use super::error::{PolicyError, did_you_mean};
use super::load::located;
use super::model::{Algorithm, Period, PolicyFile, PolicySpec, RateSpec};
use super::read;
use super::span::Span;
use super::tree::{self, shown};
use wire::{Descriptor, Domain, RateLimit};

/// Result of an import.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// The same limits as policies.
    pub file: PolicyFile,
    /// Differences, and points to check.
    pub notes: Vec<String>,
}

/// Imports a file of `envoyproxy/ratelimit`.
///
/// Nothing is dropped silently: what cannot be kept is an error, what matters less is a note.
pub fn import_envoy(text: &str) -> Result<Imported, PolicyError> {
    let root = tree::parse(text)?;
    let domain: Domain = read::read(text, &root)?;
    let mut import = Import::new(&domain.domain);
    let wrong = |(path, message): Wrong| {
        let severity = Severity::Error;
        located(text, &root, Finding { path, severity, message, place: None })
    };
    if domain.domain.is_empty() {
        return Err(wrong((
            "domain".into(),
            "missing domain name: use the one that Envoy's filter sends".into(),
        )));
    }
    import.walk("descriptors", &domain.descriptors.unwrap_or_default(), &[]).map_err(wrong)?;
    let imported = import.finish();
    match check(&imported.file).into_iter().find(|finding| finding.severity == Severity::Error) {
        Some(found) => Err(PolicyError::at(text, found.path, None, found.message)),
        None => Ok(imported),
    }
}

/// A path into the imported file, and the error there.
type Wrong = (String, String);

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

struct Import {
    domain: String,
    policies: BTreeMap<String, PolicySpec>,
    rules: Vec<RuleSpec>,
    notes: Vec<String>,
}

impl Import {
    fn new(domain: &str) -> Self {
        Self { domain: domain.to_owned(), policies: BTreeMap::new(), rules: Vec::new(), notes: Vec::new() }
    }

    fn walk(&mut self, at: &str, level: &[Descriptor], above: &[EntrySpec]) -> Result<(), Wrong> {
        let mut seen = HashMap::new();
        for (index, descriptor) in level.iter().enumerate() {
            let at = format!("{at}[{index}]");
            let entry = entry(&at, descriptor)?;
            if let Some(first) = seen.insert((entry.key.clone(), entry.value.clone()), index) {
                return Err((
                    at,
                    format!("duplicate of descriptor {first} of this list (same key and value): keep one"),
                ));
            }
            let entries: Vec<EntrySpec> = above.iter().cloned().chain([entry]).collect();
            self.remark(&entries, descriptor);
            let inner = descriptor.descriptors.as_deref().unwrap_or_default();
            match &descriptor.rate_limit {
                Some(limit) => self.limit(&at, descriptor, limit, &entries)?,
                // A value without a limit is allowed, though its key may have one.
                None if inner.is_empty() || has_wider(level, descriptor) => {
                    self.rules.push(RuleSpec { entries: entries.clone(), policy: None, unlimited: true });
                }
                None => {}
            }
            self.walk(&format!("{at}.descriptors"), inner, &entries)?;
        }
        Ok(())
    }

    fn limit(
        &mut self,
        at: &str,
        spec: &Descriptor,
        limit: &RateLimit,
        entries: &[EntrySpec],
    ) -> Result<(), Wrong> {
        let at = format!("{at}.rate_limit");
        let path = path_of(entries);
        if let Some(replaced) = limit.replaces.as_ref().filter(|names| !names.is_empty()) {
            let names: Vec<_> =
                replaced.iter().map(|replaced| format!("`{}`", shown(&replaced.name))).collect();
            self.notes.push(format!(
                "{path}: `replaces` is not supported: {} still applies where both match, so less is allowed \
                 than before",
                names.join(", ")
            ));
        }
        if limit.unlimited {
            if limit.unit.is_some() {
                return Err((
                    format!("{at}.unit"),
                    "`unlimited` and `unit` contradict each other: keep one".into(),
                ));
            }
            self.rules.push(RuleSpec { entries: entries.to_vec(), policy: None, unlimited: true });
            return Ok(());
        }
        let rate = rate(&at, limit)?;
        let name = self.free_name(entries);
        let description = limit.name.as_ref().map(|name| format!("Was named {name}."));
        let policy =
            PolicySpec { description, rate: vec![rate], shadow: spec.shadow_mode, ..PolicySpec::default() };
        self.policies.insert(name.clone(), policy);
        self.rules.push(RuleSpec { entries: entries.to_vec(), policy: Some(name), unlimited: false });
        Ok(())
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

    fn finish(self) -> Imported {
        let domain =
            DomainSpec { domain: self.domain, rules: self.rules, tree: true, ..DomainSpec::default() };
        let file = PolicyFile {
            version: VERSION,
            policies: self.policies,
            envoy: vec![domain],
            ..PolicyFile::default()
        };
        Imported { file, notes: self.notes }
    }
}

fn entry(at: &str, descriptor: &Descriptor) -> Result<EntrySpec, Wrong> {
    let value = descriptor.value.clone().filter(|value| !value.is_empty());
    let stars = value.as_ref().map_or(0, |value| value.matches('*').count());
    let prefix = value.as_ref().is_some_and(|value| value.ends_with('*'));
    if descriptor.key.is_empty() {
        return Err((format!("{at}.key"), "missing key of a descriptor".into()));
    }
    if stars > usize::from(prefix) {
        let message = "only a `*` at the end is a wildcard: write a rule for each prefix";
        return Err((format!("{at}.value"), message.into()));
    }
    if descriptor.share_threshold && !prefix {
        let message = "share_threshold applies only to values that end in `*`: remove it";
        return Err((format!("{at}.share_threshold"), message.into()));
    }
    Ok(EntrySpec {
        key: descriptor.key.clone(),
        value,
        shared: descriptor.share_threshold,
        ..EntrySpec::default()
    })
}

fn rate(at: &str, limit: &RateLimit) -> Result<RateSpec, Wrong> {
    let unit = limit.unit.as_deref().unwrap_or_default();
    let Some((_, seconds)) = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) else {
        let hint = did_you_mean(unit, UNITS.iter().map(|(name, _)| *name));
        let hint = if hint.is_empty() { "." } else { &hint };
        let message = format!(
            "unknown unit `{}`{hint} Units: second, minute, hour, day, week, month, year",
            shown(unit)
        );
        return Err((format!("{at}.unit"), message));
    };
    let seconds = limit.unit_multiplier.unwrap_or(1).checked_mul(*seconds).filter(|seconds| *seconds > 0);
    let Some(seconds) = seconds else {
        return Err((
            format!("{at}.unit_multiplier"),
            "out of range: expected at least 1, and a window below 100 years".into(),
        ));
    };
    let Some(requests) = limit.requests_per_unit.filter(|requests| *requests > 0) else {
        let message = "a limit of 0 is not supported: reject such requests in Envoy itself";
        return Err((format!("{at}.requests_per_unit"), message.into()));
    };
    Ok(RateSpec {
        name: None,
        algorithm: Algorithm::FixedWindow,
        limit: requests,
        per: Period::Span(Span(Duration::from_secs(seconds))),
        burst: None,
        buckets: None,
        early_retry: false,
        utc_offset_minutes: 0,
        by: 0,
        lease: None,
    })
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
