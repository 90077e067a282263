//! The reference model of leases in a plain list; and the same with a seeded bug.

use std::collections::HashMap;
use std::time::Duration;

use throttlekit::Retry;
use throttlekit::clock::{Clock, ManualClock};
use throttlekit::internals::Mutex;
use throttlekit::rate::Timestamp;
use throttlekit::store::{
    Full, HeartbeatOutcome, Occupancy, SLOTS_MAX, Slot, SlotAnswer, SlotLease, SlotRequest,
};
use throttlekit::store::{SlotStep, SlotStore, StoreError};

crate::bugs! {
    /// The bug of a [`Book`].
    pub enum SlotBug {
        BeatRevives: "A heartbeat revives a lost lease.",
        BeatByNameAlone: "A heartbeat checks only the lease's name.",
        BeatShortens: "A heartbeat shortens a lease.",
        ReleaseByNameAlone: "A release by the lease's name alone.",
        ReleaseFreesTheOldest: "A second release frees another's.",
        PurgeForgotten: "Expired leases are not removed.",
        PurgeLate: "The purge is a tick late.",
        PurgeEarly: "The purge is a tick early.",
        CountBeforePurge: "The count is of before the purge.",
        RetryTakesTwo: "A retry takes two.",
        RetryRenews: "A retry renews.",
        RetryUnderTheCeiling: "A retry is denied under a full ceiling.",
        CeilingKept: "The first ceiling is kept.",
        OneTooMany: "One more than the ceiling.",
        RoomByTheFirst: "A slot is free when the first lease has expired.",
        TimeStandsStill: "Time stands still until the clock is where it was.",
        EndsStayAhead: "Ends stay ahead of a clock that stepped back.",
        PulledInByTheCall: "Ends are pulled in to the life that the call names.",
        DenialPullsNothingIn: "A denial pulls nothing in.",
        DenialLengthens: "A denial lengthens the longest life.",
        LifeOutlivesLeases: "The longest life outlives leases.",
    }
}

/// The leases of one key in a plain list: the simplest model of what every store of slots must return.
#[derive(Clone, Debug, Default)]
pub struct Book {
    /// Lease, owner, end.
    leases: Vec<(u128, u128, Timestamp)>,
    /// The longest lease duration granted since the list was last empty.
    longest: Duration,
    /// Time of the last change, for the bug that needs it.
    last: Timestamp,
    first_most: Option<u32>,
    bug: Option<SlotBug>,
}

impl Book {
    fn has(&self, bug: SlotBug) -> bool {
        self.bug == Some(bug)
    }

    /// Removes expired leases. Returns the effective time, whether any had expired, and how many there were before.
    /// `lives` is the lease duration of the call, if it has one.
    fn clear(&mut self, now: Timestamp, lives: Option<Duration>) -> (Timestamp, bool, usize) {
        let now = if self.has(SlotBug::TimeStandsStill) { now.max(self.last) } else { now };
        let latest = match (self.bug, lives) {
            (Some(SlotBug::EndsStayAhead | SlotBug::TimeStandsStill), _) => None,
            (Some(SlotBug::PulledInByTheCall), Some(lives)) => Some(now + lives),
            _ => Some(now + self.longest),
        };
        for lease in &mut self.leases {
            lease.2 = latest.map_or(lease.2, |latest| lease.2.min(latest));
        }
        let before = self.leases.len();
        let tick = Duration::from_micros(1);
        match self.bug {
            Some(SlotBug::PurgeForgotten) => {}
            Some(SlotBug::PurgeLate) => self.leases.retain(|lease| lease.2 >= now),
            Some(SlotBug::PurgeEarly) => self.leases.retain(|lease| lease.2 > now + tick),
            _ => self.leases.retain(|lease| lease.2 > now),
        }
        (now, before != self.leases.len(), before)
    }

    /// Ends a call, with whether it changed anything and the lease duration that it granted.
    fn close(&mut self, now: Timestamp, changed: bool, given: Option<Duration>) {
        self.longest = self.longest.max(given.unwrap_or_default());
        if changed {
            self.last = now;
        }
        if self.leases.is_empty() {
            self.last = Timestamp::EPOCH;
        }
        if self.leases.is_empty() && !self.has(SlotBug::LifeOutlivesLeases) {
            self.longest = Duration::ZERO;
        }
    }

    /// As [`SlotStore::acquire`].
    pub fn acquire(&mut self, ask: &SlotRequest<'_>, now: Timestamp) -> SlotAnswer {
        let ends: Vec<_> = self.leases.iter().map(|lease| lease.2).collect();
        let (now, cleared, before) = self.clear(now, Some(ask.lives));
        let most =
            if self.has(SlotBug::CeilingKept) { *self.first_most.get_or_insert(ask.most) } else { ask.most };
        let most = most.min(SLOTS_MAX) as usize;
        let held = if self.has(SlotBug::CountBeforePurge) { before } else { self.leases.len() };
        let own = self.leases.iter_mut().find(|lease| (lease.0, lease.1) == (ask.lease.0, ask.owner.0));
        let repeats = match self.bug {
            Some(SlotBug::RetryTakesTwo) => None,
            Some(SlotBug::RetryUnderTheCeiling) if held >= most => None,
            _ => own,
        };
        let slot = |until: Timestamp| Slot { until, lives: until.since(now) };
        let step = if let Some(lease) = repeats {
            if self.bug == Some(SlotBug::RetryRenews) {
                lease.2 = lease.2.max(now + ask.lives);
            }
            SlotStep::Admit { slot: slot(lease.2), held: held as u32 }
        } else if held < most + usize::from(self.has(SlotBug::OneTooMany)) {
            self.leases.push((ask.lease.0, ask.owner.0, now + ask.lives));
            SlotStep::Admit { slot: slot(now + ask.lives), held: held as u32 + 1 }
        } else {
            SlotStep::Deny(self.full(held, most, now))
        };
        let admitted = matches!(step, SlotStep::Admit { .. });
        if self.has(SlotBug::DenialPullsNothingIn) && !admitted && !cleared {
            self.leases.iter_mut().zip(ends).for_each(|(lease, end)| lease.2 = end);
        }
        let given = admitted || self.has(SlotBug::DenialLengthens);
        self.close(now, cleared || admitted, given.then_some(ask.lives));
        SlotAnswer { now, step }
    }

