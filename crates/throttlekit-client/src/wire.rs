//! Conversion from wire types to the library's types.

use std::time::Duration;

use throttlekit::admit::LimitName;
use throttlekit::clock::{Clock, WallClock};
use throttlekit::rate::{Forecast, Timestamp};
use throttlekit::store::{Epoch, Leased, Loan, StoreError, Term, Want};
use throttlekit::{Answer, Axis, Decision, Guarantee, Retry};
use throttlekit_proto::v1;

/// Maximum assumed difference between this machine's clock and that of a server that reports no durations.
const SKEW_MAX: Duration = Duration::from_millis(250);

pub(crate) fn units(wire: i64) -> u64 {
    u64::try_from(wire).unwrap_or(0)
}

fn instant(wire: i64) -> Timestamp {
    Timestamp::from_millis(units(wire))
}

/// Converts a decision. The wire has no time of it, so it counts as made now.
pub(crate) fn answer(told: &v1::Decision) -> Answer {
    let decision = Decision {
        allowed: told.allowed,
        limit: units(told.limit),
        remaining: units(told.remaining),
        reset_at: instant(told.reset_at),
        retry_after: retry(told),
    };
    let mut answer = Answer::new(decision, guarantee(told), WallClock.now());
    answer.shadow_denied = told.shadow_denied;
    answer.limit_name = LimitName::new(&told.limit_name);
    answer
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
pub(crate) fn guarantee(told: &v1::Decision) -> Guarantee {
    match told.guarantee.as_str() {
        "bounded" => Guarantee::Bounded(units(told.overshoot_bound)),
        "local" => Guarantee::Local,
        "open" => Guarantee::Open,
        "closed" => Guarantee::Closed,
        _ => Guarantee::Exact,
    }
}

pub(crate) fn axis(label: &str) -> Option<Axis> {
    Axis::ALL.into_iter().find(|axis| axis.label() == label)
}

pub(crate) fn forecast(told: &v1::Forecast) -> Forecast {
    Forecast {
        spendable_now: units(told.spendable_now),
        next_replenish_at: instant(told.next_replenish_at),
        full_at: instant(told.full_at),
    }
}

/// Converts a lease for a holder that requested this term, received at `now` of the wall clock.
///
/// The duration counts from when the holder sent its request. If a server reports only an instant, the maximum clock
/// difference is subtracted.
pub(crate) fn leased(
    lease: &v1::Lease,
    term: Term,
    want: Want,
    now: Timestamp,
    unnamed: impl FnOnce() -> Epoch,
) -> Result<Leased, StoreError> {
    let granted = u64::try_from(lease.capacity)
        .map_err(|_| StoreError::bad_state("the server returned a negative lease"))?;
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
