//! Rates, and what leasing does to them.

use std::time::Duration;

use super::super::check::HOLD_DEFAULT;
use super::super::limits::BUCKETS_DEFAULT;
use super::super::model::{Algorithm, LeaseMode, Period, RateSpec};
use super::super::span::Span;
use super::words::{count, each, every, some, whom, zone};

/// What a rate lets pass.
pub(super) fn rate(rate: &RateSpec) -> String {
    let name = rate.name.as_ref().map_or(String::new(), |name| format!("`{name}`: "));
    let (units, who, per) = (some(rate.limit, "unit"), whom(rate.by), rate.per);
    let twice = count(rate.limit.saturating_mul(2));
    match rate.algorithm {
        Algorithm::Gcra | Algorithm::TokenBucket => {
            let (burst, pace) = (rate.capacity(), every(rate.limit, span(per)));
            let most = count(rate.limit.saturating_add(burst));
            let never = count(burst);
            format!(
                "{name}{units} {} {who}, up to {never} at once after quiet: one comes back {pace}, and no {per} sees more \
                 than {most}. A call that costs more than {never} never passes.",
                each(per)
            )
        }
        Algorithm::FixedWindow => format!(
            "{name}{units} in each window of {per} {who}. Around the edge between two windows up to {twice} can pass within {per}."
        ),
        Algorithm::SlidingWindow => {
            let buckets = rate.buckets.unwrap_or(BUCKETS_DEFAULT);
            format!(
                "{name}{units} in any {per} {who}, as counted in {}: nearly exact.",
                some(buckets.into(), "part")
            )
        }
        Algorithm::SlidingLog => {
            format!("{name}{units} in any {per} {who}, exactly: each admission is remembered for {per}.")
        }
        Algorithm::Quota => format!(
            "{name}{units} {} {who}, from midnight at {}. Around that midnight up to {twice} can pass in a short time.",
            each(per),
            zone(rate.utc_offset_minutes)
        ),
    }
}

/// What leasing does to its bound.
pub(super) fn lease(rate: &RateSpec) -> Option<String> {
    let lease = rate.lease.as_ref()?;
    let name = rate.name.as_ref().map_or("The rate".to_owned(), |name| format!("`{name}`"));
    if lease.mode == LeaseMode::CachedDeny {
        return Some(format!(
            "{name}: servers remember denials, and do not ask the store while one holds. The bound stays."
        ));
    }
    let batch = lease
        .batch
        .map_or("as many as it learns to need".to_owned(), |batch| format!("up to {}", count(batch)));
    let busy = if lease.mode == LeaseMode::Auto { " of busy keys" } else { "" };
    let fetch = format!(
        "{name} is leased: each server fetches units{busy} in batches, {batch}, and spends them by itself."
    );
    Some(match rate.algorithm {
        Algorithm::Gcra | Algorithm::TokenBucket => {
            let hold = lease.hold.map_or(HOLD_DEFAULT, |hold| hold.0);
            let beyond = units_in(hold, rate.limit, span(rate.per));
            format!(
                "{fetch} They live for {}, so up to {} beyond the rate can pass in any interval, however many servers there are.",
                Span(hold),
                some(beyond, "unit")
            )
        }
        _ => format!(
            "{fetch} They live until their window ends, so no window of the store's clock sees more than {}, however many \
             servers there are; what one server holds, the others cannot spend meanwhile.",
            count(rate.limit)
        ),
    })
}

/// How many units come back in this time, begun ones counted.
fn units_in(time: Duration, limit: u64, per: Duration) -> u64 {
    let units = (time.as_nanos().saturating_mul(u128::from(limit))).div_ceil(per.as_nanos().max(1));
    u64::try_from(units).unwrap_or(u64::MAX)
}

/// The length of a period that is no part of the calendar.
fn span(per: Period) -> Duration {
    match per {
        Period::Span(span) => span.0,
        Period::Calendar(_) => Duration::ZERO,
    }
}
