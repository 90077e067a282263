//! Credits that operators grant once: an idempotency key is claimed on the store before units are given back.

use std::time::Duration;

use sha2::{Digest, Sha256};
use throttlekit::rate::Timestamp;
use throttlekit::store::{MEMBERSHIP_BYTES_MAX, MembershipRecord, StoreError};

use super::shared_record::{self, Next};
use super::{Answered, Engine, PolicyCall, Refusal};

/// Time for which a grant is remembered after it was made.
const REMEMBERED: Duration = Duration::from_secs(86_400);
/// Number of records that grants are spread over. One holds 2,236 grants, so a day has at most some 140,000.
const SHARDS: u8 = 64;
/// Maximum length of an idempotency key, in bytes.
pub(super) const ID_BYTES_MAX: usize = 128;
/// Version of the format.
const FORMAT: u8 = 1;
/// Length of an entry: idempotency key, content, time, and whether it is complete.
const ENTRY: usize = 16 + 8 + 8 + 1;

/// A grant that is claimed, or complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    id: [u8; 16],
    /// Digest of the policy, keys and units.
    content: [u8; 8],
    at_ms: u64,
    complete: bool,
}

/// The result of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    New,
    Repeated,
}

impl Engine {
    /// Gives units back to the keys of a call, of what they have used of their current windows: the cost is the number.
    /// A grant with the same ID counts once within a day. Returns what is left, and whether it is a repetition.
    pub async fn grant(&self, ask: PolicyCall<'_>, id: &str) -> Result<(Answered, bool), Refusal> {
        ask.judge()?;
        if id.is_empty() || id.len() > ID_BYTES_MAX {
            return Err(Refusal::Invalid(format!("invalid id: expected 1 to {ID_BYTES_MAX} bytes")));
        }
        let served = self.policy(ask.policy)?;
        let variant = served.variant(ask.key).clone();
        variant.can_grant(ask.call())?;
        let claimed = Entry::of(&ask, id);
        let claim = Box::pin(self.claim(claimed)).await?;
        if claim == Claim::New {
            Box::pin(variant.grant(ask.call())).await?;
            // If this fails, a repetition is refused instead of counted again.
            Box::pin(self.complete(claimed)).await?;
        }
        let left = Box::pin(variant.peek(ask.call())).await?;
        Ok((left, claim == Claim::Repeated))
    }

    async fn claim(&self, new: Entry) -> Result<Claim, Refusal> {
        shared_record::update(self.shared.overrides.store(), new.record(), |record| {
            let mut all = entries(record)?;
            if let Some(claim) = claimed(&all, &new)? {
                return Ok((claim, None));
            }
            all.push(Entry { at_ms: record.now.as_millis_ceil(), ..new });
            Ok((Claim::New, Some(next(&all)?)))
        })
        .await
    }

    async fn complete(&self, done: Entry) -> Result<(), Refusal> {
        shared_record::update(self.shared.overrides.store(), done.record(), |record| {
            let mut all = entries(record)?;
            let entry = all.iter_mut().find(|entry| entry.id == done.id);
            if let Some(entry) = entry {
                entry.complete = true;
            }
            Ok(((), Some(next(&all)?)))
        })
        .await
    }
}

impl Entry {
    fn of(ask: &PolicyCall<'_>, id: &str) -> Self {
        let mut content = Sha256::new();
        for part in std::iter::once(ask.policy.as_bytes()).chain(ask.keys()) {
            content.update((part.len() as u64).to_be_bytes());
            content.update(part);
        }
        content.update(ask.cost.to_be_bytes());
        Self { id: head(Sha256::digest(id)), content: head(content.finalize()), at_ms: 0, complete: false }
    }

    /// Returns the key of the record that it belongs to.
    fn record(&self) -> String {
        shared_record::key(&format!("throttlekit.grants.{}", self.id[0] % SHARDS))
    }

    fn to_bytes(self) -> impl Iterator<Item = u8> {
        let Self { id, content, at_ms, complete } = self;
        let end = at_ms.to_be_bytes().into_iter().chain([u8::from(complete)]);
        id.into_iter().chain(content).chain(end)
    }

