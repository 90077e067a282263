//! Holders of the slots of one key, and their expiry.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use crate::{Retry, Timestamp};

/// Largest number of slots of one key, whatever ceiling a call names.
pub const SLOTS_MAX: u32 = 100_000;

/// ID of a lease. Drawn at random by the client, so that others cannot guess it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u128);

/// A fingerprint of the client. Only the owner that acquired a lease renews or releases it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u128);

/// The slots of one key: leases, each of one owner, each until a time.
///
/// Never are more held than the ceiling that the last admitted request named. A lease is held while `now` is before its
/// end and no longer; only [`acquire`](Self::acquire) creates one, so no lease is revived.
///
/// The clock may step back. No lease ends early for that: its remaining time stays the same. Nor does one last forever:
/// the first call after a step moves every end that lies further ahead than a lease lives to the longest lifetime from
/// `now`. So a slot that was taken while the clock was ahead, and whose holder died, is free one such lifetime after
/// that call. A clock that steps forward ends leases early, by the length of the step.
///
/// A table without held slots is equivalent to a new one. Calls that do not change the table do not write: a denial is
/// free unless it removes expired leases, or the clock has stepped back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SlotTable {
    ends: BTreeMap<(LeaseId, Owner), Timestamp>,
    in_order: BTreeSet<(Timestamp, LeaseId, Owner)>,
    /// The longest lifetime that was given since the table was last empty. No end lies further ahead of a true clock.
    longest: Duration,
    quiet_until: Timestamp,
}

/// Time for which a slot is held without a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// Expiry, by the table's clock.
    pub until: Timestamp,
    /// Lifetime from now, for a client with another clock that counts from when it sent the request.
    pub lives: Duration,
}

/// The response to one request for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlotStep {
    /// The slot is granted.
    Admit {
        /// The granted slot.
        slot: Slot,
        /// Number of slots held now, this one included.
        held: u32,
    },
    /// No slot is free.
    Deny(Full),
}

/// Reason why no slot is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Full {
    /// Number of slots held.
    pub held: u32,
    /// Advice on retrying: on a release; after a wait where the table is quiet; never where the ceiling is zero.
    pub retry: Retry,
    /// Time until a slot is free without heartbeats or other requests. A hint: heartbeats delay it, releases come
    /// before it.
    pub room_in: Option<Duration>,
}

/// View of the table for one request, without expired leases: all that its response depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotSnapshot {
    /// Number of slots held.
    pub held: u32,
    /// Expiry of the requested lease, if the client already holds it.
    pub own: Option<Timestamp>,
    /// Time at which enough leases have expired, without heartbeats, that fewer than the ceiling are held. `None` where
    /// that is so now, or never.
    pub room_at: Option<Timestamp>,
    /// Instant before which no request is admitted.
    pub quiet_until: Timestamp,
}

/// The response to a heartbeat, for one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeartbeatOutcome {
    /// It is held, renewed for another lifetime.
    Held(Slot),
    /// It is not: expired, released, or never this owner's.
    Lost,
}

impl SlotTable {
    /// Creates a table that replaces a lost one: it admits nothing before `until`.
    ///
    /// All holders of the lost one have fenced themselves by then, if that is as long from now as the longest lease.
    pub fn recovering(until: Timestamp) -> Self {
        Self { quiet_until: until, ..Self::default() }
    }

    /// Takes a slot if fewer than `most` are held, for the duration `lives`.
    ///
    /// A repeated request for a lease that this owner holds returns it, and takes no second one: so a call whose reply
    /// was lost may be retried.
    pub fn acquire(
        &mut self,
        lease: LeaseId,
        owner: Owner,
        most: u32,
        lives: Duration,
        now: Timestamp,
    ) -> SlotStep {
        self.advance(now);
        let sight = self.sight(lease, owner, most);
        let step = sight.step(most, lives, now);
        if let SlotStep::Admit { slot, .. } = step {
            self.hold(lease, owner, slot.until, lives);
        }
        self.forget_if_idle();
        step
    }

    /// Renews the leases that the owner holds, and returns the result for each.
    ///
    /// It only ever extends a lease. An expired lease stays expired, also if the heartbeat was sent before.
    pub fn heartbeat(
        &mut self,
        leases: &[LeaseId],
        owner: Owner,
        lives: Duration,
        now: Timestamp,
    ) -> Vec<HeartbeatOutcome> {
        self.advance(now);
        let mut heartbeat = |&lease: &LeaseId| match self.ends.get(&(lease, owner)).copied() {
            Some(until) => {
                let until = until.max(now + lives);
                self.hold(lease, owner, until, lives);
                HeartbeatOutcome::Held(Slot::until(until, now))
            }
            None => HeartbeatOutcome::Lost,
        };
        let heartbeats = leases.iter().map(&mut heartbeat).collect();
        self.forget_if_idle();
        heartbeats
    }

