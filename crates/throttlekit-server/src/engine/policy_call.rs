//! Requests to the engine, and their limits.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::Call;

use super::Refusal;
use crate::policy::KEYS_MAX;

/// Maximum length of a key, in bytes.
pub const KEY_BYTES_MAX: usize = 1_024;
/// Maximum number of tokens of an input: that of a budget.
const INPUT_MAX: u64 = 1 << 52;
/// Maximum length of a class, in bytes.
const CLASS_BYTES_MAX: usize = 128;
/// Maximum number of keys in one request.
pub const MANY_MAX: usize = 1_000;
/// The key of a call without a key.
const NO_KEY: &[u8] = &[];
/// Maximum cost: the range of a signed number on the wire.
pub(crate) const COST_MAX: u64 = i64::MAX as u64;

/// The keys of a call that is stored, the first one first.
pub(crate) type Keys = Arc<[Box<[u8]>]>;

/// One request, as every API passes it.
#[derive(Clone, Copy, Debug)]
pub struct PolicyCall<'a> {
    /// The name of the policy.
    pub policy: &'a str,
    /// The key that is limited.
    pub key: &'a [u8],
    /// Further keys, for limits that count by them.
    pub others: &'a [&'a [u8]],
    /// Cost, at least 1; APIs convert zero to 1.
    pub cost: u64,
}

/// Outcome of work under a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// The backend was overloaded, or failed.
    pub dropped: bool,
    /// The outcome is no sample of the backend's load.
    pub ignored: bool,
    /// Actual cost, if it differs from the estimate.
    pub actual_cost: Option<u64>,
    /// Duration of the work, if it is not the time for which the lease was held.
    pub latency: Option<Duration>,
}

/// Hint of the cost of work in advance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostHint<'a> {
    /// Tokens of the input, which are used in any case.
    pub input_tokens: u64,
    /// Maximum number of tokens beyond the input, if there is one.
    pub max_tokens: Option<u64>,
    /// Kind of work, such as the name of a model.
    pub class: &'a str,
}

/// Terms of work that is to be admitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkTerms<'a> {
    /// Value of the work, for policies with prices.
    pub value: f64,
    /// Expected seconds for which it holds its slot, if known.
    pub hold: Option<f64>,
    /// Maximum time to wait until it is allowed. The policy may allow less, or none.
    pub wait: Duration,
    /// Priority among those that wait; 0 is the most urgent.
    pub priority: u8,
    /// Set if the caller stated no cost: a policy that learns reserves what it has learned instead of the cost of the
    /// call.
    pub learned: Option<CostHint<'a>>,
}

impl Default for WorkTerms<'_> {
    fn default() -> Self {
        Self { value: 1.0, hold: None, wait: Duration::ZERO, priority: 0, learned: None }
    }
}

impl WorkTerms<'_> {
    /// Validates the terms.
    pub(super) fn judge(&self) -> Result<(), Refusal> {
        let Some(hint) = self.learned else { return Ok(()) };
        if hint.class.len() > CLASS_BYTES_MAX {
            return Err(Refusal::Invalid(format!(
                "class too long: at most {CLASS_BYTES_MAX} bytes are allowed"
            )));
        }
        if hint.input_tokens > INPUT_MAX {
            return Err(Refusal::Invalid(format!("input_tokens too large: at most {INPUT_MAX} are allowed")));
        }
        Ok(())
    }
}

/// Units that a client returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandBack {
    /// ID of the loan, as it was reported.
    pub loan: u128,
    /// Number of units: never more than were lent.
    pub units: u64,
}

impl<'a> PolicyCall<'a> {
    /// Returns the call for limiters.
    pub(super) fn call(&self) -> Call<'a> {
        Call::by(self.key).and(self.others).cost(self.cost)
    }

    /// Returns the call of work with these terms.
    pub(super) fn work(&self, terms: &WorkTerms<'_>) -> Call<'a> {
        let call = self.call().value(terms.value).priority(terms.priority);
        if let Some(hold) = terms.hold { call.hold(hold) } else { call }
    }

    /// Returns all keys, the first one first.
    pub(super) fn keys(&self) -> Vec<&'a [u8]> {
        std::iter::once(self.key).chain(self.others.iter().copied()).collect()
    }

    /// Returns the key at this index; empty if there is none.
    pub(super) fn key_at(&self, index: usize) -> &'a [u8] {
        match index.checked_sub(1) {
            None => self.key,
            Some(other) => self.others.get(other).copied().unwrap_or_default(),
        }
    }

    /// Returns all keys as owned values.
    pub(super) fn owned_keys(&self) -> Keys {
        self.keys().into_iter().map(Into::into).collect()
    }

    /// Validates the request.
    pub(super) fn judge(&self) -> Result<(), Refusal> {
        let invalid = |why: String| Err(Refusal::Invalid(why));
        if self.others.len() >= KEYS_MAX {
            return invalid(format!("too many keys: a call has at most {KEYS_MAX}"));
        }
        if self.key.len() > KEY_BYTES_MAX || self.others.iter().any(|key| key.len() > KEY_BYTES_MAX) {
            return invalid(format!("a key is longer than {KEY_BYTES_MAX} bytes: send a hash of it"));
        }
        if self.cost > COST_MAX {
            return invalid(format!("cost too large: at most {COST_MAX} is allowed"));
        }
        Ok(())
    }
}

/// Creates requests to one policy at one cost, with the keys of each.
pub(super) fn many<'a>(
    policy: &'a str,
    calls: &'a [Vec<&'a [u8]>],
    cost: u64,
) -> Result<Vec<PolicyCall<'a>>, Refusal> {
    if calls.len() > MANY_MAX {
        return Err(Refusal::Invalid(format!("too many keys: at most {MANY_MAX} per request, send several")));
    }
    let ask = |keys: &'a Vec<&'a [u8]>| {
        let (key, others) = keys.split_first().unwrap_or((&NO_KEY, &[]));
        let ask = PolicyCall { policy, key, others, cost };
        ask.judge().map(|()| ask)
    };
    calls.iter().map(ask).collect()
}
