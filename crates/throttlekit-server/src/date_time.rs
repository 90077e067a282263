//! Civil dates as instants, for the expiry of tokens and certificates, and for anchors of windows.

use throttlekit::rate::Timestamp;

/// Parses an RFC 3339 date-time to the second: `2026-12-01T00:00:00Z` or `2026-12-01T01:00:00+01:00`.
pub(crate) fn parse(text: &str) -> Result<Timestamp, String> {
    seconds_of(text.as_bytes()).and_then(timestamp).ok_or_else(|| {
        format!(
            "invalid date-time `{}`: expected RFC 3339 with seconds and an offset, such as 2026-12-01T00:00:00Z",
            text.escape_debug()
        )
    })
}

/// Formats seconds since the Unix epoch, before the year 10000, as an RFC 3339 date-time.
pub(crate) fn format(seconds: u64) -> String {
    // Years that begin in March make February last; 400 of them have 146,097 days.
    let day = seconds / 86_400 + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = (era * 400 + year + u64::from(month >= 10), (month + 2) % 12 + 1);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Parses a UTC time written in digits as in X.509: `YYYYMMDDHHMMSSZ`, or `YYMMDDHHMMSSZ` for 1950 to 2049.
pub(crate) fn parse_x509(text: &[u8]) -> Option<Timestamp> {
    let digits = text.strip_suffix(b"Z")?;
    let (year, rest) = match digits.len() {
        14 => (number(&digits[..4])?, &digits[4..]),
        12 => {
            let short = number(&digits[..2])?;
            (if short < 50 { 2000 + short } else { 1900 + short }, &digits[2..])
        }
        _ => return None,
    };
    let at = |from: usize| number(&rest[from..from + 2]);
    timestamp(unix_seconds([year, at(0)?, at(2)?, at(4)?, at(6)?, at(8)?])?)
}

fn seconds_of(text: &[u8]) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let (time, offset) = rest.split_at_checked(9)?;
    let (b"-", b"-") = (&date[4..5], &date[7..8]) else { return None };
    let (b"T", b":", b":") = (&time[..1], &time[3..4], &time[6..7]) else { return None };
    let (year, month, day) = (number(&date[..4])?, number(&date[5..7])?, number(&date[8..])?);
    let (hour, minute, second) = (number(&time[1..3])?, number(&time[4..6])?, number(&time[7..])?);
    Some(unix_seconds([year, month, day, hour, minute, second])? - offset_seconds(offset)?)
}

/// Parses an offset from UTC: `Z`, `+01:00`, `-05:30`.
fn offset_seconds(text: &[u8]) -> Option<i64> {
    let (sign, text) = match text {
        b"Z" => return Some(0),
        [b'+', text @ ..] => (1, text),
        [b'-', text @ ..] => (-1, text),
        _ => return None,
    };
    let [h1, h2, b':', m1, m2] = text else { return None };
    let (hours, minutes) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 60 + minutes) * 60)
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |sum, digit| Some(sum * 10 + i64::from(char::from(*digit).to_digit(10)?)))
}

/// Returns the seconds since the Unix epoch of a date and a time of day. A leap second counts as the second after it.
fn unix_seconds([year, month, day, hour, minute, second]: [i64; 6]) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        _ => return None,
    };
    if !(1..=days).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Years that begin in March make February last; 400 of them have 146,097 days.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + (153 * month + 2) / 5 + day - 1;
    Some((day - 719_468) * 86_400 + hour * 3_600 + minute * 60 + second)
}

fn timestamp(seconds: i64) -> Option<Timestamp> {
    u64::try_from(seconds).ok()?.checked_mul(1_000_000_000).map(Timestamp::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_the_instants_that_they_name() {
        let table = [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T00:00:00Z", 951_782_400),
            ("2024-12-31T23:59:59Z", 1_735_689_599),
            ("2026-12-01T01:30:00+01:30", 1_796_083_200),
            ("2026-11-30T19:00:00-05:00", 1_796_083_200),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
        ];
        for (text, seconds) in table {
            assert_eq!(parse(text), Ok(Timestamp::from_millis(seconds * 1_000)), "{text}");
        }
        for seconds in [0, 951_782_399, 951_782_400, 1_735_689_599, 4_107_542_400, 16_725_225_599] {
            assert_eq!(parse(&format(seconds)), Ok(Timestamp::from_millis(seconds * 1_000)), "{seconds}");
        }
        assert_eq!(parse_x509(b"20261201000000Z"), Some(Timestamp::from_millis(1_796_083_200_000)));
        assert_eq!(parse_x509(b"261201000000Z"), Some(Timestamp::from_millis(1_796_083_200_000)));
        assert_eq!(parse_x509(b"491231235959Z"), Some(Timestamp::from_millis(2_524_607_999_000)));
        assert_eq!(parse_x509(b"500101000000Z"), None, "before the epoch");
    }

    #[test]
    fn what_is_no_date_is_refused() {
        for text in [
            "",
            "2026-12-01",
            "2026-12-01T00:00:00",
            "2026-12-01 00:00:00Z",
            "2026-12-01T00:00Z",
            "2026-12-01T00:00:00.5Z",
            "2026-12-01t00:00:00z",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-12-00T00:00:00Z",
            "2026-12-01T24:00:00Z",
            "2026-12-01T00:60:00Z",
            "2026-12-01T00:00:00+24:00",
            "2026-12-01T00:00:00+0100",
            "1969-12-31T23:59:59Z",
            "9999-12-31T23:59:59Z",
            "²026-12-01T00:00:00Z",
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("RFC 3339"), "{text}: {error}");
        }
        for text in ["2612010000Z", "26120100000Z", "2612010000000", "26x201000000Z"] {
            assert_eq!(parse_x509(text.as_bytes()), None, "{text}");
        }
    }
}
