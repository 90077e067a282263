//! Keys and reply encoding of the fence: `lua/fence.lua` and `docs/contribute/decisions/0011-fence.md`.

use std::time::Duration;

use throttlekit::store::StoreError;

use crate::lineage::record_at;

// A `%` in a caller's part of a key is followed by two hexadecimal digits, so no key of a caller looks like this.
const SEAL: &str = "%id";
/// Prefix of a script's refusal, in place of the key that holds a foreign value.
const UNTIL: &[u8] = b"%until ";

/// Arguments of a fenced call.
#[derive(Clone, Copy)]
pub(crate) struct Fence {
    /// The key of the lineage record next to the keys of the call.
    pub(crate) record: &'static str,
    pub(crate) isolation_micros: u64,
}

/// The fence of one store.
pub(crate) struct Fences {
    /// Set in a cluster, in which each slot has its own record.
    by_slot: bool,
    isolation_micros: u64,
}

impl Fences {
    pub(crate) fn new(isolation: Duration, by_slot: bool) -> Self {
        Self { by_slot, isolation_micros: u64::try_from(isolation.as_micros()).unwrap_or(u64::MAX) }
    }

    pub(crate) fn at(&self, slot: u16) -> Fence {
        Fence { record: record_at(slot, self.by_slot), isolation_micros: self.isolation_micros }
    }
}

/// Returns the key that stores the lineage record under which a state was charged.
pub(crate) fn seal_of(key: &str) -> String {
    format!("{key}{SEAL}")
}

/// Decodes a script's refusal in place of a foreign key.
///
/// It is an outage like others: nothing was decided, it ends with time, and the policy's fallback applies. It concerns
/// one key, so no circuit breaker counts it.
pub(crate) fn refusal(said: &[u8]) -> Option<StoreError> {
    let micros: u64 = str::from_utf8(said.strip_prefix(UNTIL)?).ok()?.parse().ok()?;
    let (seconds, millis) = (micros / 1_000_000, micros % 1_000_000 / 1_000);
    Some(StoreError::unavailable(format_args!(
        "the server restarted or failed over, and charges of this key may be lost: fenced until at most \
         {seconds}.{millis:03} s of its clock"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash_slot::slot_of;

    #[test]
    fn a_seal_is_in_the_slot_of_its_key() {
        let key = "tk:{api/acme}g:user/alice";
        assert_eq!(slot_of(&seal_of(key)), slot_of(key));
        let fences = Fences::new(Duration::from_secs(1), true);
        assert_eq!(slot_of(fences.at(7).record), 7);
    }

    #[test]
    fn a_fence_refusal_has_an_end_and_a_foreign_key_is_no_refusal() {
        let refused = refusal(b"%until 1700000000123456").unwrap();
        assert!(refused.is_outage() && refused.to_string().contains("1700000000.123 s"), "{refused}");
        assert_eq!(refusal(b"tk:{api/acme}g:user/alice"), None);
    }
}
