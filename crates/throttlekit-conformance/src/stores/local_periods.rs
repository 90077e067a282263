//! Quotas by the clocks of a time zone, on a real store: around the instants at which clocks change.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use throttlekit::clock::ManualClock;
use throttlekit::rate::{Cadence, LocalPeriod, Timestamp, Weekday, Zone};
use throttlekit::store::Store;
use throttlekit::{Limit, SharedLimiter, time_zone};

use crate::Dice;
use crate::invariants::{Violation, local_period};

/// Number of requests of one trace.
const REQUESTS: usize = 60;

/// Results of traces around changes of clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalPeriods {
    /// Admitted requests.
    pub admitted: u64,
    /// Denied requests.
    pub denied: u64,
    /// Periods in which the whole limit was used.
    pub spent: u64,
}

/// Zones and instants in 2026 at which their clocks change: in the north, in the south, by half an hour, over midnight.
fn zones() -> [(&'static str, [&'static str; 2]); 5] {
    [
        ("Europe/Berlin", ["2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z"]),
        ("America/New_York", ["2026-03-08T07:00:00Z", "2026-11-01T06:00:00Z"]),
        ("Australia/Sydney", ["2026-04-04T16:00:00Z", "2026-10-03T16:00:00Z"]),
        ("Australia/Lord_Howe", ["2026-04-04T15:00:00Z", "2026-10-03T15:30:00Z"]),
        ("America/Santiago", ["2026-04-05T03:00:00Z", "2026-09-06T04:00:00Z"]),
    ]
}

/// Spends quotas of local periods through a store that decides at the time of `clock`, in each of five zones, in one
/// trace for each seed, which begins within three periods of a change of clocks. Each request must be admitted exactly if
/// its local period, by the dates of a calendar library, has units left.
pub async fn examine_local_periods<S: Store>(
    store: &Arc<S>,
    clock: &ManualClock,
    policy: &str,
    seeds: Range<u64>,
) -> Result<Vec<(&'static str, LocalPeriods)>, Violation> {
    let mut seen = Vec::new();
    for (name, changes) in zones() {
        let zone = time_zone::find(name)
            .map_err(|error| Violation { seed: 0, counterexample: error.to_string() })?;
        let dates = jiff::tz::TimeZone::get(name).expect("the library has all zones");
        let date = |now: Timestamp| {
            let now =
                jiff::Timestamp::from_nanosecond(now.as_nanos().into()).expect("a date of this century");
            let passed = dates.to_datetime(now).date().since(jiff::civil::date(1970, 1, 1));
            passed.expect("a date of this century").get_days().into()
        };
        let changes = changes.map(|at| {
            let at: jiff::Timestamp = at.parse().expect("an instant");
            Timestamp::from_millis(at.as_millisecond().unsigned_abs())
        });
        let policy = format!("{policy}-{}", name.replace('/', "-"));
        seen.push((name, examine_zone(store, clock, &policy, zone, date, &changes, seeds.clone()).await?));
    }
    Ok(seen)
}

async fn examine_zone<S: Store>(
    store: &Arc<S>,
    clock: &ManualClock,
    policy: &str,
    zone: Zone,
    date: impl Fn(Timestamp) -> i64,
    changes: &[Timestamp],
    seeds: Range<u64>,
) -> Result<LocalPeriods, Violation> {
    use Weekday::{Friday, Monday, Saturday, Sunday, Thursday, Tuesday, Wednesday};
    let mut seen = LocalPeriods::default();
    for seed in seeds {
        let mut dice = Dice::new(seed);
        let violation = |counterexample: String| Violation { seed, counterexample };
        let weekday = dice.pick(&[Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday]);
        let (period, length) = dice.pick(&[
            (LocalPeriod::Day, Duration::from_secs(86_400)),
            (LocalPeriod::Week { starts_on: weekday }, Duration::from_secs(7 * 86_400)),
            (LocalPeriod::Month { starts_on: 1 }, Duration::from_secs(31 * 86_400)),
            (LocalPeriod::Month { starts_on: 31 }, Duration::from_secs(31 * 86_400)),
        ]);
        let units = dice.between(1, 8);
        let limit = Limit::quota(units, Cadence::Local { period, zone });
        let limit = limit.map_err(|error| violation(error.to_string()))?;
        let name = format!("{policy}-{seed}");
        let limiter = SharedLimiter::new(store.clone(), &name, limit);
        let limiter = limiter.map_err(|error| violation(error.to_string()))?;
        let before = Duration::from_micros(dice.below(3 * length.as_micros() as u64));
        let mut now = Timestamp::from_nanos(dice.pick(changes).as_nanos() - before.as_nanos() as u64);
        let mut used: BTreeMap<i128, u64> = BTreeMap::new();
        for request in 0..REQUESTS {
            now = now + Duration::from_micros(dice.any_size(length.as_micros() as u64 / 4));
            clock.set(now);
            let cost = dice.between(1, 3);
            let used = used.entry(local_period(period, i128::from(date(now)))).or_default();
            let fits = *used + cost <= units;
            let answer = limiter.check(("key", cost)).await;
            let answer = answer.map_err(|error| violation(error.to_string()))?;
            if answer.allowed != fits {
                return Err(violation(format!(
                    "request {request} at {now} by {period:?} in {zone:?}: {cost} more than {used} of {units}, and the \
                     store returned {answer:?}"
                )));
            }
            if fits {
                *used += cost;
                seen.spent += u64::from(*used == units);
            }
            seen.admitted += u64::from(fits);
            seen.denied += u64::from(!fits);
        }
    }
    Ok(seen)
}
