//! Durations and instants as text: exact to the nanosecond, both ways.

use std::time::Duration;

use throttlekit_core::Timestamp;

const NANOS_PER_SECOND: u64 = 1_000_000_000;
/// Unit names from the largest, with their nanoseconds.
const UNITS: [(&str, u64); 4] = [("s", NANOS_PER_SECOND), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// Formats a duration in the largest unit that holds it whole: `250ms`, `7s`, `333333334ns`.
pub fn print_duration(duration: Duration) -> String {
    let nanos = nanos(duration);
    let (name, size) = UNITS.iter().find(|(_, size)| nanos.is_multiple_of(*size)).unwrap_or(&UNITS[3]);
    format!("{}{name}", nanos / size)
}

/// Parses the format of [`print_duration`].
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = UNITS.iter().find(|(name, _)| *name == &text[digits.len()..]);
    let nanos = unit.and_then(|(_, size)| digits.parse::<u64>().ok()?.checked_mul(*size));
    nanos.map(Duration::from_nanos).ok_or_else(|| {
        format!("invalid duration `{text}`: expected a whole number and s, ms, us or ns, such as 250ms")
    })
}

/// Parses the format of a [`Timestamp`]: seconds, a point, nine digits, `s`.
pub(crate) fn parse_instant(text: &str) -> Result<Timestamp, String> {
    let parts = text.strip_suffix('s').and_then(|t| t.split_once('.')).filter(|(_, f)| f.len() == 9);
    let nanos = parts.and_then(|(seconds, fraction)| {
        let whole = seconds.parse::<u64>().ok()?.checked_mul(NANOS_PER_SECOND)?;
        whole.checked_add(fraction.parse().ok()?)
    });
    nanos.map(Timestamp::from_nanos).ok_or_else(|| {
        format!(
            "invalid instant `{text}`: expected seconds since the epoch with nine decimals, such as \
             1.500000000s"
        )
    })
}

/// Parses a whole number, or returns an error with the expected format.
pub(crate) fn parse_number<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("invalid {what} `{text}`: expected a whole number"))
}

/// Returns the whole nanoseconds of a duration of at most 584 years.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_values_are_parsed_to_the_nanosecond() {
        for ns in [0, 1, 999, 1_000, 250_000_000, 333_333_334, 60_000_000_000, u64::MAX] {
            assert_eq!(
                parse_duration(&print_duration(Duration::from_nanos(ns))),
                Ok(Duration::from_nanos(ns))
            );
            let at = Timestamp::from_nanos(ns);
            assert_eq!(parse_instant(&at.to_string()), Ok(at));
        }
        for wrong in ["", "s", "5", "-1s", "5m", "99999999999999999999s", "ünf"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
        for wrong in ["1s", "1.5s", "1.500000000", "1.50000000xs", ".s"] {
            assert!(parse_instant(wrong).is_err(), "{wrong}");
        }
    }
}
