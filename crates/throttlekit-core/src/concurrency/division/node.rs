//! The node's side of a shared ceiling, without I/O: when to send a heartbeat, which grant counts, when to stop.

use core::time::Duration;

use super::{Grant, NodeId, NodeReport};
use crate::Timestamp;
use crate::lease::Margin;
use crate::time::nanos;

/// Heartbeat intervals of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeartbeatIntervals {
    /// Interval between heartbeats, plus or minus a fifth. At most a third of the lifetime of a grant, or one lost
    /// message fences the node.
    pub every: Duration,
    /// Minimum interval before an eager heartbeat: bounds the heartbeats of nodes whose shares move.
    pub spacing: Duration,
    /// Error bounds of the clocks.
    pub margin: Margin,
}

/// Eager heartbeats without effect before the time between them grows: a handover takes some.
const IN_VAIN_MAX: u32 = 8;
/// Maximum number of times that interval is doubled.
const DOUBLED_MAX: u32 = 8;

/// Load of a node, all of it as of one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeLoad {
    /// Calls in flight. Read it after the last grant was applied.
    pub in_flight: u32,
    /// Its estimate of the concurrency limit of the whole backend; zero if unknown.
    pub limit: u32,
    /// Calls it would have in flight if none were denied.
    pub wants: u32,
}

/// One node that shares a concurrency limit.
///
/// The driver sends what [`poll_report`](Self::poll_report) returns, passes the response to
/// [`handle_grant`](Self::handle_grant) or [`handle_failure`](Self::handle_failure), and admits no more than
/// [`share`](Self::share). Work is admitted as with leases: take the slot, read the clock, then decide.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    id: NodeId,
    heartbeats: HeartbeatIntervals,
    /// Reports made so far.
    heartbeat: u64,
    /// Send time of the pending report.
    waiting: Option<Timestamp>,
    /// The number of the grant that the last report acknowledged; zero if none.
    acknowledged: u64,
    /// The last grant accepted, and when it expires.
    grant: Option<(Grant, Timestamp)>,
    /// Contents of the last report.
    told: Option<NodeLoad>,
    /// Time of the next regular heartbeat.
    next: Timestamp,
    /// Send time of the last report.
    sent: Timestamp,
    /// Consecutive grants that did not change the share.
    unchanged: u32,
    /// The others wait for a report of this node: it has applied a grant, or its work must shrink.
    owes: bool,
    leaving: bool,
}

impl Node {
    /// Creates a node without a grant that sends a heartbeat at once.
    pub fn new(id: NodeId, heartbeats: HeartbeatIntervals) -> Self {
        Self {
            id,
            heartbeats,
            heartbeat: 0,
            waiting: None,
            acknowledged: 0,
            grant: None,
            told: None,
            next: Timestamp::EPOCH,
            sent: Timestamp::EPOCH,
            unchanged: 0,
            owes: false,
            leaving: false,
        }
    }

    /// Returns the number of calls that may be in flight at `now`: zero once the grant has expired.
    pub fn share(&self, now: Timestamp) -> u32 {
        self.standing(now).map_or(0, |grant| grant.share)
    }

    /// Returns the grant in effect at `now`.
    pub fn standing(&self, now: Timestamp) -> Option<Grant> {
        self.alive(now).filter(|_| !self.leaving)
    }

    /// The grant that has not expired. A leaving node admits nothing, and acknowledges it all the same: only then the
    /// others get the unused part of it.
    fn alive(&self, now: Timestamp) -> Option<Grant> {
        self.grant.filter(|&(_, dies)| now < dies).map(|(grant, _)| grant)
    }

    /// Returns the instant after which nothing may be admitted, unless another grant arrives.
    pub fn dies(&self) -> Timestamp {
        self.grant.map_or(Timestamp::EPOCH, |(_, dies)| dies)
    }

    /// Returns the report to send at `now`, if one is due and none is pending. `dice` is any number, for jitter.
    pub fn poll_report(&mut self, occupancy: NodeLoad, dice: u32, now: Timestamp) -> Option<NodeReport> {
        if self.waiting.is_some() || !self.due(occupancy, now) {
            return None;
        }
        self.heartbeat += 1;
        (self.waiting, self.sent, self.told, self.owes) = (Some(now), now, Some(occupancy), false);
        self.next = now + self.spread(dice);
        let (applied, holds) = self.alive(now).map_or((0, 0), |grant| (grant.number, grant.share));
        self.acknowledged = applied;
        let NodeLoad { in_flight, limit, wants } = occupancy;
        let (node, heartbeat, leaving) = (self.id, self.heartbeat, self.leaving);
        Some(NodeReport { node, heartbeat, applied, holds, in_flight, limit, wants, leaving })
    }

