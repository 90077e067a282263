//! Numbers and durations as providers write them. Values that cannot be true are ignored.

use std::time::Duration;

use http::HeaderMap;
use throttlekit_core::Timestamp;

use super::date;

/// Longest delay that is believed: the rest of a month.
pub(super) const DELAY_MAX: Duration = Duration::from_secs(32 * 86_400);
/// Numbers from here on are instants in seconds since the epoch, and from the second on in milliseconds.
const UNIX_SECS_MIN: u64 = 1_000_000_000;
const UNIX_MILLIS_MIN: u64 = 1_000_000_000_000;
const UNIX_MILLIS_MAX: u64 = 10_000_000_000_000;
/// Digits before the point, more than which are not believed, and those after it that count.
const WHOLE_DIGITS_MAX: usize = 15;
const PART_DIGITS: usize = 9;
const NANOS: u64 = 1_000_000_000;

/// The clock that instants of a response are compared with: the one that the response was sent by, if it reports one. So
/// neither side's clock has to be right.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseClock(Timestamp);

impl ResponseClock {
    /// Reads the header `Date`. Default: `now`.
    pub(super) fn of(headers: &HeaderMap, now: Timestamp) -> Self {
        let date = text(headers, "date").and_then(date::http_date);
        Self(date.unwrap_or(now))
    }

    /// Returns the time until an instant. Zero for one in the past.
    fn until(self, at: Timestamp) -> Option<Duration> {
        believed(at.since(self.0))
    }
}

/// Returns the value of a header, if it is text.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// Parses a number of units: the first one of a list, rounded down.
pub(super) fn units(text: &str) -> Option<u64> {
    let number = text.split([',', ';']).next().unwrap_or_default().trim();
    decimal(number).map(|(whole, _)| whole)
}

/// Parses the time until a reset: a duration such as `6m0s`, a number of seconds, or an instant: RFC 3339, an HTTP date, or
/// a number of seconds or milliseconds since the epoch.
pub(super) fn reset(text: &str, clock: ResponseClock) -> Option<Duration> {
    if let Some((whole, _)) = decimal(text) {
        return match whole {
            UNIX_MILLIS_MAX.. => None,
            UNIX_MILLIS_MIN.. => clock.until(Timestamp::from_millis(whole)),
            UNIX_SECS_MIN.. => clock.until(Timestamp::from_millis(whole.saturating_mul(1_000))),
            _ => number_of(text, NANOS),
        };
    }
    let instant = || date::rfc3339(text).or_else(|| date::http_date(text));
    whole_span(text).or_else(|| clock.until(instant()?))
}

/// Parses a number of milliseconds.
pub(super) fn millis(text: &str) -> Option<Duration> {
    number_of(text, 1_000_000)
}

/// Parses a duration at the beginning of a text: `6m0s`, `1.5s`, `120ms`, `20 seconds`.
pub(super) fn span(text: &str) -> Option<Duration> {
    leading_span(text).map(|(span, _)| span)
}

fn whole_span(text: &str) -> Option<Duration> {
    leading_span(text).filter(|(_, rest)| rest.trim().is_empty()).map(|(span, _)| span)
}

/// Parses numbers with units as far as there are any. Returns their sum and the rest.
fn leading_span(text: &str) -> Option<(Duration, &str)> {
    let (mut sum, mut rest, mut found) = (Duration::ZERO, text.trim_start(), false);
    while let Some((length, after)) = one_span(rest) {
        (sum, rest, found) = (sum.checked_add(length)?, after, true);
    }
    believed(sum).filter(|_| found).map(|sum| (sum, rest))
}

fn one_span(text: &str) -> Option<(Duration, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, rest) = text.split_at(end);
    let rest = rest.trim_start();
    let unit_end = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit_end);
    Some((number_of(number, unit_nanos(unit)?)?, rest))
}

