//! Leases over permits in this process, for a server whose clients hold them.

use std::collections::HashMap;
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::{Ending, HeartbeatOutcome, LeaseId, Owner, Slot, SlotStep, SlotTable};

use crate::clock::{BootClock, Clock};
use crate::hash::random_u128;
use crate::sync::Mutex;

/// A permit that a lease registry holds for a client, and ends when the client is done, or gone.
pub trait Ends: Send {
    /// Ends the work with this outcome.
    fn end(self, how: Ending);
}

impl<F: FnOnce(Ending) + Send> Ends for F {
    fn end(self, how: Ending) {
        self(how);
    }
}

/// A lease registry: holds permits for clients that are not in this process, each under a lease.
///
/// A client that sends nothing for a lease's lifetime loses its permit, which then ends as [`Ending::Dropped`]. Leases
/// have random names and are bound to their owner: a client that does not know the name, or is another owner, can
/// neither renew nor release one, and gets the same response as if there were none.
///
/// Every call ends expired leases first; if none comes, the code that drives the registry calls
/// [`expire`](Self::expire) at [`next_expiry`](Self::next_expiry).
pub struct LeaseRegistry<T, C = BootClock> {
    leases: Mutex<Leases<T>>,
    clock: C,
    lives: Duration,
    leases_max: u32,
}

struct Leases<T> {
    table: SlotTable,
    permits: HashMap<(LeaseId, Owner), T>,
}

impl<T: Ends> LeaseRegistry<T> {
    /// Creates a registry of up to `leases_max` permits, each for the lifetime `lives` after its last heartbeat. It
    /// never holds more than [`SLOTS_MAX`](throttlekit_core::concurrency::SLOTS_MAX), whatever is requested here.
    pub fn new(leases_max: u32, lives: Duration) -> Self {
        Self::with_clock(leases_max, lives, BootClock)
    }
}

impl<T: Ends, C: Clock> LeaseRegistry<T, C> {
    /// The same with another clock.
    pub fn with_clock(leases_max: u32, lives: Duration, clock: C) -> Self {
        let leases = Leases { table: SlotTable::default(), permits: HashMap::new() };
        Self { leases: Mutex::new(leases), clock, lives, leases_max }
    }

    /// Makes the registry admit nothing for one lifetime: an earlier one with permits may have been lost, and their
    /// holders have stopped by then.
    pub fn recovering(self) -> Self {
        let until = self.clock.now() + self.lives;
        let leases = Leases { table: SlotTable::recovering(until), permits: HashMap::new() };
        Self { leases: Mutex::new(leases), ..self }
    }

    /// Holds a permit for an owner, and returns its lease and for how long. Returns the permit if there are too many or
    /// the registry is still recovering.
    pub fn admit(&self, owner: Owner, permit: T) -> Result<(LeaseId, Slot), T> {
        let lease = LeaseId(random_u128());
        self.with_leases(|leases, now| {
            match leases.table.acquire(lease, owner, self.leases_max, self.lives, now) {
                SlotStep::Admit { slot, .. } => {
                    leases.permits.insert((lease, owner), permit);
                    Ok((lease, slot))
                }
                SlotStep::Deny(_) => Err(permit),
            }
        })
    }

    /// Renews an owner's leases for their lifetime, and returns for each whether it is held.
    pub fn heartbeat(&self, owner: Owner, leases: &[LeaseId]) -> Vec<HeartbeatOutcome> {
        self.with_leases(|registry, now| registry.table.heartbeat(leases, owner, self.lives, now))
    }

    /// Ends the owner's work. Returns whether it held the lease; the second time it does not.
    pub fn release(&self, owner: Owner, lease: LeaseId, how: Ending) -> bool {
        self.take(owner, lease).map(|permit| permit.end(how)).is_some()
    }

    /// Ends the owner's lease and returns the permit, for the caller to end. Returns `None` if the owner does not hold
    /// the lease.
    pub fn take(&self, owner: Owner, lease: LeaseId) -> Option<T> {
        self.with_leases(|leases, now| {
            leases.table.release(lease, owner, now);
            leases.permits.remove(&(lease, owner))
        })
    }

    /// Returns the permit under an owner's lease, which stays as it is.
    pub fn find(&self, owner: Owner, lease: LeaseId) -> Option<T>
    where
        T: Clone,
    {
        self.with_leases(|leases, _| leases.permits.get(&(lease, owner)).cloned())
    }

    /// Takes all permits: the code that drives the registry is about to stop.
    pub fn drain(&self) -> Vec<T> {
        self.with_leases(|leases, now| {
            let all: Vec<_> = leases.permits.drain().collect();
            for ((lease, owner), _) in &all {
                leases.table.release(*lease, *owner, now);
            }
            all.into_iter().map(|(_, permit)| permit).collect()
        })
    }

    /// Ends the permits whose leases have expired.
    pub fn expire(&self) {
        self.with_leases(|_, _| ());
    }

    /// Runs `work` at one instant, after all leases that have expired by then are ended as dropped.
    fn with_leases<R>(&self, work: impl FnOnce(&mut Leases<T>, Timestamp) -> R) -> R {
        let mut leases = self.leases.lock();
        let now = self.clock.now();
        let over = leases.table.expire(now);
        let lost: Vec<T> = over.iter().filter_map(|lease| leases.permits.remove(lease)).collect();
        let answer = work(&mut leases, now);
        drop(leases);
        // Outside of the lock: a permit runs its own code when it ends.
        lost.into_iter().for_each(|permit| permit.end(Ending::Dropped));
        answer
    }

    /// Returns the time when the next lease expires without a heartbeat.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.leases.lock().table.next_expiry()
    }

    /// Returns the number of permits that are held.
    pub fn held(&self) -> usize {
        self.leases.lock().permits.len()
    }

    /// Returns the number of held permits that match. Scans all of them.
    pub fn count(&self, mut so: impl FnMut(&T) -> bool) -> usize {
        self.leases.lock().permits.values().filter(|permit| so(permit)).count()
    }
}

debug_fields!([T, C] LeaseRegistry<T, C>, |it| leases_max = it.leases_max, lives = it.lives);

#[cfg(test)]
mod tests;
