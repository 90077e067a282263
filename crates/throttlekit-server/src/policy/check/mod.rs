//! Checks of the meaning of a file: numbers in range, compatible parts, names that exist.

mod access;
mod axes;
mod envoy;
mod rates;
mod trial;

use std::fmt;

use super::error::{Place, step};
use super::model::{OutageSpec, PolicyFile, PolicySpec};
use super::tree::shown;

/// Version of the format that this server reads.
pub const VERSION: u32 = 1;
/// Maximum number of policies of a file.
pub const POLICIES_MAX: usize = 10_000;
/// Maximum number of overrides of a policy.
pub const OVERRIDES_MAX: usize = 10_000;
/// Maximum length of a name, in characters.
pub const NAME_CHARS_MAX: usize = 128;
pub use axes::{BY_MAX, LEASE_FOR_ON_STORE_MAX, LEASE_LIVES_MAX, WEIGHTS_MAX};
pub use envoy::{ENTRIES_MAX, RULES_MAX};
pub use rates::{COST_NAME, ON_STORE_MAX, RATES_MAX};

/// A finding about a file for its author.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Path: `policies.api.rate[0].per`.
    pub path: String,
    /// Severity.
    pub severity: Severity,
    /// Cause, and the fix.
    pub message: String,
    /// Location in the text, if the text is known.
    pub place: Option<Place>,
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// It works, but probably not as intended.
    Warning,
    /// The file is rejected.
    Error,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{severity}: {}: {}", self.path, self.message)
    }
}

/// Returns the findings about a file. Without errors among them it can be applied.
///
/// Builds each limit, and tries it at a few instants.
pub fn check(file: &PolicyFile) -> Vec<Finding> {
    let mut report = Report::default();
    if file.version != VERSION {
        let message = format!("unsupported version {}: write `version: {VERSION}`", file.version);
        report.error(&At::key("version"), message);
    }
    if let Some(found) = too_many(file) {
        report.findings.push(found);
        return report.findings;
    }
    outage(&At::key("defaults").then("on_outage"), file.defaults.on_outage, &mut report);
    for (name, policy) in &file.policies {
        let at = At::key("policies").named(name);
        report.name(&at, "policy", name);
        one_policy(&at, policy, file, &mut report);
    }
    axes::check_lives(file, &mut report);
    envoy::check(file, &mut report);
    access::check(file, &mut report);
    report.findings
}

/// Returns the first maximum that a file exceeds.
pub(super) fn too_many(file: &PolicyFile) -> Option<Finding> {
    let over = |at: At, has: usize, what: &str, max: usize| {
        let message = format!("{has} {what}, at most {max} are allowed: split them");
        (has > max).then_some(Finding { path: at.0, severity: Severity::Error, message, place: None })
    };
    let policies = At::key("policies");
    let rules = file.envoy.iter().map(|domain| domain.rules.len()).sum();
    over(policies.clone(), file.policies.len(), "policies", POLICIES_MAX)
        .or_else(|| over(At::key("envoy"), rules, "rules", RULES_MAX))
        .or_else(|| {
            file.policies.iter().find_map(|(name, policy)| {
                let at = policies.named(name);
                let weights = policy.fair.as_ref().map_or(0, |fair| fair.weights.len());
                over(at.then("overrides"), policy.overrides.len(), "overrides", OVERRIDES_MAX)
                    .or_else(|| over(at.then("fair").then("weights"), weights, "weights", WEIGHTS_MAX))
            })
        })
}

fn one_policy(at: &At, policy: &PolicySpec, file: &PolicyFile, report: &mut Report) {
    let axes = !policy.rate.is_empty()
        || !policy.cost.is_empty()
        || policy.concurrency.is_some()
        || policy.fair.is_some();
    if !axes && !policy.disabled && !policy.deny {
        report.error(
            at,
            "the policy has no limit: add rate, cost, concurrency or fair, or set `disabled: true` or `deny: true`",
        );
    }
    if policy.disabled && policy.deny {
        report.error(&at.then("deny"), "`disabled` and `deny` contradict each other: keep one");
    }
    if policy.shadow && policy.disabled {
        report.warning(&at.then("shadow"), "the policy is disabled, so shadow mode has no effect");
    }
    let outage_says = policy.on_outage.or(file.defaults.on_outage).unwrap_or_default();
    rates::check(at, policy, outage_says, report);
    axes::check(at, policy, outage_says, report);
    outage(&at.then("on_outage"), policy.on_outage, report);
    overrides(at, policy, outage_says, report);
}

