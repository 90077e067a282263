//! Overrides and plans as the store keeps them.
//!
//! Overrides are spread over many records by a hash of policy and key. One more record has a stamp for each of them, which
//! changes with it: servers read only that one to find what changed.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use throttlekit::rate::Timestamp;
use throttlekit::store::{MembershipRecord, StoreError};

use super::super::shared_record::{self, KEPT, Next};
use super::limits::Limits;

/// Number of records of overrides. One holds 72 KB; of the 195 overrides in it, each may have 370 bytes.
pub(super) const SHARDS: usize = 512;
/// Index of the record of plans.
pub(super) const PLANS: usize = SHARDS;
/// Number of records with a stamp.
pub(super) const RECORDS: usize = SHARDS + 1;
/// Version of the format. A server leaves records of a later version alone.
const FORMAT: u8 = 1;

/// Limits in place of those of a policy, for a key or a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Override {
    /// The policy by name.
    pub policy: Box<str>,
    /// The key, or a prefix before a `*`.
    pub key: Box<str>,
    /// Limits that apply.
    pub terms: Terms,
    /// Expiry by the store's clock, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
    /// Time at which it was set, by the store's clock.
    pub set_ms: u64,
    /// Name of the principal that set it.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub set_by: Box<str>,
}

/// Limits of an override.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Terms {
    /// Limits of its own.
    Limits(Limits),
    /// The limits of a plan of the policy.
    Plan(Box<str>),
}

/// Named limits of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The policy by name.
    pub policy: Box<str>,
    /// Name of the plan.
    pub name: Box<str>,
    /// Limits.
    pub limits: Limits,
}

impl Override {
    /// Checks whether it applies no more.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.expires_ms.is_some_and(|at| Timestamp::from_millis(at) <= now)
    }
}

/// Returns the index of the record of an override.
pub(super) fn shard(policy: &str, key: &str) -> usize {
    let digest = Sha256::new().chain_update(policy).chain_update([0]).chain_update(key).finalize();
    usize::from(u16::from_be_bytes([digest[0], digest[1]])) % SHARDS
}

/// Returns the key of a record on the store.
pub(super) fn name(index: usize) -> String {
    if index == PLANS {
        return shared_record::key("throttlekit.plans");
    }
    shared_record::key(&format!("throttlekit.overrides.{index}"))
}

/// Returns the key of the record of stamps.
pub(super) fn stamps_name() -> String {
    shared_record::key("throttlekit.overrides")
}

#[derive(Serialize, Deserialize)]
struct Document<T> {
    format: u8,
    entries: Vec<T>,
}

/// Decodes the entries of a record; none if there is no record.
pub(super) fn entries<T: DeserializeOwned>(record: &MembershipRecord) -> Result<Vec<T>, StoreError> {
    #[derive(Deserialize)]
    struct Version {
        format: u8,
    }
    if record.bytes.is_empty() {
        return Ok(Vec::new());
    }
    let foreign = |error: serde_json::Error| StoreError::bad_state(format_args!("overrides: {error}"));
    let Version { format } = serde_json::from_slice(&record.bytes).map_err(foreign)?;
    if format != FORMAT {
        return Err(newer());
    }
    let document: Document<T> = serde_json::from_slice(&record.bytes).map_err(foreign)?;
    Ok(document.entries)
}

/// Encodes the entries of a record.
pub(super) fn bytes<T: Serialize>(entries: Vec<T>) -> Vec<u8> {
    // All keys of maps in it are text, and a vector grows: writing does not fail.
    serde_json::to_vec(&Document { format: FORMAT, entries }).unwrap_or_default()
}

/// Encodes overrides. The record is kept until all of them have expired.
pub(super) fn next(overrides: Vec<Override>, now: Timestamp) -> Next {
    let last = overrides.iter().map(|one| one.expires_ms).max_by_key(|at| at.unwrap_or(u64::MAX));
    let keeps = match last.flatten() {
        Some(at) => Timestamp::from_millis(at).since(now) + std::time::Duration::from_secs(1),
        None => KEPT,
    };
    Next { bytes: bytes(overrides), keeps }
}

