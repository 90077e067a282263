//! Durations as people write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::tree::shown;

/// A duration: an integer and a unit, `250ms`, `1s`, `5m`, `1h`, `1d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String", extend("pattern" = "^[0-9]+(ms|s|m|h|d)$"))]
pub struct Span(pub Duration);

const UNITS: [(u64, &str); 5] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number = number.parse::<u64>().ok();
        if number == Some(0) {
            return Err(format!("invalid duration `{}`: expected at least 1", shown(text)));
        }
        let size = UNITS.iter().find(|(_, name)| *name == unit).map(|(size, _)| *size);
        match (number, size) {
            (Some(number), Some(size)) => {
                let millis =
                    number.checked_mul(size).ok_or_else(|| format!("invalid duration `{text}`: too long"))?;
                Ok(Self(Duration::from_millis(millis)))
            }
            (Some(number), None) if unit.is_empty() => Err(format!(
                "invalid duration `{number}`: missing unit, such as `{number}s` (ms, s, m, h, d)"
            )),
            _ => Err(format!(
                "invalid duration `{}`: expected an integer and a unit (ms, s, m, h, d), such as `1m`",
                shown(text)
            )),
        }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        output.collect_str(self)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        let fits = |(size, _): &(u64, &str)| millis.is_multiple_of(u128::from(*size));
        let (size, unit) = UNITS.into_iter().find(fits).unwrap_or((1, "ms"));
        write!(f, "{}{unit}", millis / u128::from(size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_comes_back_in_its_largest_unit() {
        for (text, back) in
            [("250ms", "250ms"), ("1000ms", "1s"), ("60s", "1m"), ("90s", "90s"), ("24h", "1d")]
        {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), back);
        }
    }

    #[test]
    fn what_is_no_length_of_time_says_what_to_write() {
        for (text, says) in [
            ("60", "invalid duration `60`: missing unit, such as `60s` (ms, s, m, h, d)"),
            ("0s", "invalid duration `0s`: expected at least 1"),
            ("1w", "invalid duration `1w`: expected an integer and a unit (ms, s, m, h, d), such as `1m`"),
            ("", "invalid duration ``: expected an integer and a unit (ms, s, m, h, d), such as `1m`"),
            ("99999999999999999d", "invalid duration `99999999999999999d`: too long"),
        ] {
            assert_eq!(text.parse::<Span>().unwrap_err(), says);
        }
    }
}
