//! Rates and durations as text: `"100/minute"`, `"5 per 10s; burst 20"`, `"250ms"`.

use std::time::Duration;

/// A rate as text, in its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateText {
    pub(crate) units: u64,
    pub(crate) period: Duration,
    pub(crate) burst: Option<u64>,
}

const RATE_EXPECTED: &str = "expected units and a period, as in \"100/minute\" or \"5 per 10s; burst 20\"";
const DURATION_EXPECTED: &str = "expected a number and a unit (ns, us, ms, s, m, h, d), or a unit alone";

/// Parses a rate. The error states what was expected.
pub(crate) fn rate(text: &str) -> Result<RateText, String> {
    parts(text).ok_or_else(|| format!("invalid rate {text:?}: {RATE_EXPECTED}"))
}

fn parts(text: &str) -> Option<RateText> {
    let (rate, burst) = match text.split_once(';') {
        Some((rate, burst)) => (rate, Some(burst.trim().strip_prefix("burst")?.trim().parse().ok()?)),
        None => (text, None),
    };
    let (units, period) = rate.split_once('/').or_else(|| rate.split_once(" per "))?;
    let units = units.trim().replace('_', "").parse().ok()?;
    Some(RateText { units, period: period_of(period.trim())?, burst })
}

/// Parses a duration. The error states what was expected.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    period_of(text.trim()).ok_or_else(|| format!("invalid duration {text:?}: {DURATION_EXPECTED}"))
}

fn period_of(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (count, unit) = text.split_at(unit_at);
    let count: u64 = if count.is_empty() { 1 } else { count.replace('_', "").parse().ok()? };
    let nanos: u64 = match unit.trim() {
        "ns" => 1,
        "us" => 1_000,
        "ms" | "millisecond" | "milliseconds" => 1_000_000,
        "s" | "sec" | "second" | "seconds" => 1_000_000_000,
        "m" | "min" | "minute" | "minutes" => 60_000_000_000,
        "h" | "hour" | "hours" => 3_600_000_000_000,
        "d" | "day" | "days" => 86_400_000_000_000,
        _ => return None,
    };
    Some(Duration::from_nanos(count.checked_mul(nanos)?))
}
