//! Conversion from wire types to the library's types.

use std::time::Duration;

use throttlekit::rate::{Forecast, Timestamp};
use throttlekit::store::{Epoch, Leased, Loan, StoreError, Term, Want};
use throttlekit::{Axis, Decision, Guarantee, Retry};
use throttlekit_proto::v1;

use crate::{ClientError, RemoteAnswer};

/// Maximum assumed difference between this machine's clock and that of a server that reports no durations.
const SKEW_MAX: Duration = Duration::from_millis(250);

pub(crate) fn units(wire: i64) -> u64 {
    u64::try_from(wire).unwrap_or(0)
}

fn instant(wire: i64) -> Timestamp {
    Timestamp::from_millis(units(wire))
}

/// Converts a cost. Costs are at least 1 on the wire, where 0 means 1.
pub(crate) fn cost(cost: u64) -> Result<i64, ClientError> {
    match i64::try_from(cost) {
        Ok(0) => Err(ClientError::invalid("a cost is at least 1 on the wire: peek instead")),
        Ok(cost) => Ok(cost),
        Err(_) => Err(ClientError::invalid(format_args!("a cost is at most {}", i64::MAX))),
    }
}

/// Converts a key. Keys are text on the wire.
pub(crate) fn key(key: &[u8]) -> Result<&str, ClientError> {
    str::from_utf8(key).map_err(|_| ClientError::invalid("a key is not UTF-8: send it as text, in hex say"))
}

pub(crate) fn answer(decision: Option<v1::Decision>) -> Result<RemoteAnswer, ClientError> {
    let told =
        decision.ok_or_else(|| ClientError::Failed("the server left an ask without an answer".into()))?;
    Ok(RemoteAnswer {
        decision: Decision {
            allowed: told.allowed,
            limit: units(told.limit),
            remaining: units(told.remaining),
            reset_at: instant(told.reset_at),
            retry_after: retry(&told),
        },
        guarantee: guarantee(&told.guarantee, told.overshoot_bound),
        binding_axis: axis(&told.binding_axis),
        shadow_denied: told.shadow_denied,
        outage: None,
    })
}

/// Converts the retry hint. Servers without one report a duration.
fn retry(told: &v1::Decision) -> Retry {
    let wait = Retry::after(Duration::from_millis(units(told.retry_after_ms)));
    match told.retry() {
        v1::Retry::Never => Retry::Never,
        v1::Retry::OnRelease => Retry::OnRelease,
        v1::Retry::Now => Retry::Now,
        v1::Retry::Unspecified | v1::Retry::After => wait,
    }
}

/// Converts the guarantee. Servers without one count as exact.
fn guarantee(label: &str, overshoot: i64) -> Guarantee {
    match label {
        "bounded" => Guarantee::Bounded(units(overshoot)),
        "local" => Guarantee::Local,
        "open" => Guarantee::Open,
        "closed" => Guarantee::Closed,
        _ => Guarantee::Exact,
    }
}

pub(crate) fn axis(label: &str) -> Option<Axis> {
    Axis::ALL.into_iter().find(|axis| axis.label() == label)
}

pub(crate) fn forecast(told: Option<v1::Forecast>) -> Result<Forecast, ClientError> {
    let told = told.ok_or_else(|| ClientError::Failed("the server forecast nothing".into()))?;
    Ok(Forecast {
        spendable_now: units(told.spendable_now),
        next_replenish_at: instant(told.next_replenish_at),
        full_at: instant(told.full_at),
    })
}

/// Converts a lease for a holder that requested this term, received at `now` of the wall clock.
///
/// The duration counts from when the holder sent its request. If a server reports only an instant, the maximum clock
/// difference is subtracted.
pub(crate) fn lent(
    lease: &v1::Lease,
    term: Term,
    want: Want,
    now: Timestamp,
    unnamed: impl FnOnce() -> Epoch,
) -> Result<Leased, StoreError> {
    let granted = u64::try_from(lease.capacity).map_err(|_| StoreError::bad_state("a lease below zero"))?;
    let until = instant(lease.expiry_ms);
    let told = Duration::from_millis(units(lease.lease_for_ms));
    let (lives, theirs) = if told.is_zero() {
        (until.since(now).saturating_sub(SKEW_MAX), now)
    } else {
        (told, Timestamp::from_millis(units(lease.expiry_ms.saturating_sub(lease.lease_for_ms))))
    };
    let lives = match term {
        Term::Window => Some(lives),
        Term::Rolling(hold) => Some(lives.min(hold)),
        Term::Carry => None,
    };
    // Units of different leases are spent under one deadline only if they belong to one window. A lease that can be
    // returned belongs to one, and its end identifies it.
    let epoch = match lease.epoch.parse() {
        Ok(epoch) => Epoch(epoch),
        Err(_) if !lease.return_id.is_empty() => Epoch(units(lease.expiry_ms)),
        Err(_) => unnamed(),
    };
    let decision = Decision {
        allowed: granted > 0,
        limit: units(lease.limit),
        // The server reports only whether there may be more.
        remaining: u64::from(granted >= want.wants),
        reset_at: until,
        retry_after: if granted > 0 { Retry::Now } else { wait(lease) },
    };
    Ok(Leased { now: theirs, loan: Loan { granted, epoch, lives, decision } })
}

/// Returns how long to wait if nothing was lent.
fn wait(lease: &v1::Lease) -> Retry {
    let told = if lease.retry_after_ms > 0 { lease.retry_after_ms } else { lease.refresh_interval_ms };
    Retry::After(Duration::from_millis(units(told).max(1)))
}
