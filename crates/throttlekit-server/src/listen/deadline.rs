//! The deadline that a client sends with its request.

use std::time::Duration;

use http::HeaderMap;

/// Returns the time for a request: its client's deadline (`grpc-timeout`), but no more than the server's own.
pub(super) fn deadline(headers: &HeaderMap, most: Duration) -> Duration {
    let said = headers.get("grpc-timeout").and_then(|value| grpc_timeout(value.as_bytes()));
    said.map_or(most, |said| said.min(most))
}

/// Parses at most eight digits and a unit, as gRPC over HTTP/2 defines it. Anything else is ignored.
fn grpc_timeout(text: &[u8]) -> Option<Duration> {
    let (unit, digits) = text.split_last()?;
    if !(1..=8).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(number * 3_600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_can_shorten_its_time_and_not_lengthen_it() {
        let most = Duration::from_secs(10);
        let with = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", value.parse().unwrap());
            deadline(&headers, most)
        };
        assert_eq!(deadline(&HeaderMap::new(), most), most);
        assert_eq!(with("250m"), Duration::from_millis(250));
        assert_eq!(with("9S"), Duration::from_secs(9));
        assert_eq!(with("5000u"), Duration::from_millis(5));
        assert_eq!(with("99999999n"), Duration::from_nanos(99_999_999));
        for same in ["99999999H", "11S", "1M", "123456789m", "m", "-1S", "1x", "", "1.5S"] {
            assert_eq!(with(same), most, "{same}");
        }
    }
}
