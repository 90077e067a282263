//! Requests for admission on every axis, and their responses.

use crate::{RemoteAnswer, RemotePermit};

/// A request to admit work: its keys, cost and value.
///
/// ```
/// use throttlekit_client::Work;
///
/// let work = Work::by("alice").and(&["acme"]).cost(1_200).value(3);
/// assert_eq!((work.key, work.cost), ("alice", 1_200));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work<'a> {
    /// The key of the caller.
    pub key: &'a str,
    /// Further keys, for policies that limit by several.
    pub others: &'a [&'a str],
    /// Estimated cost.
    pub cost: u64,
    /// Value of the work, for policies with prices.
    pub value: u64,
    /// Expected time that the work holds its slot, in milliseconds; 0 if unknown.
    pub hold_ms: u64,
}

impl<'a> Work<'a> {
    /// Creates a request of cost 1 and value 1.
    pub fn by(key: &'a str) -> Self {
        Self { key, others: &[], cost: 1, value: 1, hold_ms: 0 }
    }

    /// Adds keys that are limited too.
    pub fn and(self, others: &'a [&'a str]) -> Self {
        Self { others, ..self }
    }

    /// Sets the estimated cost.
    pub fn cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// Sets the value.
    pub fn value(self, value: u64) -> Self {
        Self { value, ..self }
    }

    /// Sets the expected duration in milliseconds.
    pub fn hold_ms(self, hold_ms: u64) -> Self {
        Self { hold_ms, ..self }
    }
}

/// The response to [`Work`].
#[derive(Debug)]
pub struct RemoteAdmission {
    /// The decision.
    pub answer: RemoteAnswer,
    /// Denied by a price, not by a limit.
    pub policy_denied: bool,
    /// The permit to hold until the work ends, if allowed.
    pub permit: Option<RemotePermit>,
}
