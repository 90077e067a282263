//! Dates in headers: RFC 3339, and the three forms of an HTTP date.

use throttlekit_core::Timestamp;

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAY_SECS: u64 = 86_400;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: u64 = 719_468;

/// Parses a time such as `2026-01-02T03:04:05Z`, with any offset and any fraction of a second.
pub(super) fn rfc3339(text: &str) -> Option<Timestamp> {
    let (date, rest) = text.split_at_checked(10)?;
    let (time, rest) = rest.strip_prefix(['T', 't', ' '])?.split_at_checked(8)?;
    let ([year, month, day], [hour, minute, second]) = (three(date, '-')?, three(time, ':')?);
    let (nanos, zone) = fraction(rest)?;
    let secs = seconds([year, month, day], [hour, minute, second])?;
    let secs = secs.checked_add_signed(-offset(zone)?)?;
    Some(Timestamp::from_nanos(secs.checked_mul(1_000_000_000)?.checked_add(nanos)?))
}

/// Parses `Sun, 06 Nov 1994 08:49:37 GMT`, and the two obsolete forms that recipients must accept.
pub(super) fn http_date(text: &str) -> Option<Timestamp> {
    let mut words = text.split([' ', ',', '-', ':']).filter(|word| !word.is_empty()).skip(1);
    let mut next = || words.next();
    let first = next()?;
    let (date, time) = if let Some(month) = month(first) {
        let (day, time) = (digits(next()?)?, [digits(next()?)?, digits(next()?)?, digits(next()?)?]);
        ([digits(next()?)?, month, day], time)
    } else {
        let (day, month, year) = (digits(first)?, month(next()?)?, digits(next()?)?);
        // Two digits are of the obsolete form, which ended with the nineties.
        let year = if year < 100 { year + if year < 70 { 2_000 } else { 1_900 } } else { year };
        ([year, month, day], [digits(next()?)?, digits(next()?)?, digits(next()?)?])
    };
    Some(Timestamp::from_millis(seconds(date, time)?.checked_mul(1_000)?))
}

/// Returns the seconds since the epoch of a date between 1970 and 2500.
fn seconds([year, month, day]: [u64; 3], [hour, minute, second]: [u64; 3]) -> Option<u64> {
    let is_date = (1_970..=2_500).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    let is_time = hour < 24 && minute < 60 && second <= 60;
    (is_date && is_time).then(|| days(year, month, day) * DAY_SECS + hour * 3_600 + minute * 60 + second)
}

/// Returns the days since the epoch. Years that begin in March make February last, so that a month's offset in its year
/// is linear.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let (year, from_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    (era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year).saturating_sub(EPOCH_DAYS)
}

fn month(word: &str) -> Option<u64> {
    let place = MONTHS.iter().position(|month| word.eq_ignore_ascii_case(month))?;
    Some(place as u64 + 1)
}

/// Splits off a fraction of a second, in nanoseconds.
fn fraction(text: &str) -> Option<(u64, &str)> {
    let Some(rest) = text.strip_prefix('.') else { return Some((0, text)) };
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (digits, zone) = rest.split_at(end);
    let nanos = digits.bytes().chain(std::iter::repeat(b'0')).take(9);
    Some((nanos.fold(0, |all, digit| all * 10 + u64::from(digit - b'0')), zone))
}

/// Returns the seconds that an offset such as `Z` or `+02:00` is ahead of UTC.
fn offset(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, rest) =
        zone.strip_prefix('+').map(|rest| (1, rest)).or(zone.strip_prefix('-').map(|rest| (-1, rest)))?;
    let (hours, minutes) = rest.split_once(':')?;
    let (hours, minutes) = (digits(hours)?, digits(minutes)?);
    (hours < 24 && minutes < 60).then(|| sign * (hours * 3_600 + minutes * 60) as i64)
}

fn three(text: &str, separator: char) -> Option<[u64; 3]> {
    let mut parts = text.split(separator).map(digits);
    let all = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(all)
}

/// Parses up to four digits.
fn digits(text: &str) -> Option<u64> {
    let is_number = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_in_every_form() {
        let at = |secs: u64| Some(Timestamp::from_millis(secs * 1_000));
        for text in
            ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
        {
            assert_eq!(http_date(text), at(784_111_777), "{text}");
        }
        for (text, secs) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T00:00:00Z", 951_782_400),
            ("2024-02-29T23:59:59z", 1_709_251_199),
            ("2024-03-01T01:59:59+02:00", 1_709_251_199),
            ("2024-02-29 20:59:59-03:00", 1_709_251_199),
        ] {
            assert_eq!(rfc3339(text), at(secs), "{text}");
        }
        assert_eq!(rfc3339("1970-01-01T00:00:01.0205Z"), Some(Timestamp::from_micros(1_020_500)));
    }

    #[test]
    fn other_text_is_no_date() {
        for text in [
            "",
            "Z",
            "2024",
            "2024-02-29",
            "2024-02-29T23:59:59",
            "2024-13-01T00:00:00Z",
            "2024-02-00T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "9999-01-01T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01T00:00:00+24:00",
            "2024-01-01T00:00:00é",
            "-024-01-01T00:00:00Z",
            "1970-01-01T00:00:00+00:01",
        ] {
            assert_eq!(rfc3339(text), None, "{text}");
        }
        for text in [
            "",
            "Sun",
            "Sun, 06 Nov",
            "Sun, 06 Abc 1994 08:49:37 GMT",
            "06 Nov 1994 08:49:37",
            "Sun, 99999 Nov 1994 08:49:37",
        ] {
            assert_eq!(http_date(text), None, "{text}");
        }
    }
}
