//! Conversion of a strategy to a rate.

use std::time::Duration;

use super::super::super::error::did_you_mean;
use super::super::super::model::{Algorithm, CalendarPart, Period, RateSpec, WeekdaySpec};
use super::super::super::span::Span;
use super::super::super::tree::shown;
use super::one_limiter::OneLimiter;
use crate::date_time;

const STRATEGIES: [&str; 6] =
    ["gcra", "tokenBucket", "fixedWindow", "slidingWindow", "slidingWindowLog", "quota"];
/// Days as `weekStartsOn` counts them.
const WEEKDAYS: [WeekdaySpec; 7] = [
    WeekdaySpec::Sunday,
    WeekdaySpec::Monday,
    WeekdaySpec::Tuesday,
    WeekdaySpec::Wednesday,
    WeekdaySpec::Thursday,
    WeekdaySpec::Friday,
    WeekdaySpec::Saturday,
];
/// Numbers of seconds in which a refill rate with decimals may be a whole number of units.
const REFILL_SECONDS: [u32; 7] = [1, 2, 5, 10, 60, 100, 1_000];

impl OneLimiter<'_> {
    /// Converts the strategy. `None` if there is none, or after an error.
    pub(super) fn rate(&mut self) -> Option<RateSpec> {
        let strategy = self.limiter.strategy.as_deref()?;
        match strategy {
            "gcra" => Some(RateSpec { burst: self.limiter.burst, ..self.limited(Algorithm::Gcra)? }),
            "tokenBucket" => self.token_bucket(),
            "fixedWindow" => self.limited(Algorithm::FixedWindow),
            "slidingWindow" => {
                Some(RateSpec { buckets: self.limiter.buckets, ..self.limited(Algorithm::SlidingWindow)? })
            }
            "slidingWindowLog" => self.limited(Algorithm::SlidingLog),
            "quota" => self.quota(),
            other => {
                let hint = did_you_mean(other, STRATEGIES.iter().copied());
                let hint = if hint.is_empty() { "." } else { &hint };
                let known = STRATEGIES.join(", ");
                self.wrong(
                    "strategy",
                    format!("unknown strategy `{}`{hint} Strategies: {known}", shown(other)),
                );
                None
            }
        }
    }

    fn limited(&mut self, algorithm: Algorithm) -> Option<RateSpec> {
        let (limit, per) = (self.limit(), self.period());
        Some(RateSpec::new(algorithm, limit?, Period::Span(per?)))
    }

    fn limit(&mut self) -> Option<u64> {
        if self.limiter.limit.is_none() {
            self.missing("limit");
        }
        self.limiter.limit
    }

    /// Returns the length that one of three keys names.
    fn period(&mut self) -> Option<Span> {
        let limiter = self.limiter;
        let millis = |ms: u64| Span(Duration::from_millis(ms));
        let text = limiter.period.as_ref().map(|text| text.parse::<Span>());
        let named = [
            ("period", text.clone().and_then(Result::ok)),
            ("periodMs", limiter.period_ms.map(millis)),
            ("windowMs", limiter.window_ms.map(millis)),
        ];
        if let Some(Err(wrong)) = text {
            self.wrong("period", wrong);
            return None;
        }
        let mut lengths = named.into_iter().filter_map(|(key, span)| Some((key, span?)));
        let Some((_, first)) = lengths.next() else {
            self.missing("period");
            return None;
        };
        if let Some((key, _)) = lengths.find(|(_, other)| *other != first) {
            self.wrong(key, "a second, different period: keep one of period, periodMs and windowMs".into());
        }
        Some(first)
    }

    fn token_bucket(&mut self) -> Option<RateSpec> {
        for (key, present) in [
            ("capacity", self.limiter.capacity.is_some()),
            ("refillPerSec", self.limiter.refill_per_sec.is_some()),
        ] {
            if !present {
                self.missing(key);
            }
        }
        let (capacity, refill) = (self.limiter.capacity?, self.limiter.refill_per_sec?);
        let whole = |seconds: &u32| {
            let units = refill * f64::from(*seconds);
            (units >= 1.0 && units.fract() == 0.0 && units < 9e15).then_some((units as u64, *seconds))
        };
        let Some((limit, seconds)) = REFILL_SECONDS.iter().find_map(whole) else {
            let message = "not a whole number of units in 1 to 1000 seconds: choose a rate that is";
            self.wrong("refillPerSec", message.into());
            return None;
        };
        let per = Period::Span(Span(Duration::from_secs(seconds.into())));
        Some(RateSpec { burst: Some(capacity), ..RateSpec::new(Algorithm::TokenBucket, limit, per) })
    }

    fn quota(&mut self) -> Option<RateSpec> {
        let part = match self.limiter.reset_cadence.as_deref() {
            Some("calendar-day" | "day") => CalendarPart::Day,
            Some("calendar-week" | "week") => CalendarPart::Week,
            Some("calendar-month" | "month") => CalendarPart::Month,
            Some("rolling") => return self.limited(Algorithm::SlidingWindow),
            Some("fixed") => {
                return Some(RateSpec { anchor: self.anchor()?, ..self.limited(Algorithm::FixedWindow)? });
            }
            Some(other) => {
                let known = "calendar-day, calendar-week, calendar-month, fixed, rolling";
                self.wrong("resetCadence", format!("unknown cadence `{}`. Cadences: {known}", shown(other)));
                return None;
            }
            None => {
                self.missing("resetCadence");
                return None;
            }
        };
        let week_starts = if part == CalendarPart::Week { self.first_weekday()? } else { None };
        let utc_offset_minutes = self.limiter.offset_minutes.unwrap_or(0);
        let quota = RateSpec::new(Algorithm::Quota, self.limit()?, Period::Calendar(part));
        Some(RateSpec { utc_offset_minutes, week_starts, ..quota })
    }

    /// Returns the day on which weeks begin. The default is Monday there and here.
    fn first_weekday(&mut self) -> Option<Option<WeekdaySpec>> {
        let Some(day) = self.limiter.week_starts_on else { return Some(None) };
        let known = WEEKDAYS.get(usize::from(day)).copied();
        if known.is_none() {
            self.wrong("weekStartsOn", format!("invalid day {day}: expected 0 (Sunday) to 6 (Saturday)"));
        }
        known.map(|day| (day != WeekdaySpec::Monday).then_some(day))
    }

    /// Returns the beginning of one window. The default is the epoch there and here.
    fn anchor(&mut self) -> Option<Option<String>> {
        let Some(millis) = self.limiter.anchor.filter(|millis| *millis > 0) else { return Some(None) };
        if millis.is_multiple_of(1_000) && millis < ANCHOR_END_MS {
            return Some(Some(date_time::format(millis / 1_000)));
        }
        self.wrong(
            "anchor",
            format!("invalid anchor {millis}: expected whole seconds before the year 2500, in ms"),
        );
        None
    }
}

/// The year 2500, in milliseconds.
const ANCHOR_END_MS: u64 = 16_725_225_600_000;
