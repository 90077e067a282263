//! Requests to the engine, and their limits.

use std::sync::Arc;
use std::time::Duration;

use super::Refusal;
use crate::policy::KEYS_MAX;

/// The longest key.
pub const KEY_BYTES_MAX: usize = 1_024;
/// The most keys that are asked about at once.
pub const MANY_MAX: usize = 1_000;
/// What a call without a key is counted for.
const NO_KEY: &[u8] = &[];
/// The largest cost: what a signed number on the wire carries.
const COST_MAX: u64 = i64::MAX as u64;

/// The keys of a call that is remembered, the first first.
pub(crate) type Keys = Arc<[Box<[u8]>]>;

/// One ask, as every door brings it.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// Who it is counted for.
    pub key: &'a [u8],
    /// Further keys, for limits that go by them.
    pub others: &'a [&'a [u8]],
    /// What it costs, at least 1; doors turn their own zero into 1.
    pub cost: u64,
}

/// How work under a lease ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// The backend was too full for it, or failed.
    pub dropped: bool,
    /// It says nothing of the backend.
    pub ignored: bool,
    /// What it did cost, where that differs from the estimate.
    pub actual_cost: Option<u64>,
    /// How long it took, where that is not the time the lease was held.
    pub latency: Option<Duration>,
}

/// Units that a client hands back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandBack {
    /// The name of the loan they are of, as it was told.
    pub loan: u128,
    /// How many: never more than were lent.
    pub units: u64,
}

impl<'a> Ask<'a> {
    /// All keys, the first first.
    pub(super) fn keys(&self) -> Vec<&'a [u8]> {
        std::iter::once(self.key).chain(self.others.iter().copied()).collect()
    }

    /// The same, to keep.
    pub(super) fn owned_keys(&self) -> Keys {
        self.keys().into_iter().map(Into::into).collect()
    }

    /// Whether it is one at all.
    pub(super) fn judge(&self) -> Result<(), Refusal> {
        let invalid = |why: String| Err(Refusal::Invalid(why));
        if self.others.len() >= KEYS_MAX {
            return invalid(format!("at most {KEYS_MAX} keys go with one call"));
        }
        if self.key.len() > KEY_BYTES_MAX || self.others.iter().any(|key| key.len() > KEY_BYTES_MAX) {
            return invalid(format!("a key is longer than {KEY_BYTES_MAX} bytes: send a hash of it"));
        }
        if self.cost > COST_MAX {
            return invalid(format!("a cost is at most {COST_MAX}"));
        }
        Ok(())
    }
}

/// Asks of one policy at one cost, by the keys of each.
pub(super) fn many<'a>(
    policy: &'a str,
    calls: &'a [Vec<&'a [u8]>],
    cost: u64,
) -> Result<Vec<Ask<'a>>, Refusal> {
    if calls.len() > MANY_MAX {
        return Err(Refusal::Invalid(format!("at most {MANY_MAX} keys at once: send several requests")));
    }
    let ask = |keys: &'a Vec<&'a [u8]>| {
        let (key, others) = keys.split_first().unwrap_or((&NO_KEY, &[]));
        let ask = Ask { policy, key, others, cost };
        ask.judge().map(|()| ask)
    };
    calls.iter().map(ask).collect()
}
