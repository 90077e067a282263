//! The rates of a policy: each separately, and together.

use std::collections::HashSet;

use throttlekit::leasing::Margin;
use throttlekit::rate::shared::ScriptEncoding;
use throttlekit::rate::{LimitError, Timestamp};
use throttlekit::store::Term;
use throttlekit::{Limit, time_zone as zones};

use super::super::model::{
    Algorithm, CalendarPart, CostSpec, FleetSpec, LeaseMode, LeaseSpec, OutageSpec, Period, PolicySpec,
    RateSpec,
};
use super::axes::BY_MAX;
use super::{At, Report, trial};

/// Maximum number of rates of a policy.
pub const RATES_MAX: usize = 6;
/// Maximum number of limits of a policy that the store checks: rates without a lease, and budgets, each once for each
/// key that it counts by.
pub const ON_STORE_MAX: usize = 15;

/// Name of a policy's cost among its limits on the store, which no rate beside it may have. That of a budget with a name
/// has it as a prefix.
pub const COST_NAME: &str = "cost";

pub(super) fn check(at: &At, policy: &PolicySpec, outage: OutageSpec, report: &mut Report) {
    Together::of(policy).check(at, report);
    for (index, rate) in policy.rate.iter().enumerate() {
        check_one(&at.then("rate").index(index), rate, outage, report);
    }
}

/// The rates of a policy, or of an override with the rest of its policy.
pub(super) struct Together<'p> {
    pub(super) rates: &'p [RateSpec],
    pub(super) costs: &'p [CostSpec],
    concurrency: bool,
    fair: bool,
    fleet: Option<&'p FleetSpec>,
}

impl<'p> Together<'p> {
    pub(super) fn of(policy: &'p PolicySpec) -> Self {
        Self {
            rates: &policy.rate,
            costs: &policy.cost,
            concurrency: policy.concurrency.is_some(),
            fair: policy.fair.is_some(),
            fleet: policy.fleet.as_ref(),
        }
    }

    pub(super) fn check(&self, at: &At, report: &mut Report) {
        let rates = at.then("rate");
        if self.rates.len() > RATES_MAX {
            report.error(&rates, format!("{} rates, at most {RATES_MAX} are allowed", self.rates.len()));
        }
        let leased: Vec<_> =
            self.rates.iter().enumerate().filter_map(|(i, rate)| Some((i, rate.lease.as_ref()?))).collect();
        let budgets: usize = self.costs.iter().map(|cost| cost.by.len()).sum();
        let on_store = self.rates.len() - leased.len() + budgets;
        if on_store > ON_STORE_MAX {
            let message =
                format!("{on_store} limits on the store, cost included, at most {ON_STORE_MAX} are allowed");
            report.error(&rates, message);
        }
        if let [_, (second, _), ..] = leased[..] {
            report.error(
                &rates.index(second).then("lease"),
                "only one rate of a policy can be leased: remove this lease",
            );
        }
        if let [(one, lease)] = leased[..]
            && smooth(self.rates[one].algorithm)
            && lease.mode != LeaseMode::CachedDeny
            && (!self.costs.is_empty() || self.fair)
        {
            let message = "a leased smooth rate refunds nothing, so no limit may deny after it: use fixed_window \
                           or quota, or remove the lease, the cost or the fair budget";
            report.error(&rates.index(one).then("lease"), message);
        }
        names(&rates, self.rates, report);
        if let [(one, _)] = leased[..]
            && (one > 0 || self.rates[one].name.is_some())
        {
            let message =
                "a leased rate must be first and have no `name`: leased units are counted without one";
            report.error(&rates.index(one).then("lease"), message);
        }
        if let [(one, _)] = leased[..]
            && self.keys().any(|by| by != self.rates[one].by)
        {
            let message = "leased units are stored by one key, so all limits must use the same: give each the same \
                           `by`, or remove the lease";
            report.error(&rates.index(one).then("lease"), message);
        }
        let of_budget = |rate: &RateSpec| {
            self.costs.iter().map(CostSpec::limit_name).find(|name| rate.name.as_ref() == Some(name))
        };
        if let Some((index, name)) =
            self.rates.iter().enumerate().find_map(|(index, rate)| Some((index, of_budget(rate)?)))
        {
            let message = format!("the name `{name}` is reserved for the policy's cost: choose another name");
            report.error(&rates.index(index).then("name"), message);
        }
        self.check_fleet(&at.then("fleet"), report);
    }

