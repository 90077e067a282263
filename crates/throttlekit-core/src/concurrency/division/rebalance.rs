//! Rebalancing: the ceiling of all from the reports of each, and the share of one.

use alloc::vec::Vec;
use core::time::Duration;

use super::membership::{Membership, NODES_MAX, NodeRecord};
use super::{Grant, NodeId, NodeReport};
use crate::Timestamp;

/// Rule that merges the ceilings inferred by nodes. Never their sum: each of them is about the whole backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Combine {
    /// The one in the middle, the lower of two: one node with a bad path to the backend does not slow all.
    #[default]
    LowerMedian,
    /// The least: no node sees the backend overloaded.
    Min,
}

/// Rule that splits the ceiling among nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Split {
    /// By demand, and at least one each if the ceiling allows: a request has the same chance on every node.
    #[default]
    Demand,
    /// The same for each.
    Equal,
}

/// The rule by which nodes share a ceiling. All nodes must have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rebalancer {
    /// Merge of the inferred ceilings.
    pub combine: Combine,
    /// Split among the nodes.
    pub split: Split,
    /// The ceiling while no node has inferred one.
    pub initial: u32,
    /// Maximum ceiling, whatever is inferred.
    pub most: u32,
    /// Lifetime of a grant, by the store's clock.
    pub lives: Duration,
    /// Time for which work may continue after a node's grant has expired, by the store's clock: allow for its drift.
    /// Zero where work is stopped then.
    pub linger: Duration,
}

/// The response to a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReportResponse {
    /// A share.
    Grant(Grant),
    /// A later report of this node was received before; this one changed nothing.
    Stale,
    /// There are [`NODES_MAX`] nodes already.
    Full,
}

impl Rebalancer {
    /// Records a report and returns the response.
    pub fn handle_report(
        &self,
        membership: &mut Membership,
        report: &NodeReport,
        now: Timestamp,
    ) -> ReportResponse {
        let now = now.max(membership.last);
        membership.last = now;
        membership.members.retain(|_, member| now < member.until);
        match membership.members.get(&report.node) {
            Some(known) if report.heartbeat <= known.heartbeat => return ReportResponse::Stale,
            None if membership.members.len() >= NODES_MAX => return ReportResponse::Full,
            _ => {}
        }
        self.beware(membership, report, now);
        self.hear(membership, report, now);
        let grant = self.grant(membership, report, now);
        if report.leaving && report.in_flight == 0 {
            membership.members.remove(&report.node);
        }
        ReportResponse::Grant(grant)
    }

    /// Returns the concurrency limit of all nodes together, by what they infer.
    pub fn ceiling(&self, membership: &Membership) -> u32 {
        let mut limits: Vec<u32> =
            self.present(membership).map(|(_, m)| m.limit).filter(|&limit| limit > 0).collect();
        let middle = limits.len().saturating_sub(1) / 2;
        let combined = match self.combine {
            Combine::Min => limits.iter().min().copied(),
            Combine::LowerMedian if limits.is_empty() => None,
            Combine::LowerMedian => Some(*limits.select_nth_unstable(middle).1),
        };
        combined.unwrap_or(self.initial).min(self.most)
    }

    /// Returns how long a silent node is remembered: until its share has expired and work may no longer run.
    pub fn remembered(&self) -> Duration {
        self.lives.saturating_add(self.linger)
    }

    /// Detects lost records. A node that holds a share unknown to this record shows that a record was lost. So does a
    /// new record: its past is unknown. Until the last of such shares has expired, none may rise.
    fn beware(&self, membership: &mut Membership, report: &NodeReport, now: Timestamp) {
        // A node that has left and reports again, since it got no response, is not remembered and holds nothing.
        let left = report.leaving && report.in_flight == 0;
        let stranger = report.applied > 0 && !left && !membership.members.contains_key(&report.node);
        if membership.quiet_until.is_none() || report.applied > membership.number || stranger {
            membership.quiet_until = Some(now + self.remembered());
        }
        membership.number = membership.number.max(report.applied);
    }