fn outage(at: &At, choice: Option<OutageSpec>, report: &mut Report) {
    if let Some(OutageSpec::Local { nodes }) = choice
        && nodes.get() == 1
    {
        let message =
            "with one node, each server has the whole limit: several servers together allow a multiple of it";
        report.warning(at, message);
    }
}

fn overrides(at: &At, policy: &PolicySpec, outage_says: OutageSpec, report: &mut Report) {
    let all = at.then("overrides");
    for (key, spec) in &policy.overrides {
        let at = all.named(key);
        let stars = key.matches('*').count();
        if stars > usize::from(key.ends_with('*')) {
            report.warning(&at, "only a `*` at the end is a wildcard: others are matched literally");
        }
        if key == "*" {
            report.warning(&at, "the override matches every key: change the policy instead");
        }
        if key.is_empty() {
            report.error(&at, "an override needs a key, or a prefix that ends in `*`");
        }
        let says_limits = !spec.rate.is_empty() || !spec.cost.is_empty();
        let says = [(spec.unlimited, "`unlimited`"), (spec.deny, "`deny`"), (says_limits, "limits")];
        let said: Vec<_> = says.iter().filter(|(is, _)| *is).map(|(_, what)| *what).collect();
        match said[..] {
            [] => report.warning(
                &at,
                "the override has no effect: add rate, cost, `unlimited: true` or `deny: true`",
            ),
            [one, other, ..] => {
                report.error(&at, format!("{one} and {other} contradict each other: keep one"));
            }
            _ => {}
        }
        let mut together = rates::Together::of(policy);
        together.rates = if spec.rate.is_empty() { together.rates } else { &spec.rate };
        together.costs = if spec.cost.is_empty() { together.costs } else { &spec.cost };
        if says_limits {
            together.check(&at, report);
        }
        spec.rate.iter().enumerate().for_each(|(i, rate)| {
            rates::check_one(&at.then("rate").index(i), rate, outage_says, report);
        });
        axes::check_costs(&at.then("cost"), &spec.cost, outage_says, report);
    }
}

/// A path during a traversal.
#[derive(Clone, Debug)]
pub(crate) struct At(String);

impl At {
    pub(crate) fn key(key: &str) -> Self {
        Self(key.to_owned())
    }

    pub(crate) fn then(&self, key: &str) -> Self {
        Self(format!("{}.{key}", self.0))
    }

    /// Appends a step whose name the author chose.
    pub(crate) fn named(&self, name: &str) -> Self {
        self.then(&step(name))
    }

    fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }
}

/// The findings so far.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) findings: Vec<Finding>,
}

impl Report {
    pub(crate) fn error(&mut self, at: &At, message: impl Into<String>) {
        self.add(at, Severity::Error, message.into());
    }

    fn warning(&mut self, at: &At, message: impl Into<String>) {
        self.add(at, Severity::Warning, message.into());
    }

    fn add(&mut self, at: &At, severity: Severity, message: String) {
        self.findings.push(Finding { path: at.0.clone(), severity, message, place: None });
    }

    /// Checks whether a name is valid in a key, a metric and a URL.
    fn name(&mut self, at: &At, of: &str, name: &str) {
        let length = name.chars().count();
        let wrong = |c: &char| c.is_whitespace() || c.is_control() || invisible(*c);
        if !(1..=NAME_CHARS_MAX).contains(&length) {
            self.error(
                at,
                format!("the name of a {of} has 1 to {NAME_CHARS_MAX} characters, found {length}"),
            );
        } else if name.chars().any(|c| wrong(&c)) {
            self.error(
                at,
                format!(
                    "the name of a {of} must not contain spaces or invisible characters: `{}`",
                    shown(name)
                ),
            );
        }
    }
}

/// Checks for invisible characters, which make two names look alike.
fn invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}
