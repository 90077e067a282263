//! The leases of admitted work, each bound to its owner.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use throttlekit::admission::SharedPermit;
use throttlekit::store::{Beat, LeaseId, Owner, Slot};
use throttlekit::{Clock, Decision, Guarantee, SlotDesk, WallClock};

use super::admitted_work::{AdmittedWork, NotDebited, RegisteredWork};
use super::ask::Keys;
use super::lease_capacity::{Full, LeaseCapacity, LeaseSlot};
use super::{Beats, Ended, WorkLease};

/// How often it is looked whether leases are left.
const DRAIN_LOOK_EVERY: Duration = Duration::from_millis(20);

/// All leases of this instance.
pub(super) struct Leases {
    /// One registry for each duration that a policy gives its leases. Those of a file are few, and those of earlier files
    /// are gone when nothing is held there any more.
    registries: Mutex<Vec<(Duration, Arc<Registry>)>>,
    capacity: LeaseCapacity,
    leases_max: u32,
}

type Registry = SlotDesk<RegisteredWork>;

/// Capacity for a lease, and the registry that will hold it.
pub(super) struct Reserved {
    owner: Owner,
    slot: LeaseSlot,
    registry: Arc<Registry>,
}

impl Leases {
    pub(super) fn new(leases_max: u32, leases_per_owner_max: u32) -> Self {
        Self {
            registries: Mutex::default(),
            capacity: LeaseCapacity::new(leases_max, leases_per_owner_max),
            leases_max,
        }
    }

    /// Takes capacity for one more lease of this owner, before its work is admitted.
    pub(super) fn reserve(&self, owner: Owner, lives: Duration) -> Result<Reserved, Full> {
        let slot = self.capacity.take(owner)?;
        Ok(Reserved { owner, slot, registry: self.registry(lives) })
    }

    fn registry(&self, lives: Duration) -> Arc<Registry> {
        let mut registries = self.lock();
        if let Some((_, registry)) = registries.iter().find(|(known, _)| *known == lives) {
            return registry.clone();
        }
        // One that somebody is about to use is not empty.
        registries.retain(|(_, registry)| registry.held() > 0 || Arc::strong_count(registry) > 1);
        let registry = Arc::new(SlotDesk::new(self.leases_max, lives));
        registries.push((lives, registry.clone()));
        registry
    }

    fn all(&self) -> Vec<Arc<Registry>> {
        self.lock().iter().map(|(_, registry)| registry.clone()).collect()
    }

    /// Nothing under this lock runs code of others, so a panic leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, Vec<(Duration, Arc<Registry>)>> {
        self.registries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a lease of this owner, and says whether there was one.
    pub(super) fn release(&self, owner: Owner, lease: LeaseId, how: Ended) -> bool {
        let work = self.all().into_iter().find_map(|registry| registry.take(owner, lease));
        let held = work.is_some();
        if let Some(RegisteredWork(work)) = work {
            work.end_as(how);
        }
        held
    }

    pub(super) fn heartbeat(&self, owner: Owner, leases: &[LeaseId]) -> Beats {
        let mut held: Vec<Option<Slot>> = vec![None; leases.len()];
        for registry in self.all() {
            for (known, beat) in held.iter_mut().zip(registry.heartbeat(owner, leases)) {
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
        let fenced =
            |registry: &Arc<Registry>| registry.find(owner, lease).is_some_and(|work| work.0.is_fenced());
        let Some(registry) = self.all().into_iter().find(fenced) else { return false };
        if let Some(RegisteredWork(work)) = registry.take(owner, lease) {
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
        let work = self.all().into_iter().find_map(|registry| registry.find(owner, lease));
        work.ok_or(NotDebited::Unknown)?.0.debit(tokens).await
    }

    /// What a lease of this owner was given for: a policy and the keys of the call.
    pub(super) fn of(&self, owner: Owner, lease: LeaseId) -> Option<(Arc<str>, Keys)> {
        let RegisteredWork(work) = self.all().into_iter().find_map(|registry| registry.find(owner, lease))?;
        Some((work.policy.clone(), work.keys.clone()))
    }

    /// How many are held for a policy.
    pub(super) fn held(&self, policy: &str) -> u64 {
        self.capacity.held(policy)
    }

    /// How many are held, of all policies.
    pub(super) fn all_held(&self) -> u64 {
        self.capacity.all_held()
    }

    /// Ends what clients have fallen silent about.
    pub(super) fn expire(&self) {
        self.all().iter().for_each(|registry| registry.expire());
    }

    /// Waits until no lease is left: nobody can renew any more, so each ends when its client has to stop. Whatever is
    /// left after this long is left to its client, as if this process had been killed; returns how many those are.
    pub(super) async fn drain(&self, within: Duration) -> usize {
        let deadline = tokio::time::Instant::now() + within;
        loop {
            self.expire();
            let held: usize = self.all().iter().map(|registry| registry.held()).sum();
            if held == 0 || tokio::time::Instant::now() >= deadline {
                break;
            }
            tokio::time::sleep(DRAIN_LOOK_EVERY).await;
        }
        let left: Vec<_> = self.all().iter().flat_map(|registry| registry.drain()).collect();
        left.iter().for_each(|work| work.0.leave());
        left.len()
    }
}

impl Reserved {
    /// Holds a permit. It is given back if the registry is full, which has as many slots as there is capacity.
    pub(super) fn hold(self, policy: &Arc<str>, keys: Keys, permit: SharedPermit) -> Result<WorkLease, Full> {
        let Self { owner, slot, registry } = self;
        let work = AdmittedWork::new(policy, keys, permit, slot);
        match registry.admit(owner, RegisteredWork(Arc::new(work))) {
            Ok((id, Slot { lives, .. })) => Ok(WorkLease { id, lives, until: WallClock.now() + lives }),
            Err(RegisteredWork(work)) => {
                work.end_as(Ended { ignored: true, actual_cost: Some(0), ..Ended::default() });
                Err(Full::Server)
            }
        }
    }
}
