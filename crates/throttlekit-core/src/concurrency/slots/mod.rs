//! Who holds the slots of one key, and until when.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use crate::{Retry, Timestamp};

/// How many slots one key ever has, whatever ceiling a call names.
pub const SLOTS_MAX: u32 = 100_000;

/// Names one lease. Drawn at random by whoever asks for it: nobody guesses another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u128);

/// A fingerprint of whoever asks. Only the owner that acquired a lease renews or releases it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u128);

/// The slots of one key: leases, each of one owner, each until a time.
///
/// Never are more held than the ceiling that the last admitted ask named. A lease is held while `now` is before its end
/// and no longer; only [`acquire`](Self::acquire) makes one, so nothing comes back to life.
///
/// The clock may step back. No lease ends before its time for that: what was left of it is left still. Nor does one last:
/// the first call after a step puts every end that lies further ahead than a lease lives to the longest life from `now`.
/// So a slot that was taken while the clock was ahead, and whose holder died, is free one such life after that call.
/// A clock that steps forward ends leases early, by the length of the step.
///
/// A table in which nothing is held says no more than a new one. Whatever does not change the table does not write: a
/// denial is free unless leases are over that it clears away, or the clock has stepped back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SlotTable {
    ends: BTreeMap<(LeaseId, Owner), Timestamp>,
    in_order: BTreeSet<(Timestamp, LeaseId, Owner)>,
    /// The longest life that was given since the table was last empty. No end lies further ahead of a true clock.
    longest: Duration,
    quiet_until: Timestamp,
}

/// How long a slot is held unless its owner beats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// Until when, by the table's clock.
    pub until: Timestamp,
    /// How long that is from now, for whoever has another clock and counts from when it asked.
    pub lives: Duration,
}

/// The answer to one ask for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlotStep {
    /// The slot is the asker's.
    Admit {
        /// For how long.
        slot: Slot,
        /// How many are held now, this one among them.
        held: u32,
    },
    /// There is none.
    Deny(Full),
}

/// Why there is no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Full {
    /// How many are held.
    pub held: u32,
    /// When to ask again: on a release; after a wait where the table is quiet; never where the ceiling is zero.
    pub retry: Retry,
    /// After how long there is room if nobody beats and nobody asks meanwhile. A hint: beats put it off, releases come
    /// before it.
    pub room_in: Option<Duration>,
}

/// What an ask for a slot finds, once leases that are over are gone: all that its answer depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotSight {
    /// How many are held.
    pub held: u32,
    /// Until when the asker holds the lease that it asks for, if it does.
    pub own: Option<Timestamp>,
    /// When so many are over, if nobody beats, that fewer than the ceiling are held. Nothing where that is so now, or
    /// never.
    pub room_at: Option<Timestamp>,
    /// From when on anyone is admitted.
    pub quiet_until: Timestamp,
}

/// The answer to a heartbeat, for one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Beat {
    /// It is held, for as long again.
    Held(Slot),
    /// It is not: over, released, or never this owner's.
    Lost,
}

impl SlotTable {
    /// A table that was lost and begins anew: it admits nobody before `until`.
    ///
    /// Whoever held a slot of the lost one has fenced itself by then, if that is as long from now as the longest lease.
    pub fn recovering(until: Timestamp) -> Self {
        Self { quiet_until: until, ..Self::default() }
    }

    /// Takes a slot if fewer than `most` are held, for as long as `lives` says.
    ///
    /// Asked again for a lease that this owner holds, it answers that it does, and takes no second one: so a call whose
    /// reply was lost may be made again.
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

    /// Lets those of the leases that the owner holds live as long again, and says of each whether it does.
    ///
    /// It only ever puts an end off. A lease that is over stays over, also if the beat was sent before.
    pub fn heartbeat(
        &mut self,
        leases: &[LeaseId],
        owner: Owner,
        lives: Duration,
        now: Timestamp,
    ) -> Vec<Beat> {
        self.advance(now);
        let mut beat = |&lease: &LeaseId| match self.ends.get(&(lease, owner)).copied() {
            Some(until) => {
                let until = until.max(now + lives);
                self.hold(lease, owner, until, lives);
                Beat::Held(Slot::until(until, now))
            }
            None => Beat::Lost,
        };
        let beats = leases.iter().map(&mut beat).collect();
        self.forget_if_idle();
        beats
    }

    /// Gives a slot back. Says whether the owner held it; a second release and another's lease change nothing, and are
    /// told the same.
    pub fn release(&mut self, lease: LeaseId, owner: Owner, now: Timestamp) -> bool {
        self.advance(now);
        let held = self.ends.remove(&(lease, owner));
        if let Some(until) = held {
            self.in_order.remove(&(until, lease, owner));
        }
        self.forget_if_idle();
        held.is_some()
    }

    /// Takes out the leases that are over. Every call does; this one says which, for whoever ends their work as
    /// [`Ending::Dropped`](super::Ending::Dropped), and goes before any other at the same instant.
    pub fn expire(&mut self, now: Timestamp) -> Vec<(LeaseId, Owner)> {
        let over = self.advance(now);
        self.forget_if_idle();
        over
    }

    /// When the next lease is over if nobody beats.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.in_order.first().map(|&(until, ..)| until)
    }

    /// How many are held now, writing nothing.
    pub fn occupancy(&self, now: Timestamp) -> u32 {
        self.in_order.iter().rev().take_while(|&&(until, ..)| now < until).count() as u32
    }

    /// From when on it admits.
    pub fn quiet_until(&self) -> Timestamp {
        self.quiet_until
    }

    /// Whether it says no more than a new one.
    pub fn is_idle(&self) -> bool {
        *self == Self::default()
    }

    /// Moves to `now`, and says which leases are over at it.
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

    /// Puts every end after `latest` to it. There is one only if the clock has stepped back since it was given.
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

    fn sight(&self, lease: LeaseId, owner: Owner, most: u32) -> SlotSight {
        let held = self.len();
        // As many as are too many have to go, and one more.
        let over_at = |most| self.in_order.iter().nth((held - most) as usize).map(|&(until, ..)| until);
        SlotSight {
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

impl SlotSight {
    /// The rule: what is answered to whoever sees this at `now`. A store that runs its mirror has the answer worded, and
    /// itself checked, by this.
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
