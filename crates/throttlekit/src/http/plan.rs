//! Limits under the names that clients see.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;

use super::admit::Admit;
use super::headers;
use super::key::Key;
use crate::sync::Mutex;
use crate::{Cost, Decision, Limiter, Timestamp};

/// A named limit, such as `free` or `pro`. The name appears in the headers and in the response to a denied request.
///
/// Clones share the limit.
///
/// ```
/// use throttlekit::{Limiter, Rate, http::Plan};
///
/// let free = Plan::new("free", Limiter::new(Rate::per_minute(60))?)?;
/// let caller = free.caller("alice");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Plan<A = Limiter> {
    terms: Arc<Terms>,
    gate: Arc<A>,
}

/// A caller, by its key, and its plan.
#[derive(Debug)]
pub struct Caller<A = Limiter> {
    pub(super) plan: Plan<A>,
    pub(super) key: Key,
}

impl<A: Admit> Plan<A> {
    /// Creates a plan that checks `gate`. The name must be printable ASCII, as the headers require.
    pub fn new(name: &str, gate: A) -> Result<Self, NameError> {
        let name = sfv::String::from_string(name.to_owned()).map_err(|(_, name)| NameError(name))?;
        let gate = Arc::new(gate);
        let terms = Terms::new(name, Arc::clone(&gate));
        Ok(Self { terms: Arc::new(terms), gate })
    }

    /// Returns the caller with this key under this plan.
    pub fn caller(&self, key: impl Into<Key>) -> Caller<A> {
        Caller { plan: self.clone(), key: key.into() }
    }

    pub(super) fn gate(&self) -> &Arc<A> {
        &self.gate
    }
}

impl<A> Plan<A> {
    pub(super) fn terms(&self) -> &Arc<Terms> {
        &self.terms
    }
}

// `gate` need not be `Clone`.
clone_fields!([A] Plan<A>, terms, gate);

/// Terms of a plan, as reported to clients.
pub(super) struct Terms {
    pub(super) name: sfv::String,
    numbers: Box<dyn Fn() -> Numbers + Send + Sync>,
    now: Box<dyn Fn() -> Timestamp + Send + Sync>,
    /// The value of `RateLimit-Policy` for the numbers it was last written for.
    policy: Mutex<(Numbers, HeaderValue)>,
}

/// Units of a limit, and the time until all of them are back. A limit may change while it is in use.
type Numbers = (Cost, Option<Duration>);

impl Terms {
    fn new<A: Admit>(name: sfv::String, gate: Arc<A>) -> Self {
        let clock = Arc::clone(&gate);
        let numbers = Box::new(move || (gate.units(), gate.period()));
        let told = numbers();
        let policy = Mutex::new((told, headers::policy(&name, told.0, told.1)));
        Self { name, numbers, now: Box::new(move || clock.now()), policy }
    }

    /// Returns the value of `RateLimit-Policy` for the limit as it is now.
    pub(super) fn policy(&self) -> HeaderValue {
        let numbers = (self.numbers)();
        let mut policy = self.policy.lock();
        if policy.0 != numbers {
            *policy = (numbers, headers::policy(&self.name, numbers.0, numbers.1));
        }
        policy.1.clone()
    }

    /// Returns the time until all units are back: never more than the limit's whole period.
    pub(super) fn reset_in(&self, reset_at: Timestamp) -> Duration {
        let (_, period) = (self.numbers)();
        reset_at.since((self.now)()).min(period.unwrap_or(Duration::MAX))
    }
}

debug_fields!([] Terms, |it| name = it.name);

/// Returns the decision that leaves less, of two about one request.
///
/// Clients see that one: the numbers of a limit that did not bind would mislead them.
pub(super) fn tighter(one: Decision, other: Decision) -> Decision {
    let room = |decision: &Decision| (decision.allowed, decision.remaining);
    if room(&one) < room(&other) { one } else { other }
}

/// Error for a plan's name that no header can carry: it is not printable ASCII.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError(String);

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: the name of a plan is printable ASCII", self.0)
    }
}

impl Error for NameError {}
