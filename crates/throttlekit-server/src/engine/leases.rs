//! The lease registry of admitted work, with the owner of each lease.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::SharedPermit;
use throttlekit::clock::{Clock, WallClock};
use throttlekit::internals::{LeaseRegistry, Mutex};
use throttlekit::store::{HeartbeatOutcome, LeaseId, Owner, Slot};

use super::admitted_work::{AdmittedWork, NotDebited, RegisteredWork};
use super::held_leases::LeaseFilter;
use super::lease_capacity::{Full, LeaseCapacity, LeaseSlot, LeaseUsage};
use super::policy_call::Keys;
use super::reservations::Reserved as ReservedTokens;
use super::{Answered, Ended, HeartbeatResult, WorkLease};
use crate::principal::Principal;

/// Interval at which a drain checks for remaining leases.
const DRAIN_LOOK_EVERY: Duration = Duration::from_millis(20);

/// All leases of this instance.
pub(super) struct Leases {
    /// One registry for each lease duration of a policy. A file has few, and those of earlier files are removed once
    /// they are empty.
    registries: Mutex<Vec<(Duration, Arc<Registry>)>>,
    capacity: LeaseCapacity,
    leases_max: u32,
}

type Registry = LeaseRegistry<RegisteredWork>;

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
        let mut registries = self.registries.lock();
        if let Some((_, registry)) = registries.iter().find(|(known, _)| *known == lives) {
            return registry.clone();
        }
        // A registry that is about to be used is not empty.
        registries.retain(|(_, registry)| registry.held() > 0 || Arc::strong_count(registry) > 1);
        let registry = Arc::new(LeaseRegistry::new(self.leases_max, lives));
        registries.push((lives, registry.clone()));
        registry
    }

    fn all(&self) -> Vec<Arc<Registry>> {
        self.registries.lock().iter().map(|(_, registry)| registry.clone()).collect()
    }

    /// Ends a lease of this owner. Returns whether there was one.
    pub(super) fn release(&self, owner: Owner, lease: LeaseId, how: Ended) -> bool {
        let work = self.all().into_iter().find_map(|registry| registry.take(owner, lease));
        let held = work.is_some();
        if let Some(RegisteredWork(work)) = work {
            work.end_as(how);
        }
        held
    }

    pub(super) fn heartbeat(&self, owner: Owner, leases: &[LeaseId]) -> HeartbeatResult {
        let mut held: Vec<Option<Slot>> = vec![None; leases.len()];
        for registry in self.all() {
            for (known, heartbeat) in held.iter_mut().zip(registry.heartbeat(owner, leases)) {
                if let HeartbeatOutcome::Held(slot) = heartbeat {
                    *known = Some(slot);
                }
            }
        }
        let now = WallClock.now();
        let mut heartbeats = HeartbeatResult::default();
        for (lease, slot) in leases.iter().zip(held) {
            match slot.filter(|_| !self.ended_if_fenced(owner, *lease)) {
                Some(slot) => {
                    heartbeats.live.push(*lease);
                    let until = now + slot.lives;
                    heartbeats.next_deadline =
                        Some(heartbeats.next_deadline.map_or(until, |first| first.min(until)));
                }
                None => heartbeats.reclaimed.push(*lease),
            }
        }
        heartbeats
    }

    /// Ends a lease whose slot others may have by now, since this instance lost contact with the store: the client must
    /// stop.
    fn ended_if_fenced(&self, owner: Owner, lease: LeaseId) -> bool {
        let fenced =
            |registry: &Arc<Registry>| registry.find(owner, lease).is_some_and(|work| work.0.is_fenced());
        let Some(registry) = self.all().into_iter().find(fenced) else { return false };
        if let Some(RegisteredWork(work)) = registry.take(owner, lease) {
            work.end_unheard(false);
        }
        true
    }

    /// Returns the leases that a filter fits, whatever their handle.
    pub(super) fn matching(&self, filter: &LeaseFilter) -> Vec<(Owner, LeaseId, Arc<AdmittedWork>)> {
        let mut found = Vec::new();
        for registry in self.all() {
            registry.count(|RegisteredWork(work)| {
                let fits = filter.fits(&work.policy, &work.keys, work.principal.name());
                if let Some((owner, lease)) = work.lease.get().filter(|_| fits) {
                    found.push((*owner, *lease, work.clone()));
                }
                fits
            });
        }
        found
    }

    /// Ends a lease without a report of its client. Returns whether there was one.
    pub(super) fn end(&self, owner: Owner, lease: LeaseId) -> bool {
        let work = self.all().into_iter().find_map(|registry| registry.take(owner, lease));
        let held = work.is_some();
        if let Some(RegisteredWork(work)) = work {
            work.end_unheard(false);
        }
        held
    }

    /// Charges held work for what it produced: its estimate covers the debit first.
    pub(super) async fn debit(
        &self,
        owner: Owner,
        lease: LeaseId,
        tokens: u64,
    ) -> Result<Answered, NotDebited> {
        let work = self.all().into_iter().find_map(|registry| registry.find(owner, lease));
        work.ok_or(NotDebited::Unknown)?.0.debit(tokens).await
    }

    /// Returns the policy and the keys of the call that a lease of this owner belongs to.
    pub(super) fn of(&self, owner: Owner, lease: LeaseId) -> Option<(Arc<str>, Keys)> {
        let RegisteredWork(work) = self.all().into_iter().find_map(|registry| registry.find(owner, lease))?;
        Some((work.policy.clone(), work.keys.clone()))
    }

    /// Returns the number of leases of a policy.
    pub(super) fn held(&self, policy: &str) -> u64 {
        self.capacity.held(policy)
    }

    /// Returns the number of leases of all policies.
    pub(super) fn all_held(&self) -> u64 {
        self.capacity.all_held()
    }

    pub(super) fn usage(&self) -> LeaseUsage {
        self.capacity.usage()
    }

    /// Ends leases whose heartbeats stopped.
    pub(super) fn expire(&self) {
        self.all().iter().for_each(|registry| registry.expire());
    }

    /// Waits until no lease is left: leases are no longer renewed, so each ends when its client has to stop. What is
    /// left after `within` is left to its client, as if this process had been killed; returns the number of those.
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
    /// Holds a permit. Releases it if the registry is full, which has as many slots as there is capacity.
    pub(super) fn hold(
        self,
        who: &Principal,
        policy: &Arc<str>,
        keys: Keys,
        permit: SharedPermit,
        tokens: Option<ReservedTokens>,
    ) -> Result<WorkLease, Full> {
        let Self { owner, slot, registry } = self;
        let work = Arc::new(AdmittedWork::new(who, policy, keys, permit, tokens, slot));
        match registry.admit(owner, RegisteredWork(work.clone())) {
            Ok((id, Slot { lives, .. })) => {
                let _ = work.lease.set((owner, id));
                Ok(WorkLease { id, lives, until: WallClock.now() + lives })
            }
            Err(RegisteredWork(work)) => {
                work.end_as(Ended { ignored: true, actual_cost: Some(0), ..Ended::default() });
                Err(Full::Server)
            }
        }
    }
}