    /// Releases a slot. Returns whether the owner held it: a second release and another owner's lease change nothing
    /// and return `false`.
    pub fn release(&mut self, lease: LeaseId, owner: Owner, now: Timestamp) -> bool {
        self.advance(now);
        let held = self.ends.remove(&(lease, owner));
        if let Some(until) = held {
            self.in_order.remove(&(until, lease, owner));
        }
        self.forget_if_idle();
        held.is_some()
    }

    /// Removes expired leases. Every call does; this one returns them, to end their work as
    /// [`Ending::Dropped`](super::Ending::Dropped), and must be called before any other at the same instant.
    pub fn expire(&mut self, now: Timestamp) -> Vec<(LeaseId, Owner)> {
        let over = self.advance(now);
        self.forget_if_idle();
        over
    }

    /// Returns when the next lease expires without a heartbeat.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.in_order.first().map(|&(until, ..)| until)
    }

    /// Returns the number of slots held now, writing nothing.
    pub fn occupancy(&self, now: Timestamp) -> u32 {
        self.in_order.iter().rev().take_while(|&&(until, ..)| now < until).count() as u32
    }

    /// Returns the instant from which it admits.
    pub fn quiet_until(&self) -> Timestamp {
        self.quiet_until
    }

    /// Checks whether it is equivalent to a new table.
    pub fn is_idle(&self) -> bool {
        *self == Self::default()
    }

    /// Moves to `now`, and returns the leases that have expired.
    fn advance(&mut self, now: Timestamp) -> Vec<(LeaseId, Owner)> {
        self.pull_in(now + self.longest);
        let mut over = Vec::new();
        while let Some(&(until, lease, owner)) = self.in_order.first()
            && until <= now
        {
            self.in_order.pop_first();
            self.ends.remove(&(lease, owner));
            over.push((lease, owner));
        }
        over
    }

    /// Moves every end after `latest` to it. There is one only if the clock has stepped back since it was given.
    fn pull_in(&mut self, latest: Timestamp) {
        while let Some(&(until, lease, owner)) = self.in_order.last()
            && until > latest
        {
            self.in_order.pop_last();
            self.in_order.insert((latest, lease, owner));
            self.ends.insert((lease, owner), latest);
        }
    }

    fn hold(&mut self, lease: LeaseId, owner: Owner, until: Timestamp, lives: Duration) {
        if let Some(before) = self.ends.insert((lease, owner), until) {
            self.in_order.remove(&(before, lease, owner));
        }
        self.in_order.insert((until, lease, owner));
        self.longest = self.longest.max(lives);
    }

    fn sight(&self, lease: LeaseId, owner: Owner, most: u32) -> SlotSnapshot {
        let held = self.len();
        // The excess leases have to expire, and one more.
        let over_at = |most| self.in_order.iter().nth((held - most) as usize).map(|&(until, ..)| until);
        SlotSnapshot {
            held,
            own: self.ends.get(&(lease, owner)).copied(),
            room_at: Some(most.min(SLOTS_MAX)).filter(|&most| most > 0 && most <= held).and_then(over_at),
            quiet_until: self.quiet_until,
        }
    }

    fn forget_if_idle(&mut self) {
        if self.ends.is_empty() {
            self.longest = Duration::ZERO;
        }
    }

    fn len(&self) -> u32 {
        self.ends.len() as u32
    }
}

impl SlotSnapshot {
    /// The rule: the response to a request with this view at `now`. A store that runs its own copy uses this to compute
    /// the response and to check itself.
    pub fn step(&self, most: u32, lives: Duration, now: Timestamp) -> SlotStep {
        let most = most.min(SLOTS_MAX);
        match self.own {
            Some(until) => SlotStep::Admit { slot: Slot::until(until, now), held: self.held },
            None if now < self.quiet_until || self.held >= most => SlotStep::Deny(self.full(most, now)),
            None => SlotStep::Admit { slot: Slot::until(now + lives, now), held: self.held + 1 },
        }
    }

    fn full(&self, most: u32, now: Timestamp) -> Full {
        let room_at = if self.held < most { Some(self.quiet_until) } else { self.room_at };
        let room_in = room_at.filter(|_| most > 0).map(|at| at.max(self.quiet_until).since(now));
        let retry = match room_in {
            None => Retry::Never,
            Some(wait) if self.held < most => Retry::after(wait),
            Some(_) => Retry::OnRelease,
        };
        Full { held: self.held, retry, room_in }
    }
}

impl Slot {
    fn until(until: Timestamp, now: Timestamp) -> Self {
        Self { until, lives: until.since(now) }
    }
}

#[cfg(test)]
mod tests;
