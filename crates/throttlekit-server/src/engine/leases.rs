//! Work that clients hold something for: under leases, each bound to whom it was given.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::admission::SharedPermit;
use throttlekit::internals::Mutex;
use throttlekit::store::{Beat, LeaseId, Owner, Slot};
use throttlekit::{Clock, Decision, Guarantee, SlotDesk, WallClock};

use super::ask::Keys;
use super::room::{Full, Place, Room};
use super::work::{AtDesk, NotDebited, Work};
use super::{Beats, Ended, Held};

/// How often it is looked whether leases are left.
const DRAIN_LOOK_EVERY: Duration = Duration::from_millis(20);

/// All leases of this instance.
pub(super) struct Leases {
    /// One desk for each life that a policy gives its leases. Those of a file are few, and those of earlier files are gone
    /// when nothing is held there any more.
    desks: Mutex<Vec<(Duration, Arc<Desk>)>>,
    room: Room,
    leases_max: u32,
}

type Desk = SlotDesk<AtDesk>;

/// Room for a lease, and where it will be held.
pub(super) struct Reserved {
    owner: Owner,
    place: Place,
    desk: Arc<Desk>,
}

impl Leases {
    pub(super) fn new(leases_max: u32, leases_per_owner_max: u32) -> Self {
        Self { desks: Mutex::default(), room: Room::new(leases_max, leases_per_owner_max), leases_max }
    }

    /// Room for one more lease of this owner. To be had before its work is admitted.
    pub(super) fn reserve(&self, owner: Owner, lives: Duration) -> Result<Reserved, Full> {
        let place = self.room.take(owner)?;
        Ok(Reserved { owner, place, desk: self.desk(lives) })
    }

    fn desk(&self, lives: Duration) -> Arc<Desk> {
        let mut desks = self.desks.lock();
        if let Some((_, desk)) = desks.iter().find(|(known, _)| *known == lives) {
            return desk.clone();
        }
        // One that somebody is about to use is not empty.
        desks.retain(|(_, desk)| desk.held() > 0 || Arc::strong_count(desk) > 1);
        let desk = Arc::new(SlotDesk::new(self.leases_max, lives));
        desks.push((lives, desk.clone()));
        desk
    }

    fn all(&self) -> Vec<Arc<Desk>> {
        self.desks.lock().iter().map(|(_, desk)| desk.clone()).collect()
    }

    /// Ends a lease of this owner, and says whether there was one.
    pub(super) fn release(&self, owner: Owner, lease: LeaseId, how: Ended) -> bool {
        let work = self.all().into_iter().find_map(|desk| desk.take(owner, lease));
        let held = work.is_some();
        if let Some(AtDesk(work)) = work {
            work.end_as(how);
        }
        held
    }

    pub(super) fn heartbeat(&self, owner: Owner, leases: &[LeaseId]) -> Beats {
        let mut held: Vec<Option<Slot>> = vec![None; leases.len()];
        for desk in self.all() {
            for (known, beat) in held.iter_mut().zip(desk.heartbeat(owner, leases)) {
                if let Beat::Held(slot) = beat {
                    *known = Some(slot);
                }
            }
        }
        let now = WallClock.now();
        let mut beats = Beats::default();
        for (lease, slot) in leases.iter().zip(held) {
            match slot.filter(|_| !self.ended_if_fenced(owner, *lease)) {
                Some(slot) => {
                    beats.live.push(*lease);
                    let until = now + slot.lives;
                    beats.next_deadline = Some(beats.next_deadline.map_or(until, |first| first.min(until)));
                }
                None => beats.reclaimed.push(*lease),
            }
        }
        beats
    }

    /// Whether others may have the slot by now, since this instance lost touch with the store: then the client must stop.
    fn ended_if_fenced(&self, owner: Owner, lease: LeaseId) -> bool {
        let fenced = |desk: &Arc<Desk>| desk.find(owner, lease).is_some_and(|work| work.0.is_fenced());
        let Some(desk) = self.all().into_iter().find(fenced) else { return false };
        if let Some(AtDesk(work)) = desk.take(owner, lease) {
            work.end_unheard(false);
        }
        true
    }

    /// Charges held work for what it produced: its estimate covers it first.
    pub(super) async fn debit(
        &self,
        owner: Owner,
        lease: LeaseId,
        tokens: u64,
    ) -> Result<(Decision, Guarantee), NotDebited> {
        let work = self.all().into_iter().find_map(|desk| desk.find(owner, lease));
        work.ok_or(NotDebited::Unknown)?.0.debit(tokens).await
    }

    /// What a lease of this owner was given for: a policy and the keys of the call.
    pub(super) fn of(&self, owner: Owner, lease: LeaseId) -> Option<(Arc<str>, Keys)> {
        let AtDesk(work) = self.all().into_iter().find_map(|desk| desk.find(owner, lease))?;
        Some((work.policy.clone(), work.keys.clone()))
    }

    /// How many are held for a policy.
    pub(super) fn held(&self, policy: &str) -> u64 {
        self.room.held(policy)
    }

    /// How many are held, of all policies.
    pub(super) fn all_held(&self) -> u64 {
        self.room.all_held()
    }

    /// Ends what clients have fallen silent about.
    pub(super) fn expire(&self) {
        self.all().iter().for_each(|desk| desk.expire());
    }

    /// Waits until no lease is left: nobody can renew any more, so each ends when its client has to stop. Whatever is
    /// left after this long is left to its client, as if this process had been killed; returns how many those are.
    pub(super) async fn drain(&self, within: Duration) -> usize {
        let deadline = tokio::time::Instant::now() + within;
        loop {
            self.expire();
            let held: usize = self.all().iter().map(|desk| desk.held()).sum();
            if held == 0 || tokio::time::Instant::now() >= deadline {
                break;
            }
            tokio::time::sleep(DRAIN_LOOK_EVERY).await;
        }
        let left: Vec<_> = self.all().iter().flat_map(|desk| desk.drain()).collect();
        left.iter().for_each(|work| work.0.leave());
        left.len()
    }
}

impl Reserved {
    /// Holds a permit. Or it is given back, if the desk has no room: it has as much as there are places.
    pub(super) fn hold(self, policy: &Arc<str>, keys: Keys, permit: SharedPermit) -> Result<Held, Full> {
        let Self { owner, place, desk } = self;
        let work = Work::new(policy, keys, permit, place);
        match desk.admit(owner, AtDesk(Arc::new(work))) {
            Ok((id, Slot { lives, .. })) => Ok(Held { id, lives, until: WallClock.now() + lives }),
            Err(AtDesk(work)) => {
                work.end_as(Ended { ignored: true, actual_cost: Some(0), ..Ended::default() });
                Err(Full::Server)
            }
        }
    }
}