    /// Handles the response to the report that was sent at `sent`. True if it is the grant in effect from now on; then
    /// apply its share before the next report.
    ///
    /// Only a response to the pending report is accepted, and only if the grant it acknowledged is still in effect: the
    /// store's view of this node is then right, also if the record was lost in between. Anything else is dropped, and
    /// the node sends another heartbeat.
    pub fn handle_grant(&mut self, grant: Grant, sent: Timestamp, now: Timestamp) -> bool {
        let awaited = self.waiting == Some(sent);
        self.answered(sent);
        let standing = self.alive(now).map_or(0, |standing| standing.number);
        let dies = self.heartbeats.margin.deadline(sent, grant.lives);
        // It has no grant then, which was not reported to anyone.
        self.owes |= awaited && standing != self.acknowledged;
        if !awaited || standing != self.acknowledged || grant.number <= standing || now >= dies {
            return false;
        }
        // A node that has left with nothing in flight is forgotten, and must not report again.
        let left = self.leaving && self.told.is_some_and(|told| told.in_flight == 0);
        self.owes |= !left && self.alive(now).is_some_and(|before| grant.share < before.share);
        let same = self.alive(now).is_some_and(|before| grant.share == before.share);
        self.unchanged = if same { (self.unchanged + 1).min(IN_VAIN_MAX + DOUBLED_MAX) } else { 0 };
        self.grant = Some((grant, dies));
        true
    }

    /// Handles a report sent at `sent` that got no response, or no grant. A leaving node reports again.
    pub fn handle_failure(&mut self, sent: Timestamp) {
        self.answered(sent);
        self.owes |= self.leaving;
    }

    /// Stops admitting, from now on. Send heartbeats until [`gone`](Self::gone).
    pub fn leave(&mut self) {
        (self.leaving, self.owes) = (true, true);
    }

    /// Checks whether it has left, and the last report had nothing in flight.
    pub fn gone(&self) -> bool {
        self.leaving
            && self.waiting.is_none()
            && !self.owes
            && self.told.is_some_and(|told| told.in_flight == 0)
    }

    /// Returns when to poll again at the latest. Poll as well whenever work ends while [`owing`](Self::owing).
    pub fn next_deadline(&self) -> Timestamp {
        if self.owing() {
            self.next.min(self.sent + self.heartbeats.spacing)
        } else if self.short(self.told.map_or(0, |told| told.wants)) {
            self.next.min(self.sent + self.patience())
        } else {
            self.next
        }
    }

    /// Checks whether more is in flight than the share, or was at the last report: the others wait for it to end.
    pub fn owing(&self) -> bool {
        self.owes || self.leaving || self.told.is_some_and(|told| told.in_flight > self.granted())
    }

    /// Checks whether a heartbeat is due: a regular one, or an eager one as the others or this node wait for a change.
    fn due(&self, occupancy: NodeLoad, now: Timestamp) -> bool {
        let drained = self.told.is_some_and(|told| told.in_flight > self.granted().max(occupancy.in_flight));
        let news = (self.owes || drained) && now >= self.sent + self.heartbeats.spacing;
        now >= self.next || news || self.short(occupancy.wants) && now >= self.sent + self.patience()
    }

    /// Returns the heartbeat interval of a node that waits for its due: after a while doubled each time it waited
    /// without effect. Else all nodes would send at the minimum interval while the share of one that died is kept.
    fn patience(&self) -> Duration {
        let doubled = self.unchanged.saturating_sub(IN_VAIN_MAX);
        self.heartbeats.spacing.saturating_mul(1 << doubled).min(self.heartbeats.every)
    }

    /// Checks whether it has less than it is due and wants.
    fn short(&self, wants: u32) -> bool {
        self.grant.is_none_or(|(grant, _)| grant.share < grant.due.min(wants))
    }

    fn granted(&self) -> u32 {
        if self.leaving { 0 } else { self.grant.map_or(0, |(grant, _)| grant.share) }
    }

    fn answered(&mut self, sent: Timestamp) {
        if self.waiting == Some(sent) {
            self.waiting = None;
        }
    }

    /// Returns the time to the next heartbeat, within a fifth of the regular interval.
    fn spread(&self, dice: u32) -> Duration {
        let every = u128::from(nanos(self.heartbeats.every));
        let offset = every * 2 / 5 * u128::from(dice) / u128::from(u32::MAX);
        Duration::from_nanos((every * 4 / 5 + offset) as u64)
    }
}