    fn hear(&self, membership: &mut Membership, report: &NodeReport, now: Timestamp) {
        let before = membership.members.get(&report.node);
        let high = match before {
            // Only the last grant prunes. A node that acknowledges an older one may still come to enforce any later
            // one. A grant of a lost record may have the same number, and another share.
            Some(known) if known.number == report.applied => known.share.max(report.holds),
            Some(known) => known.high.max(report.holds),
            None => report.holds,
        };
        let (number, share) = before.map_or((0, 0), |known| (known.number, known.share));
        let NodeReport { heartbeat, in_flight, limit, wants, .. } = *report;
        let leaving = report.leaving || before.is_some_and(|known| known.leaving);
        // Until the later of the expiry of this grant and that of an earlier one, which may have been longer.
        let until = before.map_or(now, |known| known.until).max(now + self.remembered());
        let member =
            NodeRecord { heartbeat, number, share, high, in_flight, limit, wants, leaving, seen: now, until };
        membership.members.insert(report.node, member);
    }

    fn grant(&self, membership: &mut Membership, report: &NodeReport, now: Timestamp) -> Grant {
        let (ceiling, due) = (self.ceiling(membership), self.due(membership, report.node));
        let mine = membership.members.get(&report.node).map_or(0, NodeRecord::reserve);
        let others = membership.reserved() - u64::from(mine);
        let free = u64::from(ceiling).saturating_sub(others);
        // A ceiling below what is reserved leaves nothing free. The first node to report would drop to zero for that;
        // it drops to its due, as all others will. What it holds is reserved for it already.
        let may_hold = free.max(u64::from(report.holds));
        // Not above the due, which is at most the ceiling, so it fits.
        let mut share = u64::from(due).min(may_hold) as u32;
        if membership.quiet_until.is_some_and(|until| now < until) {
            share = share.min(report.holds);
        }
        membership.number += 1;
        let number = membership.number;
        if let Some(member) = membership.members.get_mut(&report.node) {
            (member.number, member.share, member.high) = (number, share, member.high.max(share));
        }
        Grant { number, share, due, ceiling, lives: self.lives }
    }

    /// Returns a node's due part of the ceiling. The dues of all that are present and stay sum to it exactly.
    fn due(&self, membership: &Membership, node: NodeId) -> u32 {
        let staying = || self.present(membership).filter(|(_, member)| !member.leaving);
        let (ceiling, nodes) = (u64::from(self.ceiling(membership)), staying().count() as u64);
        // One for each, so that a node which was quiet has something to begin with, and the rest by weight.
        let each = u64::from(ceiling >= nodes);
        let idle = staying().all(|(_, member)| member.wants == 0);
        let weight = |member: &NodeRecord| match self.split {
            Split::Demand if !idle => u64::from(member.wants),
            Split::Demand | Split::Equal => 1,
        };
        let (rest, whole) = (ceiling - each * nodes, staying().map(|(_, m)| weight(m)).sum::<u64>());
        let mut before = 0;
        for (id, member) in staying() {
            let after = before + weight(member);
            if id == node {
                return (each + part(rest, after, whole) - part(rest, before, whole)) as u32;
            }
            before = after;
        }
        0
    }

    /// The nodes whose grants may be valid.
    /// Returns the number of nodes that have reported within the lifetime of a grant.
    pub fn nodes(&self, membership: &Membership) -> u32 {
        u32::try_from(self.present(membership).count()).unwrap_or(u32::MAX)
    }

    fn present<'a>(&self, membership: &'a Membership) -> impl Iterator<Item = (NodeId, &'a NodeRecord)> {
        let (lives, last) = (self.lives, membership.last);
        membership.members().filter(move |(_, member)| last < member.seen + lives)
    }
}

/// `of · part / whole`, rounded down. Parts one after the other add up to `of`.
fn part(of: u64, part: u64, whole: u64) -> u64 {
    (u128::from(of) * u128::from(part) / u128::from(whole.max(1))) as u64
}
