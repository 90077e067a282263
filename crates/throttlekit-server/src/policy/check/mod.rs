//! Checks of what a file means: numbers the library takes, parts that go together, names that exist.

mod access;
mod axes;
mod envoy;
mod rates;
mod trial;

use std::fmt;

use super::error::{Place, step};
use super::model::{OutageSpec, PolicyFile, PolicySpec};
use super::tree::shown;

/// The version of the format that this server reads.
pub const VERSION: u32 = 1;
/// How many policies a file has at the most.
pub const POLICIES_MAX: usize = 10_000;
/// How many overrides a policy has at the most.
pub const OVERRIDES_MAX: usize = 10_000;
/// How long a name is at the most, in characters.
pub const NAME_CHARS_MAX: usize = 128;
pub use axes::{BY_MAX, LEASE_FOR_ON_STORE_MAX, LEASE_LIVES_MAX, WEIGHTS_MAX};
pub use envoy::{ENTRIES_MAX, RULES_MAX};
pub use rates::{COST_NAME, ON_STORE_MAX, RATES_MAX};

/// Something about a file that its author should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where: `policies.api.rate[0].per`.
    pub path: String,
    /// How bad it is.
    pub level: Level,
    /// What it is, and what to do about it.
    pub message: String,
    /// Where that is written, where the text of the file is known.
    pub place: Option<Place>,
}

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// It works, and probably not as meant.
    Warning,
    /// The file is refused.
    Error,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Warning => "warning",
            Level::Error => "error",
        };
        write!(f, "{level}: {}: {}", self.path, self.message)
    }
}

/// What there is to say about a file. Nothing means that it can be put in force.
///
/// Builds each limit for real, and tries it at a few instants.
pub fn check(file: &PolicyFile) -> Vec<Finding> {
    let mut report = Report::default();
    if file.version != VERSION {
        let message = format!("version {} is not known: write `version: {VERSION}`", file.version);
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

/// The first thing of which a file has more than it may.
pub(super) fn too_many(file: &PolicyFile) -> Option<Finding> {
    let over = |at: At, has: usize, what: &str, max: usize| {
        let message = format!("{has} {what}, and at most {max} are read: split them up");
        (has > max).then_some(Finding { path: at.0, level: Level::Error, message, place: None })
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
        || policy.cost.is_some()
        || policy.concurrency.is_some()
        || policy.fair.is_some();
    if !axes && !policy.disabled {
        report
            .error(at, "it limits nothing: give it rate, cost, concurrency or fair, or say `disabled: true`");
    }
    if policy.shadow && policy.disabled {
        report.warning(
            &at.then("shadow"),
            "it is disabled, so nothing is decided and shadow mode shows nothing",
        );
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
            "one node has the whole limit for itself: if there are more, together they pass a multiple of it";
        report.warning(at, message);
    }
}

fn overrides(at: &At, policy: &PolicySpec, outage_says: OutageSpec, report: &mut Report) {
    let all = at.then("overrides");
    for (key, spec) in &policy.overrides {
        let at = all.named(key);
        let stars = key.matches('*').count();
        if stars > usize::from(key.ends_with('*')) {
            report
                .warning(&at, "only a `*` at the end stands for any text: the others are taken as they are");
        }
        if key == "*" {
            report.warning(&at, "it matches every key: change the policy itself");
        }
        if key.is_empty() {
            report.error(&at, "an override names a key, or a prefix that ends in `*`");
        }
        let says_limits = !spec.rate.is_empty() || spec.cost.is_some();
        if spec.unlimited && says_limits {
            report.error(&at, "`unlimited` and limits contradict each other: keep one");
        }
        if !spec.unlimited && !says_limits {
            report.warning(&at, "it changes nothing: give it rate, cost or `unlimited: true`");
        }
        let mut together = rates::Together::of(policy);
        together.rates = if spec.rate.is_empty() { together.rates } else { &spec.rate };
        together.cost = spec.cost.as_ref().map(|cost| cost.by).or(together.cost);
        if says_limits {
            together.check(&at, report);
        }
        spec.rate.iter().enumerate().for_each(|(i, rate)| {
            rates::check_one(&at.then("rate").index(i), rate, outage_says, report);
        });
        if let Some(cost) = &spec.cost {
            axes::check_cost(&at.then("cost"), cost, outage_says, report);
        }
    }
}

/// A path that is being walked.
#[derive(Clone, Debug)]
pub(crate) struct At(String);

impl At {
    pub(crate) fn key(key: &str) -> Self {
        Self(key.to_owned())
    }

    pub(crate) fn then(&self, key: &str) -> Self {
        Self(format!("{}.{key}", self.0))
    }

    /// A step whose name the author chose.
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
        self.add(at, Level::Error, message.into());
    }

    fn warning(&mut self, at: &At, message: impl Into<String>) {
        self.add(at, Level::Warning, message.into());
    }

    fn add(&mut self, at: &At, level: Level, message: String) {
        self.findings.push(Finding { path: at.0.clone(), level, message, place: None });
    }

    /// Whether a name can stand in a key, a metric and a URL.
    fn name(&mut self, at: &At, of: &str, name: &str) {
        let length = name.chars().count();
        let wrong = |c: &char| c.is_whitespace() || c.is_control() || invisible(*c);
        if !(1..=NAME_CHARS_MAX).contains(&length) {
            self.error(
                at,
                format!("the name of a {of} has 1 to {NAME_CHARS_MAX} characters, this has {length}"),
            );
        } else if name.chars().any(|c| wrong(&c)) {
            self.error(
                at,
                format!("the name of a {of} has no spaces or invisible characters: `{}`", shown(name)),
            );
        }
    }
}

/// Characters that nobody sees, and that make two names look alike.
fn invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}
