//! A limit as plain numbers and one line of text.
//!
//! The oracles of the invariants compute from these numbers and never use a [`Limit`], so a mistake in the rules cannot
//! hide in its own check.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use throttlekit_core::rate::{Cadence, Limit, LimitError, LocalPeriod, Rate, SlidingWindow, Weekday};

use crate::half_years;
use crate::text::{parse_duration, parse_instant, parse_number, print_duration};

/// The description of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the words of the text form")]
pub enum Spec {
    /// `gcra 3 per 1s burst 5`
    Gcra { units: u64, period: Duration, burst: u64 },
    /// `token-bucket 10 refill 5 per 1s`
    TokenBucket { capacity: u64, units: u64, period: Duration },
    /// `leaky-bucket 10 per 1s wait 250ms`
    LeakyBucket { units: u64, period: Duration, max_wait: Duration },
    /// `window 5 every 1s anchor 0.000000000s`, `window 5 day offset 120`, `window 5 week monday offset 0` or
    /// `window 5 month offset -300`; offsets in minutes east of UTC. Or `window 5 local day`, `window 5 local week
    /// monday` or `window 5 local month 15`, by clocks that change twice a year.
    Window { limit: u64, cadence: Cadence },
    /// `budget 5 every 1s anchor 0.000000000s` and so on: a window that the last debit may exceed.
    Budget { limit: u64, cadence: Cadence },
    /// `sliding-window 10 in 1s buckets 10 retry exact`, or `retry next-bucket`
    SlidingWindow { limit: u64, length: Duration, buckets: u32, exact: bool },
    /// `sliding-log 5 in 1s`
    SlidingLog { limit: u64, length: Duration },
}

const WEEKDAYS: [(&str, Weekday); 7] = [
    ("monday", Weekday::Monday),
    ("tuesday", Weekday::Tuesday),
    ("wednesday", Weekday::Wednesday),
    ("thursday", Weekday::Thursday),
    ("friday", Weekday::Friday),
    ("saturday", Weekday::Saturday),
    ("sunday", Weekday::Sunday),
];

impl Spec {
    /// Returns the limit that it describes.
    pub fn limit(&self) -> Result<Limit, LimitError> {
        match *self {
            Self::Gcra { units, period, burst } => Limit::gcra(Rate::per(units, period).burst(burst)),
            Self::TokenBucket { capacity, units, period } => {
                Limit::token_bucket(capacity, Rate::per(units, period))
            }
            Self::LeakyBucket { units, period, max_wait } => {
                Limit::leaky_bucket(Rate::per(units, period), max_wait)
            }
            Self::Window { limit, cadence } => Limit::quota(limit, cadence),
            Self::Budget { limit, cadence } => Limit::budget(limit, cadence),
            Self::SlidingWindow { limit, length, buckets, exact } => {
                let rule = SlidingWindow::new(limit, length, buckets)?;
                Ok(if exact { rule } else { rule.retry_at_next_bucket() }.into())
            }
            Self::SlidingLog { limit, length } => Limit::sliding_log(limit, length),
        }
    }

    /// Returns whether a denial's `retry_after` is exact, which only the hint of version 1 is not.
    pub fn is_exact(&self) -> bool {
        !matches!(self, Self::SlidingWindow { exact: false, .. })
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = print_duration;
        match *self {
            Self::Gcra { units, period, burst } => {
                write!(f, "gcra {units} per {} burst {burst}", text(period))
            }
            Self::TokenBucket { capacity, units, period } => {
                write!(f, "token-bucket {capacity} refill {units} per {}", text(period))
            }
            Self::LeakyBucket { units, period, max_wait } => {
                write!(f, "leaky-bucket {units} per {} wait {}", text(period), text(max_wait))
            }
            Self::Window { limit, cadence } => {
                write!(f, "window {limit} ")?;
                print_cadence(cadence, f)
            }
            Self::Budget { limit, cadence } => {
                write!(f, "budget {limit} ")?;
                print_cadence(cadence, f)
            }
            Self::SlidingWindow { limit, length, buckets, exact } => {
                let retry = if exact { "exact" } else { "next-bucket" };
                write!(f, "sliding-window {limit} in {} buckets {buckets} retry {retry}", text(length))
            }
            Self::SlidingLog { limit, length } => write!(f, "sliding-log {limit} in {}", text(length)),
        }
    }
}

