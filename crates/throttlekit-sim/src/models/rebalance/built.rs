//! Conversions between a model state and production types.

use core::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::division::{
    Grant, HeartbeatIntervals, Membership, Node, NodeId, NodeLoad, NodeReport,
};
use throttlekit_core::lease::Margin;

use super::state::{Held, Host, Kept, Known, Letter, MEMBERS_MAX, Says, UNHEARD};
use super::{Fleet, Seam, TICK};

/// The reading of all clocks, late enough that every earlier instant is representable.
pub(super) const NOW: Timestamp = Timestamp::from_millis(1_000);
/// Every poll is a heartbeat: the schedule affects pace, not safety.
const HEARTBEATS: HeartbeatIntervals =
    HeartbeatIntervals { every: Duration::ZERO, spacing: Duration::ZERO, margin: Margin::NONE };
const IDLE: NodeLoad = NodeLoad { in_flight: 0, limit: 0, wants: 0 };

/// Returns when a report was sent: shortly before the tick, each report later than the one before it.
pub(super) fn sent(heartbeat: u8, age: u8) -> Timestamp {
    let before = TICK * u32::from(age) + Duration::from_micros(100 - u64::from(heartbeat));
    Timestamp::from_nanos(NOW.as_nanos() - before.as_nanos() as u64)
}

impl Fleet {
    /// Returns the number of requests that a node may have in flight.
    pub(super) fn share(&self, host: &Host) -> u32 {
        match (self.seam, host.grant) {
            (Seam::Unfenced, Some(held)) if !host.leaving => held.share.into(),
            // The number of its reports does not matter here.
            _ => self.node(&Host { heartbeat: host.heartbeat.min(1), waiting: None, ..*host }).share(NOW),
        }
    }

    /// Builds the production node of a host by replaying a history that leads to it.
    pub(super) fn node(&self, host: &Host) -> Node {
        let mut node = Node::new(NodeId(host.id.into()), HEARTBEATS);
        // The grant came with the response to a report that was sent just long enough ago to leave the same
        // remaining life.
        let begun = host.grant.map_or(Timestamp::EPOCH, |held| self.asked_for(held));
        for heartbeat in 1..=host.heartbeat {
            let last = host.waiting.filter(|_| heartbeat == host.heartbeat);
            let at = last.map_or(begun, |age| sent(heartbeat, age));
            node.poll_report(IDLE, 0, at).expect("a poll is a heartbeat");
            if let (1, Some(held)) = (heartbeat, host.grant) {
                assert!(node.handle_grant(self.grant(held.number, held.share), at, at), "a grant of its own");
            } else if last.is_none() {
                node.handle_failure(at);
            }
        }
        if host.leaving {
            node.leave();
        }
        node
    }

    /// Returns when the report was sent that this grant answered: before all later ones.
    fn asked_for(&self, held: Held) -> Timestamp {
        let age = (i64::from(self.lives) - i64::from(held.left)) as u64;
        Timestamp::from_nanos(NOW.as_nanos() - 150_000 - age * TICK.as_nanos() as u64)
    }

    pub(super) fn grant(&self, number: u8, share: u8) -> Grant {
        let (number, share) = (number.into(), share.into());
        Grant { number, share, due: share, ceiling: self.limit.into(), lives: TICK * u32::from(self.lives) }
    }

    /// Returns the node's record of its grant.
    pub(super) fn held(&self, grant: Grant, dies: Timestamp) -> Held {
        let nanos = dies.as_nanos() as i64 - NOW.as_nanos() as i64;
        let left = nanos.div_euclid(TICK.as_nanos() as i64) + 1;
        Held { number: grant.number as u8, share: grant.share as u8, left: left as i8 }
    }
}

impl Letter {
    /// Returns the report in this message, if it is one.
    pub(super) fn report(&self) -> Option<NodeReport> {
        let Says::Report { applied, holds, in_flight, wants, leaving } = self.says else { return None };
        Some(NodeReport {
            node: NodeId(self.id.into()),
            heartbeat: self.heartbeat.into(),
            applied: applied.into(),
            holds: holds.into(),
            in_flight: in_flight.into(),
            limit: 0,
            wants: wants.into(),
            leaving,
        })
    }

    pub(super) fn of(report: &NodeReport) -> Self {
        let says = Says::Report {
            applied: report.applied as u8,
            holds: report.holds as u8,
            in_flight: report.in_flight as u8,
            wants: report.wants as u8,
            leaving: report.leaving,
        };
        Self { id: report.node.0 as u8, heartbeat: report.heartbeat as u8, age: 0, says }
    }
}

impl Kept {
    /// Builds the membership record through the bytes that a store keeps. All nodes are remembered for the
    /// same time.
    pub(super) fn membership(&self, remembered: Duration) -> Membership {
        let quiet = match self.quiet {
            UNHEARD => u64::MAX,
            ticks => (NOW + TICK * u32::from(ticks)).as_nanos(),
        };
        let mut bytes = b"tkr\x01".to_vec();
        bytes.extend([NOW.as_nanos(), self.number.into(), quiet].map(u64::to_le_bytes).as_flattened());
        for known in self.members.iter().flatten() {
            let seen = NOW.as_nanos() - u64::from(known.age) * TICK.as_nanos() as u64;
            let until = seen + remembered.as_nanos() as u64;
            bytes.extend(u128::from(known.id).to_le_bytes());
            let long = [known.heartbeat.into(), known.number.into(), seen, until];
            bytes.extend(long.map(u64::to_le_bytes).as_flattened());
            let small = [known.share, known.high, known.in_flight, 0, known.wants];
            bytes.extend(small.map(|n| u32::from(n).to_le_bytes()).as_flattened());
            bytes.push(known.leaving.into());
        }
        Membership::from_bytes(&bytes).expect("a record as it is written")
    }

    /// Converts a membership record to its model state; `None` if it has more members than fit.
    pub(super) fn of(membership: &Membership) -> Option<Self> {
        let bytes = membership.to_bytes();
        let number = u64::from_le_bytes(bytes[12..20].try_into().expect("eight bytes"));
        let ticks = |until: Timestamp| until.since(NOW).as_nanos().div_ceil(TICK.as_nanos()) as u8;
        let mut members = [None; MEMBERS_MAX];
        for (at, (id, member)) in membership.members().enumerate() {
            *members.get_mut(at)? = Some(Known {
                id: id.0 as u8,
                heartbeat: member.heartbeat as u8,
                number: member.number as u8,
                share: member.share as u8,
                high: member.high as u8,
                in_flight: member.in_flight as u8,
                wants: member.wants as u8,
                leaving: member.leaving,
                age: (NOW.since(member.seen).as_nanos() / TICK.as_nanos()) as u8,
            });
        }
        Some(Self { number: number as u8, quiet: membership.quiet_until().map_or(UNHEARD, ticks), members })
    }
}
