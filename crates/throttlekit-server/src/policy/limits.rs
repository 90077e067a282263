//! Conversion of a file to the limits of the library.

use std::time::Duration;

use throttlekit::rate::{Cadence, LimitError, LocalPeriod, SlidingWindow, Weekday, Zone};
use throttlekit::{Limit, Rate, time_zone};

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
                Period::Calendar(part) => Limit::quota(self.limit, self.calendar().cadence(part)?),
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
            Period::Calendar(part) => Limit::budget(self.budget, self.calendar().cadence(part)?),
        }
    }
}

impl FairSpec {
    /// Converts it to the window that all keys share.
    pub fn to_limit(&self) -> Result<Limit, LimitError> {
        Limit::fixed_window(self.limit, self.per.0)
    }
}

/// Beginning of the calendar periods of a limit, as the file states it.
pub(super) struct Calendar<'s> {
    pub(super) utc_offset_minutes: i32,
    pub(super) week_starts: Option<WeekdaySpec>,
    pub(super) month_starts: Option<u8>,
    pub(super) time_zone: Option<&'s str>,
}

impl RateSpec {
    /// Creates a rate of which the file states nothing else.
    pub(super) fn new(algorithm: Algorithm, limit: u64, per: Period) -> Self {
        Self {
            name: None,
            algorithm,
            limit,
            per,
            burst: None,
            buckets: None,
            early_retry: false,
            utc_offset_minutes: 0,
            week_starts: None,
            month_starts: None,
            time_zone: None,
            anchor: None,
            by: 0,
            lease: None,
        }
    }

    /// Returns when its periods begin.
    pub(super) fn calendar(&self) -> Calendar<'_> {
        Calendar {
            utc_offset_minutes: self.utc_offset_minutes,
            week_starts: self.week_starts,
            month_starts: self.month_starts,
            time_zone: self.time_zone.as_deref(),
        }
    }
}

impl CostSpec {
    /// Returns when its periods begin.
    pub(super) fn calendar(&self) -> Calendar<'_> {
        Calendar {
            utc_offset_minutes: self.utc_offset_minutes,
            week_starts: self.week_starts,
            month_starts: self.month_starts,
            time_zone: self.time_zone.as_deref(),
        }
    }
}

impl Calendar<'_> {
    fn cadence(&self, part: CalendarPart) -> Result<Cadence, LimitError> {
        let (utc_offset_minutes, starts_on) = (self.utc_offset_minutes, self.first_weekday());
        let zone = match self.time_zone {
            Some(name) => time_zone::find(name)
                .map_err(|_| LimitError::Policy("unknown time zone: expected a name of the IANA database"))?,
            // Counts of limits without a zone stay where they were before there were zones.
            None if self.month_starts.is_none() => {
                return Ok(match part {
                    CalendarPart::Day => Cadence::Day { utc_offset_minutes },
                    CalendarPart::Week => Cadence::Week { starts_on, utc_offset_minutes },
                    CalendarPart::Month => Cadence::Month { utc_offset_minutes },
                });
            }
            None => Zone::fixed(utc_offset_minutes)?,
        };
        let period = match part {
            CalendarPart::Day => LocalPeriod::Day,
            CalendarPart::Week => LocalPeriod::Week { starts_on },
            CalendarPart::Month => LocalPeriod::Month { starts_on: self.month_starts.unwrap_or(1) },
        };
        Ok(Cadence::Local { period, zone })
    }

    fn first_weekday(&self) -> Weekday {
        match self.week_starts.unwrap_or(WeekdaySpec::Monday) {
            WeekdaySpec::Monday => Weekday::Monday,
            WeekdaySpec::Tuesday => Weekday::Tuesday,
            WeekdaySpec::Wednesday => Weekday::Wednesday,
            WeekdaySpec::Thursday => Weekday::Thursday,
            WeekdaySpec::Friday => Weekday::Friday,
            WeekdaySpec::Saturday => Weekday::Saturday,
            WeekdaySpec::Sunday => Weekday::Sunday,
        }
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
        RateSpec { burst, ..RateSpec::new(algorithm, limit, per) }
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
            month_starts: None,
            time_zone: None,
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
            month_starts: None,
            time_zone: None,
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

    #[test]
    fn periods_begin_by_the_clocks_of_the_time_zone_that_the_file_names() {
        let day = Period::Calendar(CalendarPart::Day);
        let berlin =
            RateSpec { time_zone: Some("Europe/Berlin".into()), ..rate(Algorithm::Quota, 1, day, None) };
        let at = |text: &str| date_time::parse(text).unwrap();
        let reset =
            |spec: &RateSpec, now: &str| spec.to_limit().unwrap().peek(&State::Fresh, at(now)).reset_at;
        // In summer time, in the night in which it ends, and in winter time.
        assert_eq!(reset(&berlin, "2026-10-24T12:00:00Z"), at("2026-10-24T22:00:00Z"));
        assert_eq!(reset(&berlin, "2026-10-24T22:00:00Z"), at("2026-10-25T23:00:00Z"));
        assert_eq!(reset(&berlin, "2026-10-25T23:00:00Z"), at("2026-10-26T23:00:00Z"));
        let month = Period::Calendar(CalendarPart::Month);
        let billing = RateSpec { month_starts: Some(31), ..rate(Algorithm::Quota, 1, month, None) };
        assert_eq!(reset(&billing, "2026-02-10T00:00:00Z"), at("2026-02-28T00:00:00Z"));
        assert_eq!(reset(&billing, "2026-02-28T00:00:00Z"), at("2026-03-31T00:00:00Z"));
        let local = RateSpec { time_zone: Some("America/New_York".into()), ..billing };
        assert_eq!(reset(&local, "2026-02-28T05:00:00Z"), at("2026-03-31T04:00:00Z"));
        let first = RateSpec { month_starts: Some(1), ..rate(Algorithm::Quota, 1, month, None) };
        let plain = rate(Algorithm::Quota, 1, month, None);
        for now in ["2026-02-28T23:59:59Z", "2028-02-29T00:00:00Z", "2026-12-31T23:59:59Z"] {
            assert_eq!(reset(&first, now), reset(&plain, now));
        }
        let unknown = RateSpec { time_zone: Some("Mars/Olympus".into()), ..plain };
        assert!(matches!(unknown.to_limit(), Err(LimitError::Policy(_))));
    }
}
