//! The other axes: cost, concurrency, fair budgets, price.

use std::collections::HashSet;
use std::time::Duration;

use throttlekit::leasing::Margin;
use throttlekit::rate::{LimitError, Timestamp};
use throttlekit::store::{LIVES_MAX, LIVES_MIN, SLOTS_MAX};

use super::super::model::{
    CalendarPart, ConcurrencySpec, CostSpec, FairSpec, LearnSpec, OutageSpec, Period, PolicyFile, PolicySpec,
    PriceSpec, Scope, WaitSpec,
};
use super::{At, Report, rates, trial};

/// Maximum index of a call's key that a limit may count by; the first is 0.
pub const BY_MAX: u8 = 7;
/// Maximum number of keys of a fair budget with a weight of their own.
pub const WEIGHTS_MAX: usize = 100_000;
/// Maximum number of different `lease_for` in a file: leases of each have a registry, and lookups search all of them.
pub const LEASE_LIVES_MAX: usize = 64;
/// Maximum `lease_for` of slots that are counted on the store, which keeps each for more than twice as long, and for at
/// most a day.
pub const LEASE_FOR_ON_STORE_MAX: Duration = Duration::from_secs(11 * 3_600);
/// Maximum time that a call waits: half of the time that the server has for a request.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Maximum number of calls that wait for one policy.
const WAITING_MAX: u32 = 100_000;
/// Maximum of a learned reservation: many times the longest response of a model, so that learning ends.
const LEARNED_MAX: u64 = 1 << 24;
/// Maximum number of tenants that are tracked separately.
const TENANTS_MAX: usize = 1 << 23;

pub(super) fn check(at: &At, policy: &PolicySpec, outage: OutageSpec, report: &mut Report) {
    check_costs(&at.then("cost"), &policy.cost, outage, report);
    if let Some(concurrency) = &policy.concurrency {
        check_concurrency(&at.then("concurrency"), concurrency, report);
    }
    if let Some(fair) = &policy.fair {
        check_fair(&at.then("fair"), fair, outage, report);
    }
    if let Some(price) = &policy.price {
        check_price(&at.then("price"), price, report);
    }
    if let Some(learn) = &policy.learn {
        check_learn(&at.then("learn"), learn, policy, report);
    }
    if let Some(wait) = &policy.wait {
        check_wait(&at.then("wait"), wait, policy, report);
    }
}

/// Checks the budgets of a policy: each separately, and their names, which keep their counts apart.
pub(super) fn check_costs(at: &At, costs: &[CostSpec], outage: OutageSpec, report: &mut Report) {
    let one = costs.len() == 1;
    let mut seen = HashSet::new();
    for (index, cost) in costs.iter().enumerate() {
        let at = if one { at.clone() } else { at.index(index) };
        let wrong = match &cost.name {
            Some(name) if !seen.insert(name) => {
                Some(format!("duplicate budget name `{name}`: give each budget its own `name`"))
            }
            None if index > 0 => {
                Some("only the first budget may have no name: add a `name` to this one".to_owned())
            }
            _ => None,
        };
        if let Some(wrong) = wrong {
            report.error(&at.then("name"), wrong);
        }
        check_cost(&at, cost, outage, report);
    }
}

fn check_cost(at: &At, cost: &CostSpec, outage: OutageSpec, report: &mut Report) {
    if let Some(name) = &cost.name {
        report.name(&at.then("name"), "budget", name);
    }
    if cost.by.iter().any(|by| *by > BY_MAX) {
        report.error(
            &at.then("by"),
            format!("invalid key index: a call has at most {} keys, so `by` is 0 to {BY_MAX}", BY_MAX + 1),
        );
    }
    let repeated = (1..cost.by.len()).any(|place| cost.by[..place].contains(&cost.by[place]));
    if cost.by.is_empty() || repeated {
        report.error(&at.then("by"), "invalid list of keys: expected at least one, each once");
    }
    if cost.utc_offset_minutes != 0 && !matches!(cost.per, Period::Calendar(_)) {
        report.error(&at.then("utc_offset_minutes"), "applies only to `day`, `week` and `month`: remove it");
    }
    if cost.week_starts.is_some() && cost.per != Period::Calendar(CalendarPart::Week) {
        report.error(&at.then("week_starts"), "applies only to `week`: remove it");
    }
    if cost.month_starts.is_some() && cost.per != Period::Calendar(CalendarPart::Month) {
        report.error(&at.then("month_starts"), "applies only to `month`: remove it");
    }
    if cost.time_zone.is_some() && !matches!(cost.per, Period::Calendar(_)) {
        report.error(&at.then("time_zone"), "applies only to `day`, `week` and `month`: remove it");
    }
    let before = report.findings.len();
    rates::check_zone(at, cost.time_zone.as_deref(), cost.utc_offset_minutes, report);
    if report.findings.len() > before {
        return;
    }
    if cost.anchor.is_some() && !matches!(cost.per, Period::Span(_)) {
        report.error(&at.then("anchor"), "applies only to a duration, such as `30d`: remove it");
    }
    match cost.to_limit() {
        Ok(limit) => trial::try_out(at, &limit, outage, report),
        Err(error) => {
            let part = match error {
                LimitError::Budget(_) => "budget",
                LimitError::UtcOffset(_) => "utc_offset_minutes",
                LimitError::MonthStart(_) => "month_starts",
                _ => "per",
            };
            report.error(&at.then(part), rates::says(error));
        }
    }
}