    /// Returns the indexes of the keys that its limits count by.
    fn keys(&self) -> impl Iterator<Item = u8> {
        let budgets = self.costs.iter().flat_map(|cost| cost.by.iter().copied());
        self.rates.iter().map(|rate| rate.by).chain(budgets)
    }

    fn check_fleet(&self, at: &At, report: &mut Report) {
        let Some(fleet) = self.fleet else { return };
        let [rate] = self.rates else {
            return report.error(at, "clients lease units of one rate: give the policy exactly one");
        };
        if !self.costs.is_empty() || self.concurrency || self.fair {
            let message =
                "clients lease units of a rate only: move cost, concurrency and fair to another policy";
            report.error(at, message);
        }
        if matches!(rate.algorithm, Algorithm::SlidingWindow | Algorithm::SlidingLog) {
            report.error(
                at,
                "a sliding window cannot be leased: use gcra, token_bucket, fixed_window or quota",
            );
        }
        if rate.to_limit().is_ok_and(|limit| !can_be_lent(&limit)) {
            report.error(at, UNEVEN);
        }
        if rate.lease.is_some() {
            report.error(
                at,
                "clients lease the units, so the server cannot lease them too: remove `lease` or `fleet`",
            );
        }
        if rate.name.is_some() {
            report.error(at, "reserved units are counted without a name: remove the rate's `name`");
        }
        if fleet.lease_max == Some(0) {
            report.error(&at.then("lease_max"), "nothing could be reserved: expected at least 1");
        }
        if fleet.share == Some(0) {
            report.error(&at.then("share"), "invalid share 0: write 1 for all units, 4 for a quarter");
        }
    }
}

const UNEVEN: &str =
    "this limit cannot be leased: its unit is not a short fraction of a microsecond; choose rounder numbers";

/// Checks whether a store can report the number of units left.
fn can_be_lent(limit: &Limit) -> bool {
    ScriptEncoding::of(limit).is_ok_and(|form| form.counts_units())
}

fn smooth(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::Gcra | Algorithm::TokenBucket)
}

/// Checks names, which keep the counts of a policy's rates apart, also when their order changes.
fn names(at: &At, rates: &[RateSpec], report: &mut Report) {
    let mut seen = HashSet::new();
    for (index, rate) in rates.iter().enumerate() {
        let wrong = match &rate.name {
            Some(name) if !seen.insert(name) => {
                format!("duplicate rate name `{name}`: give each rate its own `name`")
            }
            None if index > 0 => "only the first rate may have no name: add a `name` to this one".into(),
            _ => continue,
        };
        report.error(&at.index(index).then("name"), wrong);
    }
}

/// Checks one rate.
pub(super) fn check_one(at: &At, rate: &RateSpec, outage: OutageSpec, report: &mut Report) {
    let before = report.findings.len();
    if let Some(name) = &rate.name {
        report.name(&at.then("name"), "rate", name);
    }
    if rate.burst.is_some() && !smooth(rate.algorithm) {
        report.error(&at.then("burst"), "a window has no burst: remove it, or use gcra or token_bucket");
    }
    if rate.buckets.is_some() && rate.algorithm != Algorithm::SlidingWindow {
        report.error(&at.then("buckets"), "only a sliding_window has buckets: remove it");
    }
    if rate.early_retry && rate.algorithm != Algorithm::SlidingWindow {
        report.error(&at.then("early_retry"), "applies only to a sliding_window: remove it");
    }
    match (rate.algorithm, rate.per) {
        (Algorithm::Quota, Period::Span(span)) => {
            let message = format!("a quota counts per `day`, `week` or `month`: for {span} use fixed_window");
            report.error(&at.then("per"), message);
        }
        (algorithm, Period::Calendar(_)) if algorithm != Algorithm::Quota => {
            let message =
                "only a quota uses calendar periods: set `algorithm: quota`, or write `1d`, `7d`, `30d`";
            report.error(&at.then("per"), message);
        }
        (_, Period::Total(_)) => {
            report.error(
                &at.then("per"),
                "only a token budget can be `total`: use `cost`, or write a duration",
            );
        }
        _ => {}
    }
    if rate.utc_offset_minutes != 0 && rate.algorithm != Algorithm::Quota {
        report.error(&at.then("utc_offset_minutes"), "applies only to a quota: remove it");
    }
    let weekly = rate.per == Period::Calendar(CalendarPart::Week);
    if rate.week_starts.is_some() && !weekly {
        report.error(&at.then("week_starts"), "applies only to a quota per `week`: remove it");
    }
    let monthly = rate.per == Period::Calendar(CalendarPart::Month);
    if rate.month_starts.is_some() && !monthly {
        report.error(&at.then("month_starts"), "applies only to a quota per `month`: remove it");
    }
    if rate.time_zone.is_some() && rate.algorithm != Algorithm::Quota {
        report.error(&at.then("time_zone"), "applies only to a quota: remove it");
    }
    check_zone(at, rate.time_zone.as_deref(), rate.utc_offset_minutes, report);
    if rate.anchor.is_some() && rate.algorithm != Algorithm::FixedWindow {
        report.error(&at.then("anchor"), "applies only to a fixed_window: remove it");
    }
    if rate.by > BY_MAX {
        report.error(
            &at.then("by"),
            format!("invalid key index: a call has at most {} keys, so `by` is 0 to {BY_MAX}", BY_MAX + 1),
        );
    }
    if report.findings.len() > before {
        return;
    }
    // With `early_retry`, the author accepts that the wait may be too early.
    match (RateSpec { early_retry: false, ..rate.clone() }).to_limit() {
        Ok(limit) => {
            trial::try_out(at, &limit, outage, report);
            if let Some(lease) = &rate.lease {
                check_lease(&at.then("lease"), lease, &limit, report);
            }
        }
        Err(error) => report.error(&blamed(at, rate, error), says(error)),
    }
}