    fn from_bytes(bytes: &[u8; ENTRY]) -> Self {
        Self {
            id: head(&bytes[..16]),
            content: head(&bytes[16..24]),
            at_ms: u64::from_be_bytes(head(&bytes[24..32])),
            complete: bytes[32] != 0,
        }
    }
}

/// Returns the first bytes.
fn head<const N: usize>(bytes: impl AsRef<[u8]>) -> [u8; N] {
    std::array::from_fn(|index| bytes.as_ref()[index])
}

/// Returns what is known of a grant; an error if it must not be made.
fn claimed(all: &[Entry], new: &Entry) -> Result<Option<Claim>, Refusal> {
    match all.iter().find(|entry| entry.id == new.id) {
        None => Ok(None),
        Some(entry) if entry.content != new.content => {
            Err(Refusal::Invalid("this id was used for another grant: choose a new one".into()))
        }
        Some(Entry { complete: true, .. }) => Ok(Some(Claim::Repeated)),
        Some(_) => Err(Refusal::Invalid(
            "an earlier attempt with this id ended without a result: peek at the key, and use a new id if the \
             units are missing"
                .into(),
        )),
    }
}

/// Decodes the grants of a record that are still remembered.
fn entries(record: &MembershipRecord) -> Result<Vec<Entry>, StoreError> {
    let Some((format, rest)) = record.bytes.split_first() else { return Ok(Vec::new()) };
    let (all, odd) = rest.as_chunks::<ENTRY>();
    if *format != FORMAT || !odd.is_empty() {
        return Err(StoreError::misconfigured(
            "grants on the store have a newer format: upgrade this server",
        ));
    }
    let all = all.iter().map(Entry::from_bytes);
    Ok(all.filter(|entry| record.now < Timestamp::from_millis(entry.at_ms) + REMEMBERED).collect())
}

fn next(all: &[Entry]) -> Result<Next, Refusal> {
    let bytes: Vec<u8> =
        std::iter::once(FORMAT).chain(all.iter().flat_map(|entry| entry.to_bytes())).collect();
    if bytes.len() > MEMBERSHIP_BYTES_MAX {
        return Err(Refusal::TooMany("too many grants within a day: grant more units at once".into()));
    }
    Ok(Next { bytes, keeps: REMEMBERED })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASK: PolicyCall<'_> = PolicyCall { policy: "api", key: b"a", others: &[], cost: 5 };

    fn record(bytes: Vec<u8>, now_ms: u64) -> MembershipRecord {
        MembershipRecord { bytes, version: 1, now: Timestamp::from_millis(now_ms) }
    }

    #[test]
    fn a_grant_is_remembered_for_a_day() {
        let entry = Entry { at_ms: 1_000, complete: true, ..Entry::of(&ASK, "one") };
        let other = Entry { at_ms: 2_000, ..Entry::of(&ASK, "two") };
        let bytes = next(&[entry, other]).unwrap().bytes;
        let day = 86_400_000;
        assert_eq!(entries(&record(bytes.clone(), day + 999)).unwrap(), [entry, other]);
        assert_eq!(entries(&record(bytes, day + 1_000)).unwrap(), [other]);
        assert!(entries(&record(Vec::new(), 0)).unwrap().is_empty());
        assert!(entries(&record(vec![FORMAT, 1], 0)).is_err());
    }

    #[test]
    fn an_id_counts_once_and_for_one_grant() {
        let done = Entry { complete: true, ..Entry::of(&ASK, "one") };
        let all = [done, Entry::of(&ASK, "two")];
        assert_eq!(claimed(&all, &Entry::of(&ASK, "one")).unwrap(), Some(Claim::Repeated));
        assert_eq!(claimed(&all, &Entry::of(&ASK, "three")).unwrap(), None);
        for other in [PolicyCall { cost: 6, ..ASK }, PolicyCall { key: b"b", ..ASK }] {
            let error = claimed(&all, &Entry::of(&other, "one")).unwrap_err();
            assert!(error.to_string().contains("another grant"), "{error}");
        }
        assert!(claimed(&all, &Entry::of(&ASK, "two")).unwrap_err().to_string().contains("earlier attempt"));
        let many: Vec<_> = (0..2_237).map(|n| Entry::of(&ASK, &n.to_string())).collect();
        assert!(next(&many[1..]).is_ok() && next(&many).is_err());
    }
}
