//! Limits in place of those of a policy, as operators set them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::policy::{Defaults, OverrideSpec, Period, PolicyFile, PolicySpec, Severity, Span, VERSION, check};

/// Limits in place of those of a policy. What is omitted stays as in the policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limits {
    /// Rates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<RateChange>,
    /// Token budgets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<BudgetChange>,
    /// Always allows, without deciding.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlimited: bool,
}

/// Other numbers for one rate of a policy. Its algorithm and its counts stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RateChange {
    /// Name of the rate; empty for the first one.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub name: Box<str>,
    /// Number of units.
    pub limit: u64,
    /// Maximum number of units at once after idle time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// Period, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_ms: Option<u64>,
}

/// Another number for one token budget of a policy. Its count stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BudgetChange {
    /// Name of the budget; empty for the first one.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub name: Box<str>,
    /// Number of tokens.
    pub budget: u64,
}

impl Limits {
    /// Returns the override of a policy file that has the same effect, or why the policy cannot have it.
    pub(in crate::engine) fn over(&self, spec: &PolicySpec) -> Result<OverrideSpec, String> {
        let says_limits = !self.rates.is_empty() || !self.budgets.is_empty();
        match (self.unlimited, says_limits) {
            (true, true) => return Err("`unlimited` and limits contradict each other: keep one".into()),
            (false, false) => return Err("no limits: set rates, a budget or `unlimited`".into()),
            (true, false) => return Ok(OverrideSpec { unlimited: true, ..OverrideSpec::default() }),
            (false, true) => {}
        }
        let mut instead = OverrideSpec::default();
        if !self.rates.is_empty() {
            instead.rate.clone_from(&spec.rate);
        }
        for change in &self.rates {
            let names = spec.rate.iter().map(|rate| rate.name.as_deref());
            let none = || format!("the policy has no rate `{}`", change.name.escape_debug());
            let rate = &mut instead.rate[named(&change.name, names).ok_or_else(none)?];
            rate.limit = change.limit;
            rate.burst = change.burst.or(rate.burst);
            if let Some(ms) = change.per_ms {
                rate.per = Period::Span(Span(Duration::from_millis(ms)));
            }
        }
        if !self.budgets.is_empty() {
            instead.cost.clone_from(&spec.cost);
        }
        for change in &self.budgets {
            let names = spec.cost.iter().map(|cost| cost.name.as_deref());
            let none = || format!("the policy has no token budget `{}`", change.name.escape_debug());
            instead.cost[named(&change.name, names).ok_or_else(none)?].budget = change.budget;
        }
        Ok(instead)
    }

    /// Checks whether a policy can have these limits, as its file is checked.
    pub(in crate::engine) fn judge(&self, spec: &PolicySpec, defaults: &Defaults) -> Result<(), String> {
        let overrides = BTreeMap::from([("key".to_owned(), self.over(spec)?)]);
        let spec = PolicySpec { overrides, ..spec.clone() };
        let policies = BTreeMap::from([("policy".to_owned(), spec)]);
        let file =
            PolicyFile { version: VERSION, defaults: defaults.clone(), policies, ..Default::default() };
        let errors = check(&file).into_iter().filter(|found| found.severity == Severity::Error);
        let errors: Vec<_> = errors
            .map(|found| {
                let path = found.path.strip_prefix("policies.policy.overrides.key").unwrap_or(&found.path);
                format!("{} {}", path.trim_start_matches('.'), found.message)
            })
            .collect();
        if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
    }
}

/// Returns the place of the limit that a change names: of the first one, if it names none.
fn named<'a>(name: &str, mut names: impl ExactSizeIterator<Item = Option<&'a str>>) -> Option<usize> {
    if name.is_empty() { (names.len() > 0).then_some(0) } else { names.position(|of| of == Some(name)) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns another number for the first budget.
    pub(crate) fn budget(budget: u64) -> Limits {
        Limits { budgets: vec![BudgetChange { budget, ..BudgetChange::default() }], ..Limits::default() }
    }

    fn spec() -> (PolicySpec, Defaults) {
        let file = "version: 1
policies:
  api:
    rate:
      - {limit: 10, per: 1s, burst: 20}
      - {name: daily, algorithm: quota, limit: 1000, per: day}
    overrides: {vip: {unlimited: true}}
";
        loaded(file)
    }

    fn loaded(file: &str) -> (PolicySpec, Defaults) {
        let (mut file, _) = crate::policy::load(file).unwrap();
        (file.policies.remove("api").unwrap(), file.defaults)
    }

    fn rate(name: &str, limit: u64) -> RateChange {
        RateChange { name: name.into(), limit, ..RateChange::default() }
    }

    #[test]
    fn only_the_numbers_that_are_set_change() {
        let (spec, defaults) = spec();
        let limits = Limits { rates: vec![rate("daily", 5), rate("", 30)], ..Limits::default() };
        limits.judge(&spec, &defaults).unwrap();
        let over = limits.over(&spec).unwrap();
        assert_eq!((over.rate[0].limit, over.rate[0].burst, over.rate[1].limit), (30, Some(20), 5));
        assert_eq!((over.rate[0].per, over.rate[1].algorithm), (spec.rate[0].per, spec.rate[1].algorithm));
        let slow = RateChange { per_ms: Some(60_000), burst: Some(2), ..rate("", 1) };
        let over = Limits { rates: vec![slow], ..Limits::default() }.over(&spec).unwrap();
        assert_eq!(over.rate[0].to_limit().unwrap().units(), 2);
    }

    #[test]
    fn a_budget_has_a_name_or_is_the_first() {
        let (spec, defaults) = loaded(
            "version: 1
policies:
  api: {cost: [{budget: 100, per: day}, {name: team, budget: 1000, per: month, by: 1}]}
",
        );
        let change = |name: &str, budget| BudgetChange { name: name.into(), budget };
        let budgets = |budgets| Limits { budgets, ..Limits::default() };
        let over = |limits: Limits| {
            limits.judge(&spec, &defaults).unwrap();
            let over = limits.over(&spec).unwrap();
            (over.rate.len(), over.cost.iter().map(|cost| cost.budget).collect::<Vec<_>>())
        };
        assert_eq!(over(budgets(vec![change("team", 5_000)])), (0, vec![100, 5_000]));
        assert_eq!(over(budgets(vec![change("", 7), change("team", 8)])), (0, vec![7, 8]));
        let refused = budgets(vec![change("org", 1)]).judge(&spec, &defaults).unwrap_err();
        assert!(refused.contains("no token budget `org`"), "{refused}");
    }

    #[test]
    fn limits_that_the_policy_cannot_have_are_refused_with_the_cause() {
        let (spec, defaults) = spec();
        let refused = |limits: Limits| limits.judge(&spec, &defaults).unwrap_err();
        let rates = |rates| Limits { rates, ..Limits::default() };
        assert!(refused(rates(vec![rate("hourly", 1)])).contains("no rate `hourly`"));
        assert!(refused(Limits::default()).contains("no limits"));
        assert!(refused(budget(1)).contains("no token budget"));
        assert!(refused(Limits { unlimited: true, ..rates(vec![rate("", 1)]) }).contains("contradict"));
        assert!(refused(rates(vec![rate("", u64::MAX)])).contains("rate[0]"));
        assert!(!refused(rates(vec![RateChange { per_ms: Some(5), ..rate("daily", 1) }])).is_empty());
    }
}