/// Checks the time zone of a limit.
pub(super) fn check_zone(at: &At, time_zone: Option<&str>, utc_offset_minutes: i32, report: &mut Report) {
    let Some(name) = time_zone else { return };
    if let Err(unknown) = zones::find(name) {
        report.error(&at.then("time_zone"), unknown.to_string());
    }
    if utc_offset_minutes != 0 {
        let message = "a time zone has its own offsets: remove this, or `time_zone`";
        report.error(&at.then("utc_offset_minutes"), message);
    }
}

/// Returns the path of the number that a limit rejects.
fn blamed(at: &At, rate: &RateSpec, error: LimitError) -> At {
    match error {
        LimitError::Units(units) if rate.burst == Some(units) && rate.limit != units => at.then("burst"),
        LimitError::Units(_) | LimitError::LogTooLong(_) => at.then("limit"),
        LimitError::Period(_) => at.then("per"),
        LimitError::Buckets(_) => at.then("buckets"),
        LimitError::UtcOffset(_) => at.then("utc_offset_minutes"),
        LimitError::MonthStart(_) => at.then("month_starts"),
        _ => at.clone(),
    }
}

pub(super) fn says(error: LimitError) -> String {
    match error {
        LimitError::Units(0) => "0 allows nothing: expected at least 1".into(),
        LimitError::Budget(0) => "a budget of 0 allows nothing: expected at least 1".into(),
        other => other.to_string(),
    }
}

fn check_lease(at: &At, lease: &LeaseSpec, limit: &Limit, report: &mut Report) {
    if lease.batch == Some(0) {
        report.error(&at.then("batch"), "a batch needs at least one unit");
    }
    if lease.batch.is_some_and(|batch| batch > limit.units()) {
        report.warning(
            &at.then("batch"),
            format!("a batch never exceeds the limit of {} units", limit.units()),
        );
    }
    if lease.mode == LeaseMode::CachedDeny {
        if lease.batch.is_some() || lease.hold.is_some() {
            report.warning(at, "cached_deny fetches no batches: `batch` and `hold` have no effect");
        }
        return;
    }
    let term = match limit {
        Limit::Window(_) => Term::Window,
        _ => Term::Rolling(lease.hold_for()),
    };
    match limit {
        Limit::SlidingWindow(_) | Limit::SlidingLog(_) => {
            let message =
                "a sliding window cannot be leased: set `mode: cached_deny`, or use another algorithm";
            return report.error(at, message);
        }
        Limit::Window(_) if lease.hold.is_some() => {
            report.warning(&at.then("hold"), "units of a window expire with it: `hold` has no effect");
        }
        _ => {}
    }
    if !can_be_lent(limit) {
        report.error(at, UNEVEN);
    }
    let lives = if let Term::Rolling(hold) = term { hold } else { limit.period() };
    if Margin::default().deadline(Timestamp::EPOCH, lives) == Timestamp::EPOCH {
        report.error(at, says(LimitError::LeaseTooShort(lives)));
    }
}
