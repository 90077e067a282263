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
/// and no longer; only [`acquire`](Self::acquire) makes one, so nothing comes back to life. Time moves only forward while
/// anything is held: it is the later of `now` and the last instant at which a call changed something. A table in which
/// nothing is held says no more than a new one.
///
/// Whatever does not change the table does not write: a denial is free unless leases are over that it clears away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SlotTable {
    ends: BTreeMap<(LeaseId, Owner), Timestamp>,
    in_order: BTreeSet<(Timestamp, LeaseId, Owner)>,
    last: Timestamp,
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
        let (now, _) = self.advance(now);
        let step = if let Some(&until) = self.ends.get(&(lease, owner)) {
            SlotStep::Admit { slot: Slot::until(until, now), held: self.len() }
        } else if now < self.quiet_until || self.len() >= most.min(SLOTS_MAX) {
            SlotStep::Deny(self.full(most.min(SLOTS_MAX), now))
        } else {
            let slot = self.hold(lease, owner, now + lives, now);
            SlotStep::Admit { slot, held: self.len() }
        };
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
        let (now, _) = self.advance(now);
        let mut beat = |&lease: &LeaseId| match self.ends.get(&(lease, owner)) {
            Some(&until) => Beat::Held(self.hold(lease, owner, until.max(now + lives), now)),
            None => Beat::Lost,
        };
        let beats = leases.iter().map(&mut beat).collect();
        self.forget_if_idle();
        beats
    }

    /// Gives a slot back. Says whether the owner held it; a second release and another's lease change nothing, and are
    /// told the same.
    pub fn release(&mut self, lease: LeaseId, owner: Owner, now: Timestamp) -> bool {
        let (now, _) = self.advance(now);
        let held = self.ends.remove(&(lease, owner));
        if let Some(until) = held {
            self.in_order.remove(&(until, lease, owner));
            self.last = now;
        }
        self.forget_if_idle();
        held.is_some()
    }

    /// Takes out the leases that are over. Every call does; this one says which, for whoever ends their work as
    /// [`Ending::Dropped`](super::Ending::Dropped), and goes before any other at the same instant.
    pub fn expire(&mut self, now: Timestamp) -> Vec<(LeaseId, Owner)> {
        let (_, over) = self.advance(now);
        self.forget_if_idle();
        over
    }

    /// When the next lease is over if nobody beats.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.in_order.first().map(|&(until, ..)| until)
    }

    /// How many are held now, writing nothing.
    pub fn occupancy(&self, now: Timestamp) -> u32 {
        let now = now.max(self.last);
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

    /// The instant that holds, and which leases are over at it.
    fn advance(&mut self, now: Timestamp) -> (Timestamp, Vec<(LeaseId, Owner)>) {
        let now = now.max(self.last);
        let mut over = Vec::new();
        while let Some(&(until, lease, owner)) = self.in_order.first()
            && until <= now
        {
            self.in_order.pop_first();
            self.ends.remove(&(lease, owner));
            self.last = now;
            over.push((lease, owner));
        }
        (now, over)
    }

    fn hold(&mut self, lease: LeaseId, owner: Owner, until: Timestamp, now: Timestamp) -> Slot {
        if let Some(before) = self.ends.insert((lease, owner), until) {
            self.in_order.remove(&(before, lease, owner));
        }
        self.in_order.insert((until, lease, owner));
        self.last = now;
        Slot::until(until, now)
    }

    /// As many as are too many have to go, and one more.
    fn full(&self, most: u32, now: Timestamp) -> Full {
        let held = self.len();
        let over_at = || self.in_order.iter().nth(held.checked_sub(most)? as usize).map(|&(until, ..)| until);
        let frees_at = if held < most { Some(self.quiet_until) } else { over_at() };
        let room_at = frees_at.filter(|_| most > 0).map(|at| at.max(self.quiet_until));
        let retry = match room_at {
            None => Retry::Never,
            Some(at) if held < most => Retry::after(at.since(now)),
            Some(_) => Retry::OnRelease,
        };
        Full { held, retry, room_in: room_at.map(|at| at.since(now)) }
    }

    fn forget_if_idle(&mut self) {
        if self.ends.is_empty() {
            self.last = Timestamp::EPOCH;
        }
    }

    fn len(&self) -> u32 {
        self.ends.len() as u32
    }
}

impl Slot {
    fn until(until: Timestamp, now: Timestamp) -> Self {
        Self { until, lives: until.since(now) }
    }
}

#[cfg(test)]
mod tests;