    fn full(&self, held: usize, most: usize, now: Timestamp) -> Full {
        if most == 0 {
            return Full { held: held as u32, retry: Retry::Never, room_in: None };
        }
        let mut ends: Vec<_> = self.leases.iter().map(|lease| lease.2).collect();
        ends.sort_unstable();
        let place = if self.has(SlotBug::RoomByTheFirst) { 0 } else { held - most };
        let room_in = ends.get(place).map(|end| end.since(now));
        Full { held: held as u32, retry: Retry::OnRelease, room_in }
    }

    /// As [`SlotStore::heartbeat`], for one lease.
    pub fn heartbeat(&mut self, at: &SlotLease<'_>, lives: Duration, now: Timestamp) -> HeartbeatOutcome {
        let (now, cleared, _) = self.clear(now, Some(lives));
        let by_name = self.has(SlotBug::BeatByNameAlone);
        let (shortens, revives) = (self.has(SlotBug::BeatShortens), self.has(SlotBug::BeatRevives));
        let mine = |lease: &&mut (u128, u128, Timestamp)| {
            lease.0 == at.lease.0 && (lease.1 == at.owner.0 || by_name)
        };
        let until = match self.leases.iter_mut().find(mine) {
            Some(lease) => {
                lease.2 = if shortens { now + lives } else { lease.2.max(now + lives) };
                Some(lease.2)
            }
            None if revives => {
                self.leases.push((at.lease.0, at.owner.0, now + lives));
                Some(now + lives)
            }
            None => None,
        };
        self.close(now, cleared || until.is_some(), until.map(|_| lives));
        until.map_or(HeartbeatOutcome::Lost, |until| {
            HeartbeatOutcome::Held(Slot { until, lives: until.since(now) })
        })
    }

    /// As [`SlotStore::release`], for one lease.
    pub fn release(&mut self, at: &SlotLease<'_>, now: Timestamp) -> bool {
        let (now, cleared, _) = self.clear(now, None);
        let by_name = self.has(SlotBug::ReleaseByNameAlone);
        let mine =
            |lease: &(u128, u128, Timestamp)| lease.0 == at.lease.0 && (lease.1 == at.owner.0 || by_name);
        let place = self.leases.iter().position(mine);
        if let Some(place) = place {
            self.leases.remove(place);
        } else if self.has(SlotBug::ReleaseFreesTheOldest) && !self.leases.is_empty() {
            self.leases.remove(0);
        }
        self.close(now, cleared || place.is_some(), None);
        place.is_some()
    }

    /// As [`SlotStore::occupancy`].
    pub fn look(&self, now: Timestamp) -> Occupancy {
        let mut seen = self.clone();
        let (now, ..) = seen.clear(now, None);
        Occupancy { now, held: seen.leases.len() as u32 }
    }
}

/// A store of slots in process with one bug.
#[derive(Debug)]
pub struct SeededSlots {
    clock: ManualClock,
    bug: SlotBug,
    books: Mutex<HashMap<String, Book>>,
}

impl SeededSlots {
    /// Creates an empty one.
    pub fn new(clock: ManualClock, bug: SlotBug) -> Self {
        Self { clock, bug, books: Mutex::default() }
    }

    fn with<T>(&self, key: &str, change: impl FnOnce(&mut Book, Timestamp) -> T) -> T {
        let mut books = self.books.lock();
        let fresh = || Book { bug: Some(self.bug), ..Book::default() };
        change(books.entry(key.into()).or_insert_with(fresh), self.clock.now())
    }
}

impl SlotStore for SeededSlots {
    async fn acquire(&self, ask: &SlotRequest<'_>) -> Result<SlotAnswer, StoreError> {
        Ok(self.with(ask.key, |book, now| book.acquire(ask, now)))
    }

    async fn heartbeat(
        &self,
        leases: &[SlotLease<'_>],
        lives: Duration,
    ) -> Vec<Result<HeartbeatOutcome, StoreError>> {
        leases.iter().map(|at| Ok(self.with(at.key, |book, now| book.heartbeat(at, lives, now)))).collect()
    }

    async fn release(&self, leases: &[SlotLease<'_>]) -> Vec<Result<bool, StoreError>> {
        leases.iter().map(|at| Ok(self.with(at.key, |book, now| book.release(at, now)))).collect()
    }

    async fn occupancy(&self, keys: &[&str]) -> Result<Vec<Occupancy>, StoreError> {
        Ok(keys.iter().map(|key| self.with(key, |book, now| book.look(now))).collect())
    }
}