fn check_concurrency(at: &At, concurrency: &ConcurrencySpec, report: &mut Report) {
    let limit = concurrency.limit;
    if !(1..=SLOTS_MAX).contains(&limit) {
        report.error(&at.then("limit"), format!("invalid limit {limit}: expected 1 to {SLOTS_MAX}"));
    }
    if let Some(adaptive) = &concurrency.adaptive {
        let at = at.then("adaptive");
        let (min, max) = (adaptive.min, adaptive.max);
        if min == 0 {
            report
                .error(&at.then("min"), "a minimum of 0 could deny every call forever: expected at least 1");
        }
        if max > SLOTS_MAX {
            report.error(&at.then("max"), format!("invalid maximum {max}: expected at most {SLOTS_MAX}"));
        }
        if !(min <= limit && limit <= max) {
            report.error(&at, format!("the initial limit {limit} is not between min {min} and max {max}"));
        }
        if concurrency.scope == Scope::Key {
            let message =
                "slots counted on the store cannot be adaptive: use scope instance, instance_key or fleet";
            report.error(&at, message);
        }
    }
    if let Some(span) = concurrency.lease_for
        && !(LIVES_MIN..=LIVES_MAX).contains(&span.0)
    {
        report.error(&at.then("lease_for"), format!("invalid duration {span}: expected 10ms to 1d"));
    } else if let (Scope::Key, Some(span)) = (concurrency.scope, concurrency.lease_for)
        && span.0 > LEASE_FOR_ON_STORE_MAX
    {
        report.error(
            &at.then("lease_for"),
            format!("invalid duration {span}: expected at most 11h for slots counted on the store"),
        );
    }
}

/// Reports the first `lease_for` that exceeds the maximum, over all policies.
pub(super) fn check_lives(file: &PolicyFile, report: &mut Report) {
    let mut known = HashSet::new();
    let of_policy = |policy: &PolicySpec| policy.concurrency.as_ref().and_then(|slots| slots.lease_for);
    let mut lives = file.policies.iter().filter_map(|(name, policy)| Some((name, of_policy(policy)?)));
    let beyond = lives.find(|(_, span)| known.insert(span.0) && known.len() > LEASE_LIVES_MAX);
    if let Some((name, span)) = beyond {
        let at = At::key("policies").named(name).then("concurrency").then("lease_for");
        let message = format!(
            "{span} exceeds the {LEASE_LIVES_MAX} different values that a file may have: use one of those"
        );
        report.error(&at, message);
    }
}

fn check_fair(at: &At, fair: &FairSpec, outage: OutageSpec, report: &mut Report) {
    match fair.to_limit() {
        Ok(limit) => {
            trial::try_out(at, &limit, outage, report);
            if Margin::default().deadline(Timestamp::EPOCH, limit.period()) == Timestamp::EPOCH {
                report.error(&at.then("per"), rates::says(LimitError::LeaseTooShort(limit.period())));
            }
        }
        Err(error) => {
            let part = if matches!(error, LimitError::Units(_)) { "limit" } else { "per" };
            report.error(&at.then(part), rates::says(error));
        }
    }
    let weights = at.then("weights");
    for (key, _) in fair.weights.iter().filter(|(_, weight)| **weight == 0) {
        report.error(&weights.named(key), "a key of weight 0 would never be allowed: expected at least 1");
    }
    match fair.tenants_max {
        Some(tenants) if !(1..=TENANTS_MAX).contains(&tenants) => {
            report.error(
                &at.then("tenants_max"),
                format!("invalid number {tenants}: expected 1 to {TENANTS_MAX}"),
            );
        }
        Some(tenants) if tenants < fair.weights.len() => {
            let message = format!("less than the {} keys that have weights: raise it", fair.weights.len());
            report.warning(&at.then("tenants_max"), message);
        }
        _ => {}
    }
}

fn check_price(at: &At, price: &PriceSpec, report: &mut Report) {
    let prices = [("rate", price.rate), ("cost", price.cost), ("hold", price.hold)];
    for (name, value) in prices {
        if !value.is_finite() || value < 0.0 {
            report.error(&at.then(name), format!("invalid price {value}: expected a number of at least 0"));
        }
    }
    if prices.iter().all(|(_, value)| *value == 0.0) {
        report.warning(at, "every price is 0, so no call is denied by it: remove `price`");
    }
}

fn check_learn(at: &At, learn: &LearnSpec, policy: &PolicySpec, report: &mut Report) {
    if policy.cost.is_empty() {
        report.error(at, "applies only to a token budget: add `cost`, or remove it");
    }
    if let Some(max) = learn.max.filter(|max| !(1..=LEARNED_MAX).contains(max)) {
        report.error(&at.then("max"), format!("invalid number {max}: expected 1 to {LEARNED_MAX}"));
    }
}

fn check_wait(at: &At, wait: &WaitSpec, policy: &PolicySpec, report: &mut Report) {
    if !(Duration::from_millis(1)..=WAIT_MAX).contains(&wait.max.0) {
        report.error(&at.then("max"), format!("invalid duration {}: expected 1ms to 5s", wait.max));
    }
    let calls = wait.calls_max();
    if !(1..=WAITING_MAX).contains(&calls) {
        report.error(&at.then("queue"), format!("invalid number {calls}: expected 1 to {WAITING_MAX}"));
    }
    let others = !policy.rate.is_empty() || policy.concurrency.is_some() || policy.fair.is_some();
    if !others && policy.learn.is_none() {
        report.error(
            at,
            "a token budget alone is debited after the work: add rate, concurrency, fair or learn",
        );
    }
    if policy.shadow {
        report.warning(at, "in shadow mode no call waits, since every call is allowed");
    }
}