fn print_cadence(cadence: Cadence, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match cadence {
        Cadence::Every { length, anchor } => write!(f, "every {} anchor {anchor}", print_duration(length)),
        Cadence::Day { utc_offset_minutes } => write!(f, "day offset {utc_offset_minutes}"),
        Cadence::Week { starts_on, utc_offset_minutes } => {
            write!(f, "week {} offset {utc_offset_minutes}", name_of(starts_on))
        }
        Cadence::Month { utc_offset_minutes } => write!(f, "month offset {utc_offset_minutes}"),
        Cadence::Local { period: LocalPeriod::Week { starts_on }, .. } => {
            write!(f, "local week {}", name_of(starts_on))
        }
        Cadence::Local { period: LocalPeriod::Month { starts_on }, .. } => {
            write!(f, "local month {starts_on}")
        }
        Cadence::Local { .. } => f.write_str("local day"),
    }
}

fn name_of(weekday: Weekday) -> &'static str {
    WEEKDAYS.iter().find(|(_, day)| *day == weekday).map_or("", |(name, _)| name)
}

fn parse_weekday(name: &str) -> Result<Weekday, String> {
    let known = WEEKDAYS.iter().find(|(known, _)| *known == name);
    known.map(|(_, day)| *day).ok_or_else(|| format!("invalid day `{name}`: expected monday to sunday"))
}

impl FromStr for Spec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let units = |text| parse_number(text, "number of units");
        let spec = match words[..] {
            ["gcra", rate, "per", period, "burst", burst] => {
                Self::Gcra { units: units(rate)?, period: parse_duration(period)?, burst: units(burst)? }
            }
            ["token-bucket", capacity, "refill", rate, "per", period] => Self::TokenBucket {
                capacity: units(capacity)?,
                units: units(rate)?,
                period: parse_duration(period)?,
            },
            ["leaky-bucket", rate, "per", period, "wait", wait] => Self::LeakyBucket {
                units: units(rate)?,
                period: parse_duration(period)?,
                max_wait: parse_duration(wait)?,
            },
            ["window", limit, ref cadence @ ..] => {
                Self::Window { limit: units(limit)?, cadence: parse_cadence(cadence)? }
            }
            ["budget", limit, ref cadence @ ..] => {
                Self::Budget { limit: units(limit)?, cadence: parse_cadence(cadence)? }
            }
            ["sliding-window", limit, "in", length, "buckets", buckets, "retry", retry] => {
                Self::SlidingWindow {
                    limit: units(limit)?,
                    length: parse_duration(length)?,
                    buckets: parse_number(buckets, "number of buckets")?,
                    exact: parse_exact(retry)?,
                }
            }
            ["sliding-log", limit, "in", length] => {
                Self::SlidingLog { limit: units(limit)?, length: parse_duration(length)? }
            }
            _ => return Err(format!("invalid limit `{text}`: expected one such as `gcra 3 per 1s burst 5`")),
        };
        spec.limit().map_err(|error| error.to_string())?;
        Ok(spec)
    }
}

fn parse_exact(retry: &str) -> Result<bool, String> {
    match retry {
        "exact" => Ok(true),
        "next-bucket" => Ok(false),
        _ => Err(format!("invalid retry `{retry}`: expected `exact` or `next-bucket`")),
    }
}

fn parse_cadence(words: &[&str]) -> Result<Cadence, String> {
    let offset = |text| parse_number(text, "offset in minutes");
    let local = |period| Cadence::Local { period, zone: half_years::zone() };
    Ok(match *words {
        ["every", length, "anchor", anchor] => {
            Cadence::Every { length: parse_duration(length)?, anchor: parse_instant(anchor)? }
        }
        ["day", "offset", minutes] => Cadence::Day { utc_offset_minutes: offset(minutes)? },
        ["month", "offset", minutes] => Cadence::Month { utc_offset_minutes: offset(minutes)? },
        ["week", day, "offset", minutes] => {
            Cadence::Week { starts_on: parse_weekday(day)?, utc_offset_minutes: offset(minutes)? }
        }
        ["local", "day"] => local(LocalPeriod::Day),
        ["local", "week", day] => local(LocalPeriod::Week { starts_on: parse_weekday(day)? }),
        ["local", "month", day] => {
            local(LocalPeriod::Month { starts_on: parse_number(day, "day of the month")? })
        }
        _ => {
            return Err(format!(
                "invalid cadence `{}`: expected `every 1s anchor 0.000000000s`, `day offset 0`, `week \
                 monday offset 0`, `month offset 0` or `local day`",
                words.join(" ")
            ));
        }
    })
}
