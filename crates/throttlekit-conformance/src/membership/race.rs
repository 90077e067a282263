//! Nodes that send heartbeats at once, and a replay of their grants in order.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::rate::Timestamp;
use throttlekit::store::{HeartbeatReply, MEMBERSHIP_KEPT_DEFAULT, MembershipStore, heartbeat};
use throttlekit_core::concurrency::division::{
    Combine, Grant, Membership, NodeId, NodeReport, Rebalancer, ReportResponse, Split,
};
use tokio::task::JoinSet;

use super::seeded::{MembershipBug, SeededMembership};
use crate::check::{Check, ensure};
use crate::difference::Difference;

const CEILING: u32 = 100;
/// Longer than any race takes, so that all increases come from the record and none from time.
const LIVES: Duration = Duration::from_secs(600);

/// The result of a race.
#[derive(Clone, Debug)]
pub struct Race {
    /// Heartbeats that got a grant.
    pub granted: u64,
    /// Number of heartbeats that came between the load and the swap of another.
    pub lost: u64,
    /// Total reserved for all nodes in the end.
    pub reserved: u64,
}

fn rebalancer() -> Rebalancer {
    let (combine, split) = (Combine::LowerMedian, Split::Demand);
    Rebalancer { combine, split, initial: CEILING, most: CEILING, lives: LIVES, linger: Duration::ZERO }
}

/// Lets `nodes` nodes send `heartbeats` heartbeats each, all at once, each as fast as it gets responses, and checks
/// their grants: no heartbeat was lost, and the rebalance alone grants the same in the order in which the heartbeats
/// were swapped in.
pub async fn race<R: MembershipStore>(
    store: R,
    key: &str,
    nodes: u32,
    heartbeats: u64,
) -> Result<Race, Difference> {
    let (store, key) = (Arc::new(store), Arc::<str>::from(key));
    let mut running = JoinSet::new();
    for node in 0..nodes {
        running.spawn(heartbeats_of(store.clone(), key.clone(), node, heartbeats));
    }
    let mut heard = Vec::new();
    while let Some(ended) = running.join_next().await {
        heard.extend(ended.expect("a node does not panic")?);
    }
    heard.sort_by_key(|(.., grant)| grant.number);
    let kept = store.load(&key).await.map_err(|error| error.to_string())?;
    let membership = kept.membership(&key).map_err(|error| error.to_string())?;
    replays(&heard, &membership)?;
    let lost = heard.iter().map(|(_, heard, _)| u64::from(heard.races)).sum();
    Ok(Race { granted: heard.len() as u64, lost, reserved: membership.reserved() })
}

/// Returns the number of races until one finds this bug, if `attempts` are enough.
pub async fn find_in_race(bug: MembershipBug, attempts: u64) -> Option<u64> {
    for attempt in 1..=attempts {
        let store = SeededMembership::new(throttlekit::clock::WallClock, bug);
        if race(store, "k", 8, 40).await.is_err() {
            return Some(attempt);
        }
    }
    None
}

type Told = (NodeReport, HeartbeatReply, Grant);

async fn heartbeats_of<R: MembershipStore>(
    store: Arc<R>,
    key: Arc<str>,
    node: u32,
    heartbeats: u64,
) -> Result<Vec<Told>, String> {
    let node_id = NodeId(u128::from(node) + 1);
    let (mut told, mut held) = (Vec::new(), (0, 0));
    for heartbeat_number in 1..=heartbeats {
        let (applied, holds) = held;
        let report = NodeReport {
            node: node_id,
            heartbeat: heartbeat_number,
            applied,
            holds,
            in_flight: holds,
            limit: 0,
            wants: node * 7 % 11,
            leaving: false,
        };
        let heard = match heartbeat(&*store, &key, &rebalancer(), MEMBERSHIP_KEPT_DEFAULT, &report).await {
            Ok(heard) => heard,
            // Too many concurrent swaps. The next report makes up for it.
            Err(error) if error.is_outage() => continue,
            Err(error) => return Err(error.to_string()),
        };
        let ReportResponse::Grant(grant) = heard.response else {
            return Err(format!("{report:?} was answered {heard:?}"));
        };
        held = (grant.number, grant.share);
        told.push((report, heard, grant));
        tokio::task::yield_now().await;
    }
    Ok(told)
}

/// Replays the grants by the rebalance alone.
fn replays(told: &[Told], kept: &Membership) -> Check {
    let mut membership = Membership::default();
    let mut last = Timestamp::EPOCH;
    for (report, heard, grant) in told {
        last = last.max(heard.now);
        let again = rebalancer().handle_report(&mut membership, report, heard.now);
        ensure(again == ReportResponse::Grant(*grant), || {
            format!("{report:?}\n  was granted {grant:?}\n  and by the rebalancer alone {again:?}")
        })?;
    }
    ensure(membership == *kept, || {
        format!("what is kept in the end is not what was swapped in\n{membership:?}\n{kept:?}")
    })
}
