//! Rates, and the effect of leasing on them.

use std::time::Duration;

use super::super::defaults::LENT_FOR;
use super::super::limits::BUCKETS_DEFAULT;
use super::super::model::{Algorithm, FleetSpec, LeaseMode, Period, RateSpec};
use super::super::span::Span;
use super::format::{anchored, clocks, count, each, every, some, starting, whom};

/// Quantity that a rate counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Counts {
    /// Cost of calls.
    Units,
    /// Calls: their cost is counted elsewhere in the policy.
    Calls,
}

/// Explains what a rate allows.
pub(super) fn rate(rate: &RateSpec, counts: Counts) -> String {
    let name = rate.name.as_ref().map_or(String::new(), |name| format!("`{name}`: "));
    let what = if counts == Counts::Units { "unit" } else { "call" };
    let (units, who, per) = (some(rate.limit, what), whom(rate.by), rate.per);
    let twice = count(rate.limit.saturating_mul(2));
    match rate.algorithm {
        Algorithm::Gcra | Algorithm::TokenBucket => {
            let (burst, pace) = (rate.capacity(), every(rate.limit, span(per)));
            let most = count(rate.limit.saturating_add(burst));
            let burst = count(burst);
            let never = if counts == Counts::Units {
                format!(" A call that costs more than {burst} is never allowed.")
            } else {
                String::new()
            };
            format!(
                "{name}{units} {} {who}, up to {burst} at once after idle time: one is replenished {pace}, \
                 and at most {most} are allowed in any {per}.{never}",
                each(per)
            )
        }
        Algorithm::FixedWindow => format!(
            "{name}{units} in each window of {per}{} {who}. Across the boundary of two windows, up to {twice} \
             can be allowed within {per}.",
            anchored(rate.anchor.as_deref())
        ),
        Algorithm::SlidingWindow => {
            let buckets = rate.buckets.unwrap_or(BUCKETS_DEFAULT);
            format!(
                "{name}{units} in any {per} {who}, counted in {} (nearly exact).",
                some(buckets.into(), "bucket")
            )
        }
        Algorithm::SlidingLog => {
            format!("{name}{units} in any {per} {who}, exactly: each admission is stored for {per}.")
        }
        Algorithm::Quota => format!(
            "{name}{units} {}{} {who}, from midnight {}. Around that midnight, up to {twice} can be \
             allowed in a short time.",
            each(per),
            starting(&rate.calendar()),
            clocks(&rate.calendar())
        ),
    }
}

/// Explains the effect of leasing on its bound.
pub(super) fn lease(rate: &RateSpec) -> Option<String> {
    let lease = rate.lease.as_ref()?;
    let name = rate.name.as_ref().map_or("The rate".to_owned(), |name| format!("`{name}`"));
    if lease.mode == LeaseMode::CachedDeny {
        return Some(format!(
            "{name}: servers cache denials, and do not call the store while one is valid. The bound is \
             unchanged."
        ));
    }
    let batch =
        lease.batch.map_or("sized by its traffic".to_owned(), |batch| format!("of up to {}", count(batch)));
    let busy = if lease.mode == LeaseMode::Auto { " of busy keys" } else { "" };
    let fetch = format!(
        "{name} is leased: each server fetches units{busy} in batches {batch} and spends them locally."
    );
    Some(match rate.algorithm {
        Algorithm::Gcra | Algorithm::TokenBucket => {
            let hold = lease.hold_for();
            let beyond = units_in(hold, rate.limit, span(rate.per));
            format!(
                "{fetch} They expire after {}, so up to {} beyond the rate can be allowed in any interval, \
                 for any number of servers.",
                Span(hold),
                some(beyond, "unit")
            )
        }
        _ => format!(
            "{fetch} They expire with their window, so at most {} are allowed in any window of the store's \
             clock, for any number of servers; units that one server holds cannot be spent by the others \
             meanwhile.",
            count(rate.limit)
        ),
    })
}

/// Explains the effect of clients with leased units on its bound.
pub(super) fn reserved(fleet: &FleetSpec, rate: Option<&RateSpec>) -> String {
    let most = count(fleet.units_max());
    let share = match fleet.share.unwrap_or(1) {
        1 => String::new(),
        share => format!(", and at most one in {} of the units left", count(share)),
    };
    let beyond = match rate.map(|rate| (rate.algorithm, rate)) {
        Some((Algorithm::Gcra | Algorithm::TokenBucket, rate)) => {
            let units = some(units_in(LENT_FOR, rate.limit, span(rate.per)), "unit");
            format!(
                " They expire after {}, so up to {units} beyond the rate can be allowed in any interval.",
                Span(LENT_FOR)
            )
        }
        _ => " They expire with their window, so the window's limit holds.".into(),
    };
    format!(
        "Clients may reserve units and spend them locally: at most {most} per reservation{share}.{beyond}"
    )
}

/// Returns the number of units that are replenished in this time, rounded up.
fn units_in(time: Duration, limit: u64, per: Duration) -> u64 {
    let units = (time.as_nanos().saturating_mul(u128::from(limit))).div_ceil(per.as_nanos().max(1));
    u64::try_from(units).unwrap_or(u64::MAX)
}

/// Returns the length of a period that is not part of the calendar.
fn span(per: Period) -> Duration {
    match per {
        Period::Span(span) => span.0,
        Period::Calendar(_) | Period::Total(_) => Duration::ZERO,
    }
}
