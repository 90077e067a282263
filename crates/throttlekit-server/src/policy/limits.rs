//! Conversion of a file to the limits of the library.

use std::time::Duration;

use throttlekit::rate::{Cadence, LimitError, SlidingWindow, Weekday};
use throttlekit::{Limit, Rate};

use super::model::{Algorithm, CalendarPart, CostSpec, FairSpec, Period, RateSpec};

/// Default number of buckets of a sliding window.
pub const BUCKETS_DEFAULT: u32 = 10;

impl RateSpec {
    /// Converts it to a limit.
    pub fn to_limit(&self) -> Result<Limit, LimitError> {
        match self.algorithm {
            Algorithm::Gcra => Limit::gcra(self.pace()?.burst(self.capacity())),
            Algorithm::TokenBucket => Limit::token_bucket(self.capacity(), self.pace()?),
            Algorithm::FixedWindow => Limit::fixed_window(self.limit, self.span()?),
            Algorithm::SlidingWindow => {
                let buckets = self.buckets.unwrap_or(BUCKETS_DEFAULT);
                let rule = SlidingWindow::new(self.limit, self.span()?, buckets)?;
                Ok(Limit::SlidingWindow(if self.early_retry { rule.retry_at_next_bucket() } else { rule }))
            }
            Algorithm::SlidingLog => Limit::sliding_log(self.limit, self.span()?),
            Algorithm::Quota => match self.per {
                Period::Calendar(part) => Limit::quota(self.limit, cadence(part, self.utc_offset_minutes)),
                Period::Span(_) => Err(LimitError::Policy("a quota counts per `day`, `week` or `month`")),
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
        }
    }
}

impl CostSpec {
    /// Converts it to a budget.
    pub fn to_limit(&self) -> Result<Limit, LimitError> {
        match self.per {
            Period::Span(span) => Limit::token_budget(self.budget, span.0),
            Period::Calendar(part) => Limit::budget(self.budget, cadence(part, self.utc_offset_minutes)),
        }
    }
}

impl FairSpec {
    /// Converts it to the window that all keys share.
    pub fn to_limit(&self) -> Result<Limit, LimitError> {
        Limit::fixed_window(self.limit, self.per.0)
    }
}

fn cadence(part: CalendarPart, utc_offset_minutes: i32) -> Cadence {
    match part {
        CalendarPart::Day => Cadence::Day { utc_offset_minutes },
        CalendarPart::Week => Cadence::Week { starts_on: Weekday::Monday, utc_offset_minutes },
        CalendarPart::Month => Cadence::Month { utc_offset_minutes },
    }
}

#[cfg(test)]
mod tests {
    use throttlekit::rate::{Rule, State, Timestamp};

    use super::*;
    use crate::policy::Span;

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
        let spec = CostSpec { budget: 100, per: minute(), utc_offset_minutes: 0, by: 0 };
        let budget = spec.to_limit().unwrap();
        let (mut key, now) = (State::default(), Timestamp::EPOCH);
        assert!(budget.check(&mut key, 99, now).allowed);
        assert!(budget.check(&mut key, 50, now).allowed);
        assert!(!budget.check(&mut key, 1, now).allowed);
    }
}
