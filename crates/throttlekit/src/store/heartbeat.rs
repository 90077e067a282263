//! The heartbeat of a node: load the membership record, add the report, swap in the next record.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::division::{Membership, NodeReport, Rebalancer, ReportResponse};
use tokio::time::sleep;

use super::{MembershipStore, StoreError, Swapped};

/// Maximum number of changes to the record in between, until a heartbeat is abandoned. The next report makes up for it.
const RACES_MAX: u32 = 32;
/// Number of lost races in a row after which a heartbeat pauses for a moment.
const RACES_IN_A_ROW: u32 = 4;
const ASIDE_MAX: Duration = Duration::from_millis(8);

/// Result of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatReply {
    /// Result of the rebalance.
    pub response: ReportResponse,
    /// Time of the rebalance, by the store's clock.
    pub now: Timestamp,
    /// Number of times that another heartbeat came first.
    pub races: u32,
    /// Number of nodes that share the ceiling.
    pub nodes: u32,
}

/// Adds a report to the membership record under `key` and returns the result: two round trips, one more for each race
/// that is lost, and two more if there is no record yet.
///
/// The rebalance runs at the instant of the load, or of the swap that failed. That lies after the report was sent, so a
/// grant expires for the node before it is forgotten here. And it lies before the swap that counts: no node has changed
/// the record in between, so a later instant could only have freed what silent nodes hold. Both err to the safe side.
pub async fn heartbeat<R: MembershipStore>(
    store: &R,
    key: &str,
    rebalancer: &Rebalancer,
    keeps: Duration,
    report: &NodeReport,
) -> Result<HeartbeatReply, StoreError> {
    let mut kept = store.load(key).await?;
    if kept.version == 0 {
        // A swap where there is no record may come late: after others began the record and lost it again. So it does
        // not carry how long ago that was; only a swap of an existing record does.
        kept = match store.swap(key, 0, &Membership::default().to_bytes(), keeps).await? {
            Swapped::Done => store.load(key).await?,
            Swapped::Newer(newer) => newer,
        };
    }
    for races in 0..RACES_MAX {
        let mut membership = kept.membership(key)?;
        let (now, response) = (kept.now, rebalancer.handle_report(&mut membership, report, kept.now));
        let nodes = rebalancer.nodes(&membership);
        if !matches!(response, ReportResponse::Grant(_)) {
            return Ok(HeartbeatReply { response, now, races, nodes });
        }
        match store.swap(key, kept.version, &membership.to_bytes(), keeps).await? {
            Swapped::Done => return Ok(HeartbeatReply { response, now, races, nodes }),
            Swapped::Newer(newer) => kept = newer,
        }
        if races % RACES_IN_A_ROW == RACES_IN_A_ROW - 1 {
            sleep(ASIDE_MAX.mul_f64(RandomState::new().hash_one(races) as f64 / u64::MAX as f64)).await;
            kept = store.load(key).await?;
        }
    }
    Err(StoreError::unavailable(format_args!(
        "{key}: the membership record changed {RACES_MAX} times during the update"
    )))
}
