//! The node's side of a shared ceiling, without I/O: when to beat, which grant counts, when to stop.

use core::time::Duration;

use super::{Grant, NodeId, Report};
use crate::Timestamp;
use crate::lease::Margin;
use crate::time::nanos;

/// How often a node beats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Beats {
    /// From one beat to the next, give or take a fifth. At most a third of what a grant lives, or one lost message
    /// fences the node.
    pub every: Duration,
    /// From a beat to an eager one, at least: what bounds the beats of a fleet whose shares move.
    pub spacing: Duration,
    /// What clocks may be wrong by.
    pub margin: Margin,
}

/// Eager beats in vain before the time between them grows: a hand-over takes some.
const IN_VAIN_MAX: u32 = 8;
/// How often that time is doubled at most.
const DOUBLED_MAX: u32 = 8;

/// What a node is doing, all of it as of one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Occupancy {
    /// How many it has in flight. Read it after the last grant was applied.
    pub in_flight: u32,
    /// How many at a time it thinks the whole backend takes; zero if it does not know yet.
    pub limit: u32,
    /// How many it would have in flight if nobody were turned away.
    pub wants: u32,
}

/// One node of a fleet.
///
/// Whoever drives it sends what [`poll_report`](Self::poll_report) gives, hands the answer to
/// [`handle_grant`](Self::handle_grant) or [`handle_failure`](Self::handle_failure), and lets no more than
/// [`share`](Self::share) in. Work is let in as with leases: take the slot, read the clock, then decide.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    id: NodeId,
    beats: Beats,
    /// Reports made so far.
    beat: u64,
    /// When the report was sent that is not answered yet.
    waiting: Option<Timestamp>,
    /// The number of the grant that the last report said is in force; zero if none was.
    acknowledged: u64,
    /// The grant taken last, and when it dies.
    grant: Option<(Grant, Timestamp)>,
    /// What the last report said.
    told: Option<Occupancy>,
    /// The regular beat.
    next: Timestamp,
    /// When the last report was sent.
    sent: Timestamp,
    /// Grants in a row that brought no other share.
    unchanged: u32,
    /// The others wait to hear of this node: it has applied a grant, or its work must become less.
    owes: bool,
    leaving: bool,
}

