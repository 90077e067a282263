//! Stores of membership records: a store swaps one for the next and does not interpret them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::fleet::{NODES_MAX, Roll};

use super::{Background, StoreError};
use crate::Guarantee;

/// How long a roll is kept after the last beat, unless chosen otherwise. A roll that begins anew lets no share rise for
/// one lifetime of a grant, so it is kept for much longer than a fleet is ever silent.
pub const ROLL_KEPT_DEFAULT: Duration = Duration::from_secs(86_400);

/// The longest roll, in bytes: of [`NODES_MAX`] nodes.
pub const ROLL_BYTES_MAX: usize = 72 * (NODES_MAX + 1);

/// Keeps rolls where all nodes of a fleet reach them.
///
/// A store only keeps: nodes compute the next roll by [`Fold`](throttlekit_core::concurrency::fleet::Fold) and swap it in
/// if the one they started from still stands; see [`beat`](super::beat). As with a [`Store`](super::Store), time is the
/// store's own. No swap is sent again by itself; one whose reply was lost was made or not, and the next load tells.
pub trait RollStore: Send + Sync + 'static {
    /// The roll under this key.
    fn load(&self, key: &str) -> impl Future<Output = Result<Kept, StoreError>> + Send;

    /// Puts another roll in the place of the one of this version, and keeps it at least as long after the last swap.
    fn swap(
        &self,
        key: &str,
        version: u64,
        bytes: &[u8],
        keeps: Duration,
    ) -> impl Future<Output = Result<Swapped, StoreError>> + Send;

    /// What a roll of this store is worth.
    fn guarantee(&self) -> Guarantee {
        Guarantee::Exact
    }

    /// Where its background work runs, and that of everything built on it. Who wraps a store passes it on.
    fn background(&self) -> Background {
        Background::default()
    }
}

/// What lies under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The roll as it was written; empty if there is none.
    pub bytes: Vec<u8>,
    /// Which of all that ever lay here; zero if there is none.
    pub version: u64,
    /// The store's instant.
    pub now: Timestamp,
}

/// The answer to a swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// It lies there now.
    Done,
    /// Another version lay there, and does. A lost race costs no load.
    Newer(Kept),
}

impl Kept {
    /// The version that comes after this one.
    ///
    /// It counts on, and not from one: a roll that was lost and begun anew never comes to a version that somebody still
    /// holds of the old one. That takes less than a swap each microsecond, and a clock that is not set back.
    pub fn next_version(version: u64, now: Timestamp) -> u64 {
        now.as_micros().max(version.saturating_add(1))
    }

    /// What it says, or that it is not ours.
    pub fn roll(&self, key: &str) -> Result<Roll, StoreError> {
        Roll::from_bytes(&self.bytes).map_err(|error| StoreError::bad_state(format_args!("{key}: {error}")))
    }
}

impl<R: RollStore> RollStore for Arc<R> {
    fn load(&self, key: &str) -> impl Future<Output = Result<Kept, StoreError>> + Send {
        (**self).load(key)
    }

    fn swap(
        &self,
        key: &str,
        version: u64,
        bytes: &[u8],
        keeps: Duration,
    ) -> impl Future<Output = Result<Swapped, StoreError>> + Send {
        (**self).swap(key, version, bytes, keeps)
    }

    fn guarantee(&self) -> Guarantee {
        (**self).guarantee()
    }

    fn background(&self) -> Background {
        (**self).background()
    }
}

/// How many rolls are kept in this process's memory. Beyond, the first to be kept no longer make room.
const ROLLS_MAX: usize = 1_024;

/// Membership records in this process's memory.
#[derive(Default)]
pub(super) struct MembershipRecords(BTreeMap<Box<str>, Record>);

struct Record {
    bytes: Vec<u8>,
    version: u64,
    expires: Timestamp,
}

impl MembershipRecords {
    pub(super) fn load(&self, key: &str, now: Timestamp) -> Kept {
        match self.0.get(key) {
            None => Kept { bytes: Vec::new(), version: 0, now },
            Some(filed) => Kept { bytes: filed.bytes.clone(), version: filed.version, now },
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
        if version == 0 && self.0.len() >= ROLLS_MAX {
            self.0.retain(|_, filed| now < filed.expires);
            if self.0.len() >= ROLLS_MAX {
                return Err(StoreError::misconfigured(format_args!(
                    "more than {ROLLS_MAX} fleets at a time"
                )));
            }
        }
        let version = Kept::next_version(version, now);
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

    const DAY: Duration = ROLL_KEPT_DEFAULT;

    #[test]
    fn a_roll_begun_anew_never_comes_to_a_version_of_the_old_one() {
        let (mut rolls, at) = (MembershipRecords::default(), Timestamp::from_micros);
        assert_eq!(rolls.swap("k", 0, b"a", DAY, at(70)).unwrap(), Swapped::Done);
        let old = rolls.load("k", at(70)).version;
        rolls.remove("k");
        rolls.swap("k", 0, b"b", DAY, at(71)).unwrap();
        assert_ne!(rolls.load("k", at(71)).version, old);
        assert!(matches!(rolls.swap("k", old, b"c", DAY, at(72)), Ok(Swapped::Newer(_))));
    }

    #[test]
    fn one_fleet_too_many_takes_the_place_of_one_that_is_over() {
        let (mut rolls, at) = (MembershipRecords::default(), Timestamp::from_millis);
        let keeps = Duration::from_secs(1);
        let mut enters = |n: usize, now| rolls.swap(&n.to_string(), 0, b"a", keeps, now).is_ok();
        assert!((0..ROLLS_MAX).all(|n| enters(n, at(0))));
        assert!(!enters(ROLLS_MAX, at(999)));
        assert!(enters(ROLLS_MAX, at(1_000)));
    }

    #[test]
    fn the_longest_roll_fits() {
        use throttlekit_core::concurrency::fleet::{Fold, Folded, NodeId, Report, Split};
        let seconds = Duration::from_secs(1);
        let (folded, split) = (Folded::Min, Split::Equal);
        let fold = Fold { folded, split, initial: 1, most: 1, lives: seconds, linger: seconds };
        let mut roll = Roll::default();
        for node in 0..NODES_MAX as u128 {
            let node = NodeId(node);
            let report = Report {
                node,
                beat: 1,
                applied: 0,
                holds: 0,
                in_flight: 0,
                limit: 0,
                wants: 0,
                leaving: false,
            };
            fold.beat(&mut roll, &report, Timestamp::EPOCH);
        }
        assert_eq!(roll.members().count(), NODES_MAX);
        assert!(roll.to_bytes().len() <= ROLL_BYTES_MAX);
    }
}
