//! Numbers and keys in all wire formats: signed, in milliseconds, rounded up.

use std::time::Duration;

use throttlekit::rate::Timestamp;
use throttlekit::{Axis, Guarantee, Retry};

use crate::engine::{Answered, Refusal};

/// Retry delay if no clock determines it, since a slot has to be released.
pub(crate) const RELEASE_WAIT: Duration = Duration::from_secs(1);
/// Retry delay if retrying does not help, for clients that cannot represent `never`: a day.
pub(crate) const NEVER_WAIT: Duration = Duration::from_secs(86_400);

/// Converts a count to a signed number; larger counts become the maximum.
pub(crate) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Converts an instant to milliseconds since the Unix epoch, rounded up.
pub(crate) fn millis_at(instant: Timestamp) -> i64 {
    signed(instant.as_millis_ceil())
}

/// Converts a duration to milliseconds, rounded up.
pub(crate) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

/// Converts a retry to milliseconds, always as a number. A separate field reports whether waiting helps.
pub(crate) fn retry_millis(retry: Retry) -> i64 {
    millis(match retry {
        Retry::Now => Duration::ZERO,
        Retry::After(wait) => wait,
        Retry::OnRelease => RELEASE_WAIT,
        Retry::Never => NEVER_WAIT,
    })
}

/// Converts a duration to milliseconds, rounded down: the time for which a client may go on without a request.
pub(crate) fn millis_down(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Converts a priority. Those beyond the last one are equal.
pub(crate) fn class(priority: u32) -> u8 {
    u8::try_from(priority).unwrap_or(u8::MAX)
}

/// Returns the keys of each of many calls: one each, and further ones for all of them or for none.
pub(crate) fn calls<'a>(keys: &'a [String], others: &[&'a [String]]) -> Result<Vec<Vec<&'a [u8]>>, Refusal> {
    if !others.is_empty() && others.len() != keys.len() {
        let (keys, others) = (keys.len(), others.len());
        let why = format!("others has {others} entries for {keys} keys: send one for each, or none");
        return Err(Refusal::Invalid(why));
    }
    let others = others.iter().copied().chain(std::iter::repeat(&[][..]));
    let call = |(key, others): (&'a String, &'a [String])| {
        std::iter::once(key).chain(others).map(String::as_bytes).collect()
    };
    Ok(keys.iter().zip(others).map(call).collect())
}

/// Converts keys to the form that the engine takes.
pub(crate) fn slices(keys: &[String]) -> Vec<&[u8]> {
    keys.iter().map(String::as_bytes).collect()
}

/// Converts the keys of a lease to the form that the engine takes.
pub(crate) fn held(keys: &[Box<[u8]>]) -> Vec<&[u8]> {
    keys.iter().map(AsRef::as_ref).collect()
}

/// Returns the name of an axis; empty if none denied.
pub(crate) fn axis_name(axis: Option<Axis>) -> String {
    axis.map_or_else(String::new, |axis| axis.label().to_owned())
}

/// Returns the name of the limit that denied; empty if none did, or if it has no name.
pub(crate) fn limit_name(answer: &Answered) -> String {
    answer.limit_name.map_or_else(String::new, |name| name.as_str().to_owned())
}

/// Returns the number of units by which the limit may be exceeded; zero if it is exact or unknown.
pub(crate) fn overshoot(guarantee: Guarantee) -> i64 {
    match guarantee {
        Guarantee::Bounded(units) => signed(units),
        _ => 0,
    }
}
