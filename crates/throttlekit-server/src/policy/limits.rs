//! Conversion of a file to the limits of the library.

use std::time::Duration;

use throttlekit::rate::{Cadence, LimitError, SlidingWindow, Weekday};
use throttlekit::{Limit, Rate};

use super::check::COST_NAME;
use super::model::{Algorithm, CalendarPart, CostSpec, FairSpec, Period, RateSpec, WeekdaySpec};
use crate::date_time;

/// Default number of buckets of a sliding window.
pub const BUCKETS_DEFAULT: u32 = 10;

impl RateSpec {
    /// Converts it to a limit.
    pub fn to_limit(&self) -> Result<Limit, LimitError> {
        match self.algorithm {
            Algorithm::Gcra => Limit::gcra(self.pace()?.burst(self.capacity())),
            Algorithm::TokenBucket => Limit::token_bucket(self.capacity(), self.pace()?),
            Algorithm::FixedWindow => Limit::quota(self.limit, every(self.span()?, self.anchor.as_deref())?),
            Algorithm::SlidingWindow => {
                let buckets = self.buckets.unwrap_or(BUCKETS_DEFAULT);
                let rule = SlidingWindow::new(self.limit, self.span()?, buckets)?;
                Ok(Limit::SlidingWindow(if self.early_retry { rule.retry_at_next_bucket() } else { rule }))
            }
            Algorithm::SlidingLog => Limit::sliding_log(self.limit, self.span()?),
            Algorithm::Quota => match self.per {
                Period::Calendar(part) => {
                    Limit::quota(self.limit, cadence(part, self.week_starts, self.utc_offset_minutes))
                }
                _ => Err(LimitError::Policy("a quota counts per `day`, `week` or `month`")),
            },
        }
    }

    /// Returns the number of units allowed at once after idle time, for an algorithm with a burst.
    pub(super) fn capacity(&self) -> u64 {
        self.burst.unwrap_or(self.limit)
    }

    fn pace(&self) -> Result<Rate, LimitError> {
        Ok(Rate::per(self.limit, self.span()?))
    }

    fn span(&self) -> Result<Duration, LimitError> {
        match self.per {
            Period::Span(span) => Ok(span.0),
            Period::Calendar(_) => {
                Err(LimitError::Policy("`day`, `week` and `month` are for quotas; write `1d`"))
            }
            Period::Total(_) => Err(LimitError::Policy("`total` is for token budgets")),
        }
    }
}

impl CostSpec {
    /// Returns the name under which its counts are kept.
    pub fn limit_name(&self) -> String {
        self.name.as_ref().map_or_else(|| COST_NAME.into(), |name| format!("{COST_NAME}.{name}"))
    }

    /// Converts it to a budget.
    pub fn to_limit(&self) -> Result<Limit, LimitError> {
        match self.per {
            Period::Total(_) => Limit::budget(self.budget, Cadence::TOTAL),
            Period::Span(span) => Limit::budget(self.budget, every(span.0, self.anchor.as_deref())?),
            Period::Calendar(part) => {
                Limit::budget(self.budget, cadence(part, self.week_starts, self.utc_offset_minutes))
            }
        }
    }
}

impl FairSpec {
    /// Converts it to the window that all keys share.
    pub fn to_limit(&self) -> Result<Limit, LimitError> {
        Limit::fixed_window(self.limit, self.per.0)
    }
}

fn cadence(part: CalendarPart, week_starts: Option<WeekdaySpec>, utc_offset_minutes: i32) -> Cadence {
    let starts_on = match week_starts.unwrap_or(WeekdaySpec::Monday) {
        WeekdaySpec::Monday => Weekday::Monday,
        WeekdaySpec::Tuesday => Weekday::Tuesday,
        WeekdaySpec::Wednesday => Weekday::Wednesday,
        WeekdaySpec::Thursday => Weekday::Thursday,
        WeekdaySpec::Friday => Weekday::Friday,
        WeekdaySpec::Saturday => Weekday::Saturday,
        WeekdaySpec::Sunday => Weekday::Sunday,
    };
    match part {
        CalendarPart::Day => Cadence::Day { utc_offset_minutes },
        CalendarPart::Week => Cadence::Week { starts_on, utc_offset_minutes },
        CalendarPart::Month => Cadence::Month { utc_offset_minutes },
    }
}

/// Returns windows of this length, of which one begins at the anchor.
fn every(length: Duration, anchor: Option<&str>) -> Result<Cadence, LimitError> {
    let Some(text) = anchor else { return Ok(Cadence::every(length)) };
    let wrong = |_| LimitError::Policy("invalid anchor: expected RFC 3339, such as 2026-12-01T06:00:00Z");
    Ok(Cadence::Every { length, anchor: date_time::parse(text).map_err(wrong)? })
}

#[cfg(test)]
mod tests {
    use throttlekit::rate::{Rule, State, Timestamp};

    use super::*;
    use crate::policy::{Span, TotalPart};

    fn rate(algorithm: Algorithm, limit: u64, per: Period, burst: Option<u64>) -> RateSpec {
        RateSpec {
            name: None,
            algorithm,
            limit,
            per,
            burst,
            buckets: None,
            early_retry: false,
            utc_offset_minutes: 0,
            week_starts: None,
            anchor: None,
            by: 0,
            lease: None,
        }
    }

