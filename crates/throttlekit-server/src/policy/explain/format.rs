//! The format of numbers and times in explanations.

use std::time::Duration;

use super::super::limits::Calendar;
use super::super::model::Period;
use super::super::span::Span;

/// Formats a count with a comma between thousands.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number of items.
pub(super) fn some(number: u64, one: &str) -> String {
    format!("{} {one}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Formats a period as a frequency.
pub(super) fn each(per: Period) -> String {
    match per {
        Period::Span(Span(span)) => match span.as_millis() {
            1_000 => "per second".into(),
            60_000 => "per minute".into(),
            3_600_000 => "per hour".into(),
            86_400_000 => "per day".into(),
            _ => format!("every {}", Span(span)),
        },
        Period::Calendar(_) => format!("per calendar {per}"),
        Period::Total(_) => "in all".into(),
    }
}

/// Formats the instant that windows follow from, if there is one.
pub(super) fn anchored(anchor: Option<&str>) -> String {
    anchor.map_or_else(String::new, |anchor| format!(" (one begins at {anchor})"))
}

/// Formats the first day of a week or a month, if the file names one.
pub(super) fn starting(calendar: &Calendar<'_>) -> String {
    match (calendar.week_starts, calendar.month_starts) {
        (Some(day), _) => format!(" starting on {day:?}"),
        (None, Some(day @ 29..)) => format!(" starting on day {day} (or the last of the month)"),
        (None, Some(day)) => format!(" starting on day {day}"),
        (None, None) => String::new(),
    }
}

/// Formats the clocks by which a day begins.
pub(super) fn clocks(calendar: &Calendar<'_>) -> String {
    match calendar.time_zone {
        Some(name) => format!("in {name}"),
        None => format!("at {}", zone(calendar.utc_offset_minutes)),
    }
}

/// Formats the time in which one unit of a limit is replenished: to three places of the largest unit that fits.
pub(super) fn every(limit: u64, per: Duration) -> String {
    const UNITS: [(u128, &str); 4] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns")];
    let (nanos, limit) = (per.as_nanos(), u128::from(limit.max(1)));
    let (size, unit) = UNITS.into_iter().find(|(size, _)| nanos >= limit * size).unwrap_or((1, "ns"));
    let thousandths = nanos * 1_000 / (limit * size);
    let about = if thousandths * limit * size == nanos * 1_000 { "" } else { "about " };
    let part = format!("{:03}", thousandths % 1_000);
    let number = format!("{}.{part}", thousandths / 1_000);
    format!("{about}every {}{unit}", number.trim_end_matches('0').trim_end_matches('.'))
}

/// Formats an offset from UTC.
fn zone(minutes: i32) -> String {
    if minutes == 0 {
        return "UTC".into();
    }
    let sign = if minutes < 0 { '-' } else { '+' };
    let minutes = minutes.unsigned_abs();
    format!("UTC{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

/// Formats the keys that a limit counts by.
pub(super) fn whom(by: u8) -> String {
    match by {
        0 => "for each key".into(),
        by => format!("for each value of the call's further key {by}"),
    }
}

/// The same for a limit that counts by several keys.
pub(super) fn whom_all(by: &[u8]) -> String {
    let each = || by.iter().map(u8::to_string).collect();
    match by {
        [by] => whom(*by),
        _ => format!("for each value of the call's keys {}, once for each", list(each(), " and ")),
    }
}

/// Joins items to a list.
pub(super) fn list(mut items: Vec<String>, last: &str) -> String {
    match items.pop() {
        None => String::new(),
        Some(only) if items.is_empty() => only,
        Some(end) => format!("{}{last}{end}", items.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        let minute = Duration::from_secs(60);
        assert_eq!(
            [1, 7, 100, 60_000, 7_000_000].map(|limit| every(limit, minute)),
            ["every 60s", "about every 8.571s", "every 600ms", "every 1ms", "about every 8.571µs"]
        );
        assert_eq!([0, 60, -570].map(zone), ["UTC", "UTC+01:00", "UTC-09:30"]);
    }
}