/// Returns the nanoseconds of a unit of time.
fn unit_nanos(unit: &str) -> Option<u64> {
    Some(match unit {
        "d" | "day" | "days" => 86_400 * NANOS,
        "h" | "hr" | "hour" | "hours" => 3_600 * NANOS,
        "m" | "min" | "mins" | "minute" | "minutes" => 60 * NANOS,
        "s" | "sec" | "secs" | "second" | "seconds" => NANOS,
        "ms" | "millisecond" | "milliseconds" => 1_000_000,
        "us" | "µs" | "μs" => 1_000,
        "ns" => 1,
        _ => return None,
    })
}

/// Parses a decimal number of units of time.
fn number_of(text: &str, unit_nanos: u64) -> Option<Duration> {
    let (whole, billionths) = decimal(text)?;
    let parts = u128::from(whole) * u128::from(NANOS) + u128::from(billionths);
    let nanos = parts.checked_mul(u128::from(unit_nanos))?.div_ceil(u128::from(NANOS));
    believed(Duration::from_nanos(u64::try_from(nanos).ok()?))
}

/// Parses digits with an optional fraction, as a whole number and billionths. No sign, no exponent: what a provider does
/// not write is not accepted.
fn decimal(text: &str) -> Option<(u64, u64)> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !are_digits(whole) || !are_digits(part) {
        return None;
    }
    let whole = whole.trim_start_matches('0');
    if whole.len() > WHOLE_DIGITS_MAX {
        return None;
    }
    let whole = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let billionths = part.bytes().chain(std::iter::repeat(b'0')).take(PART_DIGITS);
    Some((whole, billionths.fold(0, |all, digit| all * 10 + u64::from(digit - b'0'))))
}

fn believed(delay: Duration) -> Option<Duration> {
    (delay <= DELAY_MAX).then_some(delay)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: ResponseClock = ResponseClock(Timestamp::from_millis(1_700_000_000_000));

    #[test]
    fn resets_are_read_as_providers_write_them() {
        for (text, millis) in [
            ("6m0s", 360_000),
            ("1.5s", 1_500),
            ("120ms", 120),
            ("1h0m30s", 3_630_000),
            ("2m59.56s", 179_560),
            ("0", 0),
            ("7", 7_000),
            ("0.25", 250),
            ("1700000060", 60_000),
            ("1700000060000", 60_000),
            ("1699999999", 0),
            ("2023-11-14T22:13:50Z", 30_000),
            ("Tue, 14 Nov 2023 22:13:50 GMT", 30_000),
        ] {
            assert_eq!(reset(text, CLOCK), Some(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn hostile_resets_are_ignored() {
        for text in [
            "",
            " ",
            "-1",
            "+1",
            "NaN",
            "inf",
            "1e3",
            "1_000",
            ".",
            "1.",
            ".5",
            "0x10",
            "s",
            "1 fortnight",
            "1s1",
            "--",
            "99999999999999999999",
            "999999999999999",
            "5000000000000",
            "4000000000",
            "2800000",
            "33d",
            "1s é",
            "٣",
            "9999-12-31T00:00:00Z",
            "584542046090y",
            "18446744073709551616s",
            "999999999999999h",
        ] {
            assert_eq!(reset(text, CLOCK), None, "{text}");
        }
    }

    #[test]
    fn units_are_the_first_number_of_a_list() {
        for (text, number) in [("100", 100), ("100, 100;w=60", 100), ("0", 0), ("12.9", 12), ("007", 7)] {
            assert_eq!(units(text), Some(number), "{text}");
        }
        for text in ["-1", "", "many", "1e9", "1000000000000000", "NaN"] {
            assert_eq!(units(text), None, "{text}");
        }
    }

    #[test]
    fn spans_are_found_at_the_beginning_of_a_text() {
        assert_eq!(span("1.2s. Visit us"), Some(Duration::from_millis(1_200)));
        assert_eq!(span("26 seconds."), Some(Duration::from_secs(26)));
        assert_eq!(span("6m0s"), Some(Duration::from_secs(360)));
        assert_eq!(span("a while"), None);
        assert_eq!(span("37"), None);
    }
}