impl Node {
    /// A node that has nothing yet and will beat at once.
    pub fn new(id: NodeId, beats: Beats) -> Self {
        Self {
            id,
            beats,
            beat: 0,
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

    /// How many may be in flight at `now`: nothing once the grant has died.
    pub fn share(&self, now: Timestamp) -> u32 {
        self.standing(now).map_or(0, |grant| grant.share)
    }

    /// The grant that counts at `now`.
    pub fn standing(&self, now: Timestamp) -> Option<Grant> {
        self.alive(now).filter(|_| !self.leaving)
    }

    /// The grant that has not died. Whoever leaves lets nothing in, and acknowledges it all the same: only then the
    /// others have what of it is not in use.
    fn alive(&self, now: Timestamp) -> Option<Grant> {
        self.grant.filter(|&(_, dies)| now < dies).map(|(grant, _)| grant)
    }

    /// From when on nothing may be let in, unless another grant comes.
    pub fn dies(&self) -> Timestamp {
        self.grant.map_or(Timestamp::EPOCH, |(_, dies)| dies)
    }

    /// The report to send at `now`, if one is due and none is under way. `dice` is any number, to spread the beats.
    pub fn poll_report(&mut self, occupancy: Occupancy, dice: u32, now: Timestamp) -> Option<Report> {
        if self.waiting.is_some() || !self.due(occupancy, now) {
            return None;
        }
        self.beat += 1;
        (self.waiting, self.sent, self.told, self.owes) = (Some(now), now, Some(occupancy), false);
        self.next = now + self.spread(dice);
        let (applied, holds) = self.alive(now).map_or((0, 0), |grant| (grant.number, grant.share));
        self.acknowledged = applied;
        let Occupancy { in_flight, limit, wants } = occupancy;
        let (node, beat, leaving) = (self.id, self.beat, self.leaving);
        Some(Report { node, beat, applied, holds, in_flight, limit, wants, leaving })
    }

    /// The answer to the report that was sent at `sent`. True if it is the one that counts from now on; then apply its
    /// share before anything is reported again.
    ///
    /// Only the report under way is answered, and only if what it said of the grant in force still holds: whoever was
    /// told is then right about this node, also if the roll was lost between. Anything else is dropped, and the node
    /// beats again.
    pub fn handle_grant(&mut self, grant: Grant, sent: Timestamp, now: Timestamp) -> bool {
        let awaited = self.waiting == Some(sent);
        self.answered(sent);
        let standing = self.alive(now).map_or(0, |standing| standing.number);
        let dies = self.beats.margin.deadline(sent, grant.lives);
        // It has nothing then, which nobody was told.
        self.owes |= awaited && standing != self.acknowledged;
        if !awaited || standing != self.acknowledged || grant.number <= standing || now >= dies {
            return false;
        }
        // Whoever has left with nothing in flight is forgotten, and not to be heard of again.
        let left = self.leaving && self.told.is_some_and(|told| told.in_flight == 0);
        self.owes |= !left && self.alive(now).is_some_and(|before| grant.share < before.share);
        let same = self.alive(now).is_some_and(|before| grant.share == before.share);
        self.unchanged = if same { (self.unchanged + 1).min(IN_VAIN_MAX + DOUBLED_MAX) } else { 0 };
        self.grant = Some((grant, dies));
        true
    }

    /// The report that was sent at `sent` was not answered, or with no grant. Whoever leaves says it again.
    pub fn handle_failure(&mut self, sent: Timestamp) {
        self.answered(sent);
        self.owes |= self.leaving;
    }

    /// Lets nothing more in, from now on. Beat until [`gone`](Self::gone).
    pub fn leave(&mut self) {
        (self.leaving, self.owes) = (true, true);
    }

    /// It has left, and the last report said that nothing is in flight.
    pub fn gone(&self) -> bool {
        self.leaving
            && self.waiting.is_none()
            && !self.owes
            && self.told.is_some_and(|told| told.in_flight == 0)
    }

    /// When to poll again at the latest. Poll as well whenever work ends while [`owing`](Self::owing).
    pub fn next_deadline(&self) -> Timestamp {
        if self.owing() {
            self.next.min(self.sent + self.beats.spacing)
        } else if self.short(self.told.map_or(0, |told| told.wants)) {
            self.next.min(self.sent + self.patience())
        } else {
            self.next
        }
    }

    /// More is in flight than the share, or was when this was last told: the others wait for it to end.
    pub fn owing(&self) -> bool {
        self.owes || self.leaving || self.told.is_some_and(|told| told.in_flight > self.granted())
    }

    /// A beat is due by the clock; or an eager one, since the others wait for news, or this node for its due.
    fn due(&self, occupancy: Occupancy, now: Timestamp) -> bool {
        let drained = self.told.is_some_and(|told| told.in_flight > self.granted().max(occupancy.in_flight));
        let news = (self.owes || drained) && now >= self.sent + self.beats.spacing;
        now >= self.next || news || self.short(occupancy.wants) && now >= self.sent + self.patience()
    }

    /// From a beat to the next of a node that waits for its due: after a while twice as long each time it waited in vain.
    /// Else a whole fleet would beat as fast as it may while the share of one that died is kept.
    fn patience(&self) -> Duration {
        let doubled = self.unchanged.saturating_sub(IN_VAIN_MAX);
        self.beats.spacing.saturating_mul(1 << doubled).min(self.beats.every)
    }

    /// It has less than it is due and wants.
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

    /// The time to the next beat, within a fifth of the regular one.
    fn spread(&self, dice: u32) -> Duration {
        let every = u128::from(nanos(self.beats.every));
        let offset = every * 2 / 5 * u128::from(dice) / u128::from(u32::MAX);
        Duration::from_nanos((every * 4 / 5 + offset) as u64)
    }
}
