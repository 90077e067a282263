//! Rebalancing: the ceiling of all from the reports of each, and the share of one.

use alloc::vec::Vec;
use core::time::Duration;

use super::membership::{Member, NODES_MAX, Roll};
use super::{Grant, NodeId, Report};
use crate::Timestamp;

/// How the ceilings that nodes infer become one. Never their sum: each of them is about the whole backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Folded {
    /// The one in the middle, the lower of two: one node with a bad path to the backend does not slow all.
    #[default]
    LowerMedian,
    /// The least: no node sees the backend overloaded.
    Min,
}

/// What each node is due of the ceiling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Split {
    /// By what it wants, and one at least if there are as many: an ask has the same chance whichever node it comes to.
    #[default]
    Demand,
    /// The same for each.
    Equal,
}

/// The rule by which a fleet shares a ceiling. All nodes of a fleet must have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fold {
    /// How the inferred ceilings become one.
    pub folded: Folded,
    /// What each node is due.
    pub split: Split,
    /// The ceiling while no node knows one.
    pub initial: u32,
    /// What the ceiling never exceeds, whatever is inferred.
    pub most: u32,
    /// How long a grant lives, by the store's clock.
    pub lives: Duration,
    /// How long work may run on when a node's grant has died, by the store's clock: allow for its drift. Zero where work
    /// is stopped then.
    pub linger: Duration,
}

/// The answer to a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Beat {
    /// A share.
    Grant(Grant),
    /// A later report of this node was heard before; this one changed nothing.
    Stale,
    /// There are [`NODES_MAX`] nodes already.
    Full,
}

impl Fold {
    /// Takes a report in and answers it.
    pub fn beat(&self, roll: &mut Roll, report: &Report, now: Timestamp) -> Beat {
        let now = now.max(roll.last);
        roll.last = now;
        roll.members.retain(|_, member| now < member.until);
        match roll.members.get(&report.node) {
            Some(known) if report.beat <= known.beat => return Beat::Stale,
            None if roll.members.len() >= NODES_MAX => return Beat::Full,
            _ => {}
        }
        self.beware(roll, report, now);
        self.hear(roll, report, now);
        let grant = self.grant(roll, report, now);
        if report.leaving && report.in_flight == 0 {
            roll.members.remove(&report.node);
        }
        Beat::Grant(grant)
    }

    /// How many at a time the fleet may have, by what its nodes infer.
    pub fn ceiling(&self, roll: &Roll) -> u32 {
        let mut limits: Vec<u32> =
            self.present(roll).map(|(_, m)| m.limit).filter(|&limit| limit > 0).collect();
        let middle = limits.len().saturating_sub(1) / 2;
        let folded = match self.folded {
            Folded::Min => limits.iter().min().copied(),
            Folded::LowerMedian if limits.is_empty() => None,
            Folded::LowerMedian => Some(*limits.select_nth_unstable(middle).1),
        };
        folded.unwrap_or(self.initial).min(self.most)
    }

    /// How long a silent node is remembered: it may enforce its share until that died, and have work until later.
    pub fn remembered(&self) -> Duration {
        self.lives.saturating_add(self.linger)
    }

    /// Whoever holds a share that this roll knows nothing of shows that a roll was lost. So does a roll that begins:
    /// who knows what was before. Until the last of such shares has died, none may rise.
    fn beware(&self, roll: &mut Roll, report: &Report, now: Timestamp) {
        // Who has left and says so again, since nobody answered, is not remembered and holds nothing.
        let left = report.leaving && report.in_flight == 0;
        let stranger = report.applied > 0 && !left && !roll.members.contains_key(&report.node);
        if roll.quiet_until.is_none() || report.applied > roll.number || stranger {
            roll.quiet_until = Some(now + self.remembered());
        }
        roll.number = roll.number.max(report.applied);
    }

    fn hear(&self, roll: &mut Roll, report: &Report, now: Timestamp) {
        let before = roll.members.get(&report.node);
        let high = match before {
            // Only the grant made last prunes. Whoever acknowledges an older one may still come to enforce any later.
            // A grant of a roll that was lost may have the same number, and another share.
            Some(known) if known.number == report.applied => known.share.max(report.holds),
            Some(known) => known.high.max(report.holds),
            None => report.holds,
        };
        let (number, share) = before.map_or((0, 0), |known| (known.number, known.share));
        let Report { beat, in_flight, limit, wants, .. } = *report;
        let leaving = report.leaving || before.is_some_and(|known| known.leaving);
        // Until the later of what this grant says and one before it, which may have been made to live longer.
        let until = before.map_or(now, |known| known.until).max(now + self.remembered());
        let member = Member { beat, number, share, high, in_flight, limit, wants, leaving, seen: now, until };
        roll.members.insert(report.node, member);
    }

    fn grant(&self, roll: &mut Roll, report: &Report, now: Timestamp) -> Grant {
        let (ceiling, due) = (self.ceiling(roll), self.due(roll, report.node));
        let mine = roll.members.get(&report.node).map_or(0, Member::reserve);
        let others = roll.reserved() - u64::from(mine);
        let free = u64::from(ceiling).saturating_sub(others);
        // A ceiling that fell below what is reserved leaves nothing free. Whoever reports first would go down to nothing
        // for that; it goes down to its due, as all others will. What it holds is reserved for it already.
        let may_hold = free.max(u64::from(report.holds));
        // Not above the due, which is at most the ceiling, so it fits.
        let mut share = u64::from(due).min(may_hold) as u32;
        if roll.quiet_until.is_some_and(|until| now < until) {
            share = share.min(report.holds);
        }
        roll.number += 1;
        let number = roll.number;
        if let Some(member) = roll.members.get_mut(&report.node) {
            (member.number, member.share, member.high) = (number, share, member.high.max(share));
        }
        Grant { number, share, due, ceiling, lives: self.lives }
    }

    /// What a node is due of the ceiling. All that are present and stay are due the ceiling together, to the unit.
    fn due(&self, roll: &Roll, node: NodeId) -> u32 {
        let staying = || self.present(roll).filter(|(_, member)| !member.leaving);
        let (ceiling, nodes) = (u64::from(self.ceiling(roll)), staying().count() as u64);
        // One for each, so that a node which was quiet has something to begin with, and the rest by weight.
        let each = u64::from(ceiling >= nodes);
        let idle = staying().all(|(_, member)| member.wants == 0);
        let weight = |member: &Member| match self.split {
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

    /// Those whose grants may live.
    fn present<'a>(&self, roll: &'a Roll) -> impl Iterator<Item = (NodeId, &'a Member)> {
        let (lives, last) = (self.lives, roll.last);
        roll.members().filter(move |(_, member)| last < member.seen + lives)
    }
}

/// `of · part / whole`, rounded down. Parts one after the other add up to `of`.
fn part(of: u64, part: u64, whole: u64) -> u64 {
    (u128::from(of) * u128::from(part) / u128::from(whole.max(1))) as u64
}
