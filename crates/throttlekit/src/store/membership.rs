//! Stores of membership records: a store swaps one for the next and does not interpret them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::division::{Membership, NODES_MAX};

use super::{Background, StoreError};
use crate::{Guarantee, forward_store};

/// Default time for which a membership record is kept after the last heartbeat. A record that starts over lets no share
/// rise for one lifetime of a grant, so it is kept for much longer than all nodes are ever silent.
pub const MEMBERSHIP_KEPT_DEFAULT: Duration = Duration::from_secs(86_400);

/// Maximum size of a membership record, in bytes: of [`NODES_MAX`] nodes.
pub const MEMBERSHIP_BYTES_MAX: usize = 72 * (NODES_MAX + 1);

/// Keeps membership records where all nodes reach them.
///
/// A store only keeps them: nodes compute the next record by
/// [`Rebalancer`](throttlekit_core::concurrency::division::Rebalancer) and swap it in if the one they started from is
/// still current; see [`heartbeat`](super::heartbeat). As with a [`Store`](super::Store), time is the store's own. No
/// swap is retried automatically; one whose reply was lost was made or not, and the next load shows which.
pub trait MembershipStore: Send + Sync + 'static {
    /// Loads the membership record under this key.
    fn load(&self, key: &str) -> impl Future<Output = Result<MembershipRecord, StoreError>> + Send;

    /// Replaces the record of this version by another, and keeps it at least for `keeps` after the last swap.
    fn swap(
        &self,
        key: &str,
        version: u64,
        bytes: &[u8],
        keeps: Duration,
    ) -> impl Future<Output = Result<Swapped, StoreError>> + Send;

    /// Returns the guarantee of a record of this store.
    fn guarantee(&self) -> Guarantee {
        Guarantee::Exact
    }

    /// Returns the background for its work and for everything built on it. A wrapper of a store forwards it.
    fn background(&self) -> Background {
        Background::default()
    }
}

/// The record under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MembershipRecord {
    /// The record as it was written; empty if there is none.
    pub bytes: Vec<u8>,
    /// Version among all that were ever under this key; zero if there is none.
    pub version: u64,
    /// Time of the response, by the store's clock.
    pub now: Timestamp,
}

/// The response to a swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// The swap was made.
    Done,
    /// Another version was there, and is. A lost race costs no load.
    Newer(MembershipRecord),
}

impl MembershipRecord {
    /// Returns the version that comes after this one.
    ///
    /// It counts on, and not from one: a record that was lost and started over never reaches a version that a node
    /// still holds of the old one. This assumes less than a swap each microsecond, and a clock that is not set back.
    pub fn next_version(version: u64, now: Timestamp) -> u64 {
        now.as_micros().max(version.saturating_add(1))
    }

    /// Decodes the record, or returns that it is not ours.
    pub fn membership(&self, key: &str) -> Result<Membership, StoreError> {
        Membership::from_bytes(&self.bytes)
            .map_err(|error| StoreError::bad_state(format_args!("{key}: {error}")))
    }
}

impl<R: MembershipStore> MembershipStore for Arc<R> {
    forward_store!(MembershipStore for self => **self; load, swap, guarantee, background);
}

/// Maximum number of records in this process's memory. Beyond it, those that expire first are removed.
const MEMBERSHIPS_MAX: usize = 1_024;

/// Membership records in this process's memory.
#[derive(Default)]
pub(super) struct MembershipRecords(BTreeMap<Box<str>, Record>);

struct Record {
    bytes: Vec<u8>,
    version: u64,
    expires: Timestamp,
}

impl MembershipRecords {
    pub(super) fn load(&self, key: &str, now: Timestamp) -> MembershipRecord {
        match self.0.get(key) {
            None => MembershipRecord { bytes: Vec::new(), version: 0, now },
            Some(filed) => MembershipRecord { bytes: filed.bytes.clone(), version: filed.version, now },
        }
    }

    pub(super) fn swap(
        &mut self,
        key: &str,
        version: u64,
        bytes: &[u8],
        keeps: Duration,
        now: Timestamp,
    ) -> Result<Swapped, StoreError> {
        if self.0.get(key).map_or(0, |filed| filed.version) != version {
            return Ok(Swapped::Newer(self.load(key, now)));
        }
        if version == 0 && self.0.len() >= MEMBERSHIPS_MAX {
            self.0.retain(|_, filed| now < filed.expires);
            if self.0.len() >= MEMBERSHIPS_MAX {
                return Err(StoreError::misconfigured(format_args!(
                    "too many membership records: at most {MEMBERSHIPS_MAX} at a time"
                )));
            }
        }
        let version = MembershipRecord::next_version(version, now);
        self.0.insert(key.into(), Record { bytes: bytes.to_vec(), version, expires: now + keeps });
        Ok(Swapped::Done)
    }

    pub(super) fn remove(&mut self, key: &str) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = MEMBERSHIP_KEPT_DEFAULT;

    #[test]
    fn a_record_started_over_never_reaches_a_version_of_the_old_one() {
        let (mut memberships, at) = (MembershipRecords::default(), Timestamp::from_micros);
        assert_eq!(memberships.swap("k", 0, b"a", DAY, at(70)).unwrap(), Swapped::Done);
        let old = memberships.load("k", at(70)).version;
        memberships.remove("k");
        memberships.swap("k", 0, b"b", DAY, at(71)).unwrap();
        assert_ne!(memberships.load("k", at(71)).version, old);
        assert!(matches!(memberships.swap("k", old, b"c", DAY, at(72)), Ok(Swapped::Newer(_))));
    }

    #[test]
    fn an_expired_record_makes_capacity_for_another() {
        let (mut memberships, at) = (MembershipRecords::default(), Timestamp::from_millis);
        let keeps = Duration::from_secs(1);
        let mut enters = |n: usize, now| memberships.swap(&n.to_string(), 0, b"a", keeps, now).is_ok();
        assert!((0..MEMBERSHIPS_MAX).all(|n| enters(n, at(0))));
        assert!(!enters(MEMBERSHIPS_MAX, at(999)));
        assert!(enters(MEMBERSHIPS_MAX, at(1_000)));
    }

    #[test]
    fn the_longest_record_fits() {
        use throttlekit_core::concurrency::division::{Combine, NodeId, NodeReport, Rebalancer, Split};
        let seconds = Duration::from_secs(1);
        let (combine, split) = (Combine::Min, Split::Equal);
        let rebalancer = Rebalancer { combine, split, initial: 1, most: 1, lives: seconds, linger: seconds };
        let mut membership = Membership::default();
        for node in 0..NODES_MAX as u128 {
            let node = NodeId(node);
            let report = NodeReport {
                node,
                heartbeat: 1,
                applied: 0,
                holds: 0,
                in_flight: 0,
                limit: 0,
                wants: 0,
                leaving: false,
            };
            rebalancer.handle_report(&mut membership, &report, Timestamp::EPOCH);
        }
        assert_eq!(membership.members().count(), NODES_MAX);
        assert!(membership.to_bytes().len() <= MEMBERSHIP_BYTES_MAX);
    }
}