    fn minute() -> Period {
        Period::Span(Span(Duration::from_secs(60)))
    }

    #[test]
    fn each_algorithm_becomes_the_limit_of_its_name() {
        let minute_long = Duration::from_secs(60);
        let is = |algorithm, per, burst, limit: Result<Limit, LimitError>| {
            assert_eq!(rate(algorithm, 90, per, burst).to_limit(), limit, "{algorithm:?}");
        };
        is(Algorithm::Gcra, minute(), Some(20), Limit::gcra(Rate::per_minute(90).burst(20)));
        is(Algorithm::Gcra, minute(), None, Limit::gcra(Rate::per_minute(90)));
        is(Algorithm::TokenBucket, minute(), Some(7), Limit::token_bucket(7, Rate::per_minute(90)));
        is(Algorithm::FixedWindow, minute(), None, Limit::fixed_window(90, minute_long));
        is(Algorithm::SlidingWindow, minute(), None, Limit::sliding_window(90, minute_long));
        is(Algorithm::SlidingLog, minute(), None, Limit::sliding_log(90, minute_long));
        let month = Period::Calendar(CalendarPart::Month);
        is(Algorithm::Quota, month, None, Limit::quota(90, Cadence::Month { utc_offset_minutes: 0 }));
    }

    #[test]
    fn a_sliding_window_takes_its_buckets() {
        let spec = RateSpec { buckets: Some(6), ..rate(Algorithm::SlidingWindow, 90, minute(), None) };
        let six = SlidingWindow::new(90, Duration::from_secs(60), 6).map(Limit::SlidingWindow);
        assert_eq!(spec.to_limit(), six);
    }

    #[test]
    fn a_period_of_the_wrong_kind_is_refused() {
        assert!(matches!(rate(Algorithm::Quota, 1, minute(), None).to_limit(), Err(LimitError::Policy(_))));
        let day = Period::Calendar(CalendarPart::Day);
        assert!(matches!(rate(Algorithm::Gcra, 1, day, None).to_limit(), Err(LimitError::Policy(_))));
    }

    #[test]
    fn a_cost_is_a_budget_that_its_last_debit_crosses() {
        let spec = CostSpec {
            name: None,
            budget: 100,
            per: minute(),
            utc_offset_minutes: 0,
            week_starts: None,
            anchor: None,
            by: vec![0],
        };
        let budget = spec.to_limit().unwrap();
        let (mut key, now) = (State::default(), Timestamp::EPOCH);
        assert!(budget.check(&mut key, 99, now).allowed);
        assert!(budget.check(&mut key, 50, now).allowed);
        assert!(!budget.check(&mut key, 1, now).allowed);
    }

    #[test]
    fn a_total_never_comes_back() {
        let per = Period::Total(TotalPart::Total);
        let by = vec![0];
        let spec = CostSpec {
            name: None,
            budget: 100,
            per,
            utc_offset_minutes: 0,
            week_starts: None,
            anchor: None,
            by,
        };
        let (budget, mut key) = (spec.to_limit().unwrap(), State::default());
        let at = |text: &str| date_time::parse(text).unwrap();
        assert!(budget.check(&mut key, 100, at("2026-11-18T00:00:00Z")).allowed);
        let denied = budget.check(&mut key, 1, at("2099-12-31T00:00:00Z"));
        assert_eq!((denied.allowed, denied.retry_after), (false, throttlekit::Retry::Never));
        assert!(rate(Algorithm::Quota, 1, per, None).to_limit().is_err());
        assert!(rate(Algorithm::Gcra, 1, per, None).to_limit().is_err());
    }

    #[test]
    fn weeks_start_on_the_day_and_windows_at_the_anchor_that_the_file_names() {
        let week = Period::Calendar(CalendarPart::Week);
        let spec =
            RateSpec { week_starts: Some(WeekdaySpec::Sunday), ..rate(Algorithm::Quota, 1, week, None) };
        let sunday = spec.to_limit().unwrap();
        let at = |text: &str| date_time::parse(text).unwrap();
        let allowed = |limit: &Limit, state: &mut State, now: &str| limit.check(state, 1, at(now)).allowed;
        let mut key = State::default();
        // 15 November 2026 is a Sunday.
        assert!(allowed(&sunday, &mut key, "2026-11-14T23:59:59Z"));
        assert!(allowed(&sunday, &mut key, "2026-11-15T00:00:00Z"), "a new week");
        assert!(!allowed(&sunday, &mut key, "2026-11-16T00:00:00Z"), "Monday is not the first day");
        let day = Period::Span(Span(Duration::from_secs(86_400)));
        let anchored = RateSpec {
            anchor: Some("2026-01-31T06:30:00Z".into()),
            ..rate(Algorithm::FixedWindow, 1, day, None)
        };
        let (anchored, mut key) = (anchored.to_limit().unwrap(), State::default());
        assert!(allowed(&anchored, &mut key, "2026-11-15T06:29:59Z"));
        assert!(allowed(&anchored, &mut key, "2026-11-15T06:30:00Z"), "a new window");
        assert!(!allowed(&anchored, &mut key, "2026-11-16T06:29:59Z"));
        let wrong = RateSpec { anchor: Some("noon".into()), ..rate(Algorithm::FixedWindow, 1, day, None) };
        assert!(matches!(wrong.to_limit(), Err(LimitError::Policy(_))));
    }
}
