//! Asks on every axis, and what they come back with.

use crate::{Cost, RemoteAnswer, RemotePermit};

/// Work that wants in: by whom, at what cost, of what worth.
///
/// ```
/// use throttlekit_client::Work;
///
/// let work = Work::by("alice").and(&["acme"]).cost(1_200).value(3);
/// assert_eq!((work.key, work.cost), ("alice", 1_200));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work<'a> {
    /// Who asks.
    pub key: &'a str,
    /// Further keys, for policies that limit by several.
    pub others: &'a [&'a str],
    /// Its estimated cost.
    pub cost: Cost,
    /// What it is worth, for policies that price.
    pub value: u64,
    /// How long it is expected to hold its slot, in milliseconds; 0 if unknown.
    pub hold_ms: u64,
}

impl<'a> Work<'a> {
    /// Work of cost 1 and worth 1.
    pub fn by(key: &'a str) -> Self {
        Self { key, others: &[], cost: 1, value: 1, hold_ms: 0 }
    }

    /// The same, limited by these keys too.
    pub fn and(self, others: &'a [&'a str]) -> Self {
        Self { others, ..self }
    }

    /// The same at this estimated cost.
    pub fn cost(self, cost: Cost) -> Self {
        Self { cost, ..self }
    }

    /// The same, worth this.
    pub fn value(self, value: u64) -> Self {
        Self { value, ..self }
    }

    /// The same, expected to take so many milliseconds.
    pub fn hold_ms(self, hold_ms: u64) -> Self {
        Self { hold_ms, ..self }
    }
}

/// The answer to [`Work`].
#[derive(Debug)]
pub struct RemoteAdmission {
    /// The answer.
    pub answer: RemoteAnswer,
    /// Denied by a price, not by a limit.
    pub policy_denied: bool,
    /// If allowed, what is held until the work ends.
    pub permit: Option<RemotePermit>,
}
