//! Numbers and keys as all wire formats have them: signed, in milliseconds, rounded up.

use std::time::Duration;

use throttlekit::{Axis, Guarantee, Retry, Timestamp};

use crate::engine::Refusal;

/// When to come back if no clock tells, since somebody has to give a slot back.
pub(crate) const RELEASE_WAIT: Duration = Duration::from_secs(1);
/// When to come back though it will not help: for clients that know no `never`, a day.
pub(crate) const NEVER_WAIT: Duration = Duration::from_secs(86_400);

/// A count as a signed number; the largest stands for all above.
pub(crate) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// An instant in milliseconds since the Unix epoch, rounded up.
pub(crate) fn millis_at(instant: Timestamp) -> i64 {
    signed(instant.as_millis_ceil())
}

/// A length of time in milliseconds, rounded up.
pub(crate) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

/// A wait in milliseconds that is always a number. Whether it helps is said beside it.
pub(crate) fn retry_millis(retry: Retry) -> i64 {
    millis(match retry {
        Retry::Now => Duration::ZERO,
        Retry::After(wait) => wait,
        Retry::OnRelease => RELEASE_WAIT,
        Retry::Never => NEVER_WAIT,
    })
}

/// A length of time in milliseconds, rounded down: for how long somebody may go on without asking.
pub(crate) fn millis_down(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// The keys of each of many calls: one each, and further ones for each or for none.
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

/// Keys as the engine takes them.
pub(crate) fn slices(keys: &[String]) -> Vec<&[u8]> {
    keys.iter().map(String::as_bytes).collect()
}

/// The keys that a lease was given for, as the engine takes them.
pub(crate) fn held(keys: &[Box<[u8]>]) -> Vec<&[u8]> {
    keys.iter().map(AsRef::as_ref).collect()
}

/// An axis by its name; empty where none denied.
pub(crate) fn axis_name(axis: Option<Axis>) -> String {
    axis.map_or_else(String::new, |axis| axis.label().to_owned())
}

/// By how many units the limit may be exceeded; zero where it is exact or nobody knows.
pub(crate) fn overshoot(guarantee: Guarantee) -> i64 {
    match guarantee {
        Guarantee::Bounded(units) => signed(units),
        _ => 0,
    }
}
