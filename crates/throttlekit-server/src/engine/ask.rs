//! What doors ask with, and how much of it is too much.

use std::time::Duration;

use super::Refusal;

/// The longest key.
pub const KEY_BYTES_MAX: usize = 1_024;
/// The most keys one call goes by.
pub const KEYS_MAX: usize = 4;
/// The most keys that are asked about at once.
pub const MANY_MAX: usize = 1_000;
/// The largest cost: what a signed number on the wire carries.
const COST_MAX: u64 = i64::MAX as u64;

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

pub(super) fn judge_many(keys: &[&[u8]]) -> Result<(), Refusal> {
    if keys.len() > MANY_MAX {
        return Err(Refusal::Invalid(format!("at most {MANY_MAX} keys at once: send several requests")));
    }
    Ok(())
}
