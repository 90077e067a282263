//! The rules of one policy file, compiled, and its limits as Envoy reports them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use throttlekit_proto::envoy::{RateLimitDescriptor, Unit};

use super::matcher::{Found, Matcher};
use super::statistics::RuleCounts;
use crate::engine::Answered;
use crate::policy::{CalendarPart, DomainSpec, HeadersSpec, Period, PolicyFile, PolicySpec, RateSpec};

/// All state that depends on the policy file.
pub(super) struct Table {
    pub(super) file: Arc<PolicyFile>,
    matcher: Matcher,
    domains: HashMap<Box<str>, Adds>,
    policies: HashMap<Box<str>, Told>,
    pub(super) counts: RuleCounts,
}

/// Additions to the responses of a domain.
#[derive(Clone, Copy, Default)]
pub(super) struct Adds {
    pub(super) headers: HeadersSpec,
    pub(super) metadata: bool,
}

/// A policy as reported to Envoy.
#[derive(Default)]
pub(super) struct Told {
    /// True for a policy with a budget and nothing else. It is debited: only a debit may exceed a budget.
    pub(super) is_budget: bool,
    limits: Vec<ToldLimit>,
    otherwise: Unit,
}

/// A limit as reported to Envoy.
struct ToldLimit {
    /// The limit in a decision: the maximum number of units at once.
    units: u64,
    per_unit: u64,
    unit: Unit,
}

impl Table {
    /// Compiles a file. Rules that were in the previous one continue their counts.
    pub(super) fn of(file: Arc<PolicyFile>, previous: &RuleCounts) -> Self {
        let adds = |spec: &DomainSpec| Adds { headers: spec.headers, metadata: spec.metadata };
        let domains = file.envoy.iter().map(|domain| (domain.domain.as_str().into(), adds(domain)));
        let policies = file.policies.iter().map(|(name, spec)| (name.as_str().into(), Told::of(spec)));
        Self {
            matcher: Matcher::of(&file.envoy),
            domains: domains.collect(),
            policies: policies.collect(),
            counts: RuleCounts::of(&file, previous),
            file,
        }
    }

    pub(super) fn find(&self, domain: &str, descriptor: &RateLimitDescriptor) -> Option<Found<'_>> {
        let entries = descriptor.entries.iter().map(|entry| (entry.key.as_str(), &entry.value));
        self.matcher.find(domain, &entries.collect::<Vec<_>>())
    }

    pub(super) fn adds(&self, domain: &str) -> Adds {
        self.domains.get(domain).copied().unwrap_or_default()
    }

    pub(super) fn told(&self, policy: &str) -> Option<&Told> {
        self.policies.get(policy)
    }
}

impl Told {
    fn of(spec: &PolicySpec) -> Self {
        let is_budget = !spec.cost.is_empty()
            && spec.rate.is_empty()
            && spec.concurrency.is_none()
            && spec.fair.is_none()
            && spec.price.is_none();
        let instead = spec.overrides.values();
        let rates = spec.rate.iter().chain(instead.clone().flat_map(|other| &other.rate)).filter_map(rate);
        let costs = spec.cost.iter().chain(instead.flat_map(|other| &other.cost));
        let costs =
            costs.map(|cost| ToldLimit { units: cost.budget, per_unit: cost.budget, unit: unit(cost.per) });
        let otherwise = spec.fair.as_ref().map_or(Unit::Unknown, |fair| unit(Period::Span(fair.per)));
        Self { is_budget, limits: rates.chain(costs).collect(), otherwise }
    }

    /// Returns the limit of this response, as a number of requests per unit of time.
    pub(super) fn per_unit(&self, answer: &Answered) -> (u64, Unit) {
        let units = answer.decision.limit;
        let same = self.limits.iter().find(|limit| limit.units == units);
        same.map_or((units, self.otherwise), |limit| (limit.per_unit, limit.unit))
    }
}

fn rate(spec: &RateSpec) -> Option<ToldLimit> {
    let limit = spec.to_limit().ok()?;
    Some(ToldLimit { units: limit.units(), per_unit: spec.limit, unit: unit(spec.per) })
}

/// Returns the unit of time of a period; months of 30 days and years of 365, as in envoyproxy/ratelimit.
fn unit(period: Period) -> Unit {
    const DAY: u64 = 86_400;
    let span = match period {
        Period::Calendar(CalendarPart::Day) => return Unit::Day,
        Period::Calendar(CalendarPart::Week) => return Unit::Week,
        Period::Calendar(CalendarPart::Month) => return Unit::Month,
        Period::Span(span) => span.0,
        Period::Total(_) => return Unit::Unknown,
    };
    let units = [
        (1, Unit::Second),
        (60, Unit::Minute),
        (3_600, Unit::Hour),
        (DAY, Unit::Day),
        (7 * DAY, Unit::Week),
        (30 * DAY, Unit::Month),
        (365 * DAY, Unit::Year),
    ];
    let same = units.into_iter().find(|(seconds, _)| span == Duration::from_secs(*seconds));
    same.map_or(Unit::Unknown, |(_, unit)| unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_told_in_the_unit_that_it_is_and_in_no_other() {
        let of = |text: &str| unit(serde_json::from_str(&format!("\"{text}\"")).unwrap());
        let told =
            ["1s", "60s", "1h", "1d", "7d", "30d", "365d", "day", "week", "month", "2s", "61m"].map(of);
        let units = [
            Unit::Second,
            Unit::Minute,
            Unit::Hour,
            Unit::Day,
            Unit::Week,
            Unit::Month,
            Unit::Year,
            Unit::Day,
            Unit::Week,
            Unit::Month,
            Unit::Unknown,
            Unit::Unknown,
        ];
        assert_eq!(told, units);
    }
}
