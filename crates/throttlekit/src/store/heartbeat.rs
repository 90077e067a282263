//! The heartbeat of a node: load the membership record, add the report, swap in the next record.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::fleet::{Beat, Fold, Report, Roll};
use tokio::time::sleep;

use super::{RollStore, StoreError, Swapped};

/// How often the roll may have changed in between, until a beat is given up. The next report makes up for it.
const RACES_MAX: u32 = 32;
/// After so many lost races in a row a beat steps aside for a moment.
const RACES_IN_A_ROW: u32 = 4;
const ASIDE_MAX: Duration = Duration::from_millis(8);

/// How a report was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// What the fold answered.
    pub beat: Beat,
    /// At which instant of the store it did.
    pub now: Timestamp,
    /// How often another beat came first.
    pub races: u32,
}

/// Takes a report into the roll under `key` and answers it: two round trips, one more for each race that is lost, and two
/// more where there is no roll yet.
///
/// The fold runs at the instant of the load, or of the swap that failed. That lies after the report was sent, so what
/// is granted dies for the node before it is forgotten here. And it lies before the swap that counts: nobody has
/// changed the roll in between, so a later instant could only have freed what silent nodes hold. Both err to the safe
/// side.
pub async fn beat<R: RollStore>(
    store: &R,
    key: &str,
    fold: &Fold,
    keeps: Duration,
    report: &Report,
) -> Result<Heard, StoreError> {
    let mut kept = store.load(key).await?;
    if kept.version == 0 {
        // What is swapped in where there is nothing may come late: after others began the roll and lost it again. So it
        // says nothing of how long ago that was; only what is swapped for a roll that lies there does.
        kept = match store.swap(key, 0, &Roll::default().to_bytes(), keeps).await? {
            Swapped::Done => store.load(key).await?,
            Swapped::Newer(newer) => newer,
        };
    }
    for races in 0..RACES_MAX {
        let mut roll = kept.roll(key)?;
        let (now, beat) = (kept.now, fold.beat(&mut roll, report, kept.now));
        if !matches!(beat, Beat::Grant(_)) {
            return Ok(Heard { beat, now, races });
        }
        match store.swap(key, kept.version, &roll.to_bytes(), keeps).await? {
            Swapped::Done => return Ok(Heard { beat, now, races }),
            Swapped::Newer(newer) => kept = newer,
        }
        if races % RACES_IN_A_ROW == RACES_IN_A_ROW - 1 {
            sleep(ASIDE_MAX.mul_f64(RandomState::new().hash_one(races) as f64 / u64::MAX as f64)).await;
            kept = store.load(key).await?;
        }
    }
    Err(StoreError::unavailable(format_args!("{key}: others changed the roll {RACES_MAX} times in between")))
}
