//! An independent oracle for the bound: it keeps every admission and counts, exactly, from the plain numbers.
//!
//! Nothing here is shared with the rules: no state to update, only sums over all intervals in 128-bit integers and a
//! calendar that counts days one year at a time.

use throttlekit_core::rate::{Cadence, LocalPeriod, Weekday};
use throttlekit_core::{Cost, Timestamp};

use crate::Spec;
use crate::half_years;
use crate::text::nanos;

/// The oracle for one key: every admission.
#[derive(Clone, Debug)]
pub struct Judge {
    spec: Spec,
    admitted: Vec<(Timestamp, Cost)>,
}

impl Judge {
    /// Creates an oracle without admissions.
    pub fn new(spec: Spec) -> Self {
        Self { spec, admitted: Vec::new() }
    }

    /// Returns whether the bound still holds after admitting `cost` at `now`, no earlier than any admission before.
    pub fn permits(&self, cost: Cost, now: Timestamp) -> bool {
        match self.spec {
            Spec::Gcra { units, period, burst } => self.permits_bucket(
                Bucket { units, period: nanos(period), depth: u128::from(burst) * period.as_nanos() },
                cost,
                now,
            ),
            Spec::TokenBucket { capacity, units, period } => self.permits_bucket(
                Bucket { units, period: nanos(period), depth: u128::from(capacity) * period.as_nanos() },
                cost,
                now,
            ),
            Spec::LeakyBucket { units, period, max_wait } => self.permits_bucket(
                Bucket {
                    units,
                    period: nanos(period),
                    depth: max_wait.as_nanos() * u128::from(units) + period.as_nanos(),
                },
                cost,
                now,
            ),
            Spec::Window { limit, cadence } => {
                let window = window_of(cadence, now);
                self.sum(|at| window_of(cadence, at) == window) + u128::from(cost) <= u128::from(limit)
            }
            Spec::Budget { limit, cadence } => {
                let window = window_of(cadence, now);
                cost <= 1 << 52
                    && (cost == 0 || self.sum(|at| window_of(cadence, at) == window) < u128::from(limit))
            }
            Spec::SlidingLog { limit, length } => {
                self.sum(|at| now.since(at) < length) + u128::from(cost) <= u128::from(limit)
            }
            Spec::SlidingWindow { limit, length, buckets, .. } => {
                self.permits_sliding(u128::from(limit), length.as_nanos(), u128::from(buckets), cost, now)
            }
        }
    }

    /// Records an admission.
    pub fn admit(&mut self, cost: Cost, now: Timestamp) {
        self.admitted.push((now, cost));
    }

    fn sum(&self, counts: impl Fn(Timestamp) -> bool) -> u128 {
        self.admitted.iter().filter(|(at, _)| counts(*at)).map(|(_, cost)| u128::from(*cost)).sum()
    }

    /// Checks admitted(Δ) ≤ burst + rate·Δ for every interval that ends now, times the period to stay whole.
    fn permits_bucket(&self, bucket: Bucket, cost: Cost, now: Timestamp) -> bool {
        let mut units = u128::from(cost);
        let within = |units: u128, since: Timestamp| {
            units * u128::from(bucket.period)
                <= bucket.depth + now.since(since).as_nanos() * u128::from(bucket.units)
        };
        within(units, now)
            && self.admitted.iter().rev().all(|(at, cost)| {
                units += u128::from(*cost);
                within(units, *at)
            })
    }

    /// Checks the weighted sum: buckets count in full, the one `buckets` steps back by the part still inside.
    fn permits_sliding(&self, limit: u128, length: u128, buckets: u128, cost: Cost, now: Timestamp) -> bool {
        let scaled = |at: Timestamp| u128::from(at.as_nanos()) * buckets;
        let (tick, elapsed) = (scaled(now) / length, scaled(now) % length);
        let weight = |at: Timestamp| match (tick - scaled(at) / length).cmp(&buckets) {
            std::cmp::Ordering::Less => length,
            std::cmp::Ordering::Equal => length - elapsed,
            std::cmp::Ordering::Greater => 0,
        };
        let used: u128 = self.admitted.iter().map(|(at, cost)| u128::from(*cost) * weight(*at)).sum();
        used + u128::from(cost) * length <= limit * length
    }
}

/// `units` per `period` with a depth in units × nanoseconds.
#[derive(Clone, Copy)]
struct Bucket {
    units: u64,
    period: u64,
    depth: u128,
}

const DAY: i128 = 86_400_000_000_000;
const MINUTE: i128 = 60_000_000_000;

/// Returns a number that is the same for two instants exactly if they lie in one window.
fn window_of(cadence: Cadence, at: Timestamp) -> i128 {
    let at = i128::from(at.as_nanos());
    let local_day = |minutes: i32| (at + i128::from(minutes) * MINUTE).div_euclid(DAY);
    match cadence {
        Cadence::Every { length, anchor } => {
            (at - i128::from(anchor.as_nanos())).div_euclid(length.as_nanos().cast_signed())
        }
        Cadence::Day { utc_offset_minutes } => local_day(utc_offset_minutes),
        Cadence::Week { starts_on, utc_offset_minutes } => {
            // Day 0 was a Thursday; day 4 was the first Monday.
            let first = 4 + days_after_monday(starts_on);
            (local_day(utc_offset_minutes) - first).div_euclid(7)
        }
        Cadence::Month { utc_offset_minutes } => month_of(local_day(utc_offset_minutes)),
        Cadence::Local { period, .. } => {
            local_period(period, half_years::latest_date((at / 1_000_000_000) as i64).into())
        }
    }
}

/// Returns a number that is the same for two local dates exactly if they lie in one period.
pub(crate) fn local_period(period: LocalPeriod, date: i128) -> i128 {
    match period {
        LocalPeriod::Week { starts_on } => (date - 4 - days_after_monday(starts_on)).div_euclid(7),
        LocalPeriod::Month { starts_on } => month_from(date, starts_on.into()),
        _ => date,
    }
}

/// Returns the number of the month in which the last period began, by counting days.
fn month_from(date: i128, starts_on: i128) -> i128 {
    let month = month_of(date);
    let days = |step: i128| (1..31).take_while(|day| month_of(date + step * day) == month).count() as i128;
    let (day, length) = (1 + days(-1), 1 + days(-1) + days(1));
    if day < starts_on.min(length) { month - 1 } else { month }
}

fn days_after_monday(day: Weekday) -> i128 {
    use Weekday::*;
    [Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday]
        .iter()
        .position(|d| *d == day)
        .unwrap_or(0) as i128
}

/// Returns the months since January 1970, counted year by year.
fn month_of(mut day: i128) -> i128 {
    let mut year = 1970;
    let is_leap = |year: i128| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if day < 0 {
        return -1;
    }
    while day >= 365 + i128::from(is_leap(year)) {
        day -= 365 + i128::from(is_leap(year));
        year += 1;
    }
    let february = 28 + i128::from(is_leap(year));
    let mut month = 0;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    (year - 1970) * 12 + month
}
