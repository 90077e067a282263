//! What tenants that have gone quiet leave to the others.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use super::{Member, Roster, Weight};
use crate::Timestamp;
use crate::time::nanos;

/// In how many parts a quiet tenant gives its reserve back.
const PARTS: u32 = 8;
/// How many tenants one check looks at. Whoever is late is looked at by the next checks.
const LOOKS_MAX: usize = 4;

/// When a tenant counts as quiet, and how fast it gives back what is reserved for it.
///
/// From its last ask on: until `quiet_after` nothing happens; then an eighth of what it had not used of its guarantee
/// is given to the others with each eighth of `over`. When it asks again it has its weight back at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GiveBack {
    /// How long a tenant may be silent and keep its whole reserve.
    pub quiet_after: Duration,
    /// How long it takes from then on until nothing is reserved for it.
    pub over: Duration,
}

impl GiveBack {
    /// When a tenant that last asked at `asked_at` gives its part number `part` back.
    fn due(&self, asked_at: Timestamp, part: u32) -> Timestamp {
        let over = u128::from(nanos(self.over)) * u128::from(part);
        let wait = over.div_ceil(u128::from(PARTS)) as u64;
        asked_at + self.quiet_after + Duration::from_nanos(wait)
    }

    /// How many parts a tenant that last asked at `asked_at` has given back by `now`.
    fn parts(&self, asked_at: Timestamp, now: Timestamp) -> u32 {
        (1..=PARTS).take_while(|&part| self.due(asked_at, part) <= now).count() as u32
    }
}

/// Who has been quiet for how long.
///
/// A member that gives back is set aside in the roster: what it has used and what it keeps are taken out of the
/// limit, and the others share the rest by their weights. Time is looked at in one queue with one entry per member,
/// whose instant may lie before the true one, never after it.
#[derive(Clone, Debug)]
pub(super) struct Quiet {
    by: GiveBack,
    pulses: Vec<Pulse>,
    queue: BinaryHeap<Reverse<(Timestamp, u32)>>,
    /// What the members that are set aside have used, and what they keep.
    used: u64,
    kept: u64,
    latest: Timestamp,
}

#[derive(Clone, Copy, Debug, Default)]
struct Pulse {
    asked_at: Timestamp,
    /// What it had not used of its guarantee when it was set aside, and what of that it still keeps.
    claim: u64,
    kept: u64,
    queued: bool,
}

impl Quiet {
    pub(super) fn new(by: GiveBack) -> Self {
        let latest = Timestamp::EPOCH;
        Self { by, pulses: Vec::new(), queue: BinaryHeap::new(), used: 0, kept: 0, latest }
    }

    /// Units of the limit that belong to members that are set aside.
    pub(super) fn aside(&self) -> u64 {
        self.used + self.kept
    }

    /// What of these is used.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// What of these belongs to this one, which is set aside.
    pub(super) fn aside_of(&mut self, roster: &Roster, member: Member) -> u64 {
        roster.used_by(member) + self.pulse(member).kept
    }

    pub(super) fn clear(&mut self) {
        self.pulses.clear();
        self.queue.clear();
        (self.used, self.kept) = (0, 0);
    }

    /// A member asks: whatever it had given back is reserved for it again, as far as it is there.
    pub(super) fn asks(&mut self, roster: &mut Roster, member: Member, weight: Weight, now: Timestamp) {
        self.latest = self.latest.max(now);
        self.wake(roster, member);
        roster.set_weight(member, weight);
        let pulse = self.pulse(member);
        pulse.kept = 0;
        if !pulse.queued {
            pulse.queued = true;
            self.queue.push(Reverse((self.by.due(self.latest, 1), member.0)));
        }
        self.pulse(member).asked_at = self.latest;
    }

    /// Stops counting what a member had set aside: it comes back, or leaves.
    pub(super) fn wake(&mut self, roster: &Roster, member: Member) {
        if roster.is_aside(member) {
            self.used -= roster.used_by(member);
            self.kept -= self.pulse(member).kept;
        }
    }

    /// Lets those give back whose time has come by `now`.
    pub(super) fn collect(&mut self, roster: &mut Roster, now: Timestamp) {
        self.latest = self.latest.max(now);
        for _ in 0..LOOKS_MAX {
            match self.queue.peek() {
                Some(Reverse((due, _))) if *due <= self.latest => {}
                _ => return,
            }
            if let Some(Reverse((_, member))) = self.queue.pop() {
                self.look_at(roster, Member(member));
            }
        }
    }

    fn look_at(&mut self, roster: &mut Roster, member: Member) {
        let (by, now) = (self.by, self.latest);
        let pulse = self.pulse(member);
        pulse.queued = false;
        if !roster.is_taken(member) {
            return;
        }
        let parts = by.parts(pulse.asked_at, now);
        if parts > 0 && !roster.is_aside(member) {
            self.set_aside(roster, member);
        }
        let pulse = self.pulse(member);
        let mut next = by.due(pulse.asked_at, parts + 1);
        if roster.is_aside(member) {
            let keeps = (u128::from(pulse.claim) * u128::from(PARTS - parts) / u128::from(PARTS)) as u64;
            let given = pulse.kept - keeps;
            pulse.kept = keeps;
            self.kept -= given;
            if keeps == 0 {
                return;
            }
        } else if parts > 0 {
            // Nothing to give as yet; the others may leave it something.
            next = now + by.quiet_after.max(Duration::from_nanos(1));
        }
        self.pulse(member).queued = true;
        self.queue.push(Reverse((next, member.0)));
    }

    /// Sets a member aside that has not used all of its guarantee, with all of its claim.
    fn set_aside(&mut self, roster: &mut Roster, member: Member) {
        let used = roster.used_by(member);
        let claim = roster.guarantee(member).saturating_sub(used);
        if claim > 0 {
            roster.set_aside(member);
            let pulse = self.pulse(member);
            (pulse.claim, pulse.kept) = (claim, claim);
            self.used += used;
            self.kept += claim;
        }
    }

    fn pulse(&mut self, member: Member) -> &mut Pulse {
        if member.index() >= self.pulses.len() {
            self.pulses.resize(member.index() + 1, Pulse::default());
        }
        &mut self.pulses[member.index()]
    }
}