/// Decodes stamps: all zero if there is no record.
pub(super) fn stamps(record: &MembershipRecord) -> Result<Vec<u64>, StoreError> {
    if record.bytes.is_empty() {
        return Ok(vec![0; RECORDS]);
    }
    let (format, rest) = record.bytes.split_first().unwrap_or((&0, &[]));
    let (stamps, odd) = rest.as_chunks::<8>();
    if *format != FORMAT || stamps.len() != RECORDS || !odd.is_empty() {
        return Err(newer());
    }
    Ok(stamps.iter().map(|stamp| u64::from_be_bytes(*stamp)).collect())
}

/// Encodes stamps.
pub(super) fn stamped(stamps: &[u64]) -> Next {
    let bytes = std::iter::once(FORMAT).chain(stamps.iter().flat_map(|stamp| stamp.to_be_bytes()));
    Next { bytes: bytes.collect(), keeps: KEPT }
}

fn newer() -> StoreError {
    StoreError::misconfigured("overrides on the store have a newer format: upgrade this server")
}

#[cfg(test)]
mod tests {
    use throttlekit::store::MEMBERSHIP_BYTES_MAX;

    use super::super::OVERRIDES_MAX;
    use super::super::limits::{BudgetChange, RateChange};
    use super::*;

    fn record(bytes: Vec<u8>) -> MembershipRecord {
        MembershipRecord { bytes, version: 1, now: Timestamp::EPOCH }
    }

    fn one(n: usize) -> Override {
        let change =
            RateChange { name: "per-minute".into(), limit: 123_456, burst: Some(9_999), per_ms: None };
        let budget = BudgetChange { name: "per-month".into(), budget: 5_000_000 };
        let limits = Limits { rates: vec![change], budgets: vec![budget], unlimited: false };
        Override {
            policy: "chat-completions".into(),
            key: format!("customer-01234567-89ab-cdef-0123-{n:012}").into(),
            terms: Terms::Limits(limits),
            expires_ms: Some(1_796_083_200_123),
            set_ms: 1_796_083_200_123,
            set_by: "billing-service".into(),
        }
    }

    #[test]
    fn as_many_overrides_as_are_allowed_fit_the_records() {
        let mut shards = vec![Vec::new(); SHARDS];
        for n in 0..OVERRIDES_MAX {
            let one = one(n);
            shards[shard(&one.policy, &one.key)].push(one);
        }
        let largest = shards.into_iter().map(|shard| bytes(shard).len()).max().unwrap();
        assert!(largest <= MEMBERSHIP_BYTES_MAX, "{largest} bytes");
        assert!(stamped(&[u64::MAX; RECORDS]).bytes.len() <= MEMBERSHIP_BYTES_MAX);
    }

    #[test]
    fn records_survive_encoding_and_those_of_a_later_version_are_left_alone() {
        let plan = Override { terms: Terms::Plan("gold".into()), expires_ms: None, ..one(7) };
        let all = vec![one(1), plan];
        assert_eq!(entries::<Override>(&record(bytes(all.clone()))).unwrap(), all);
        assert!(entries::<Override>(&record(Vec::new())).unwrap().is_empty());
        assert!(entries::<Override>(&record(br#"{"format":2,"entries":[{"x":1}]}"#.to_vec())).is_err());
        assert!(entries::<Override>(&record(b"\x01\x02".to_vec())).is_err());
        let some: Vec<u64> = (0..RECORDS as u64).collect();
        assert_eq!(stamps(&record(stamped(&some).bytes)).unwrap(), some);
        assert_eq!(stamps(&record(Vec::new())).unwrap(), vec![0; RECORDS]);
        for foreign in [vec![2], stamped(&[1]).bytes, vec![FORMAT; 8 * RECORDS + 2]] {
            assert!(stamps(&record(foreign)).is_err());
        }
    }

    #[test]
    fn a_record_is_kept_until_its_last_override_expires() {
        let now = Timestamp::from_millis(1_796_083_190_123);
        let keeps = |all| next(all, now).keeps;
        assert_eq!(keeps(vec![one(1)]).as_secs(), 11);
        assert_eq!(keeps(vec![one(1), Override { expires_ms: None, ..one(2) }]), KEPT);
        assert!(!one(1).is_over(Timestamp::from_millis(1_796_083_200_122)));
        assert!(one(1).is_over(Timestamp::from_millis(1_796_083_200_123)));
    }
}
