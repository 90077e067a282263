//! The limits on the number of leases.
//!
//! A slot is taken before work is admitted, so that nothing is charged that cannot be held, however many requests are
//! concurrent.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::Arc;

use throttlekit::internals::Mutex;
use throttlekit::store::{Owner, SLOTS_MAX};

/// The leases that may be held, by all owners and by each.
pub(super) struct LeaseCapacity {
    counts: Arc<Mutex<Counts>>,
    all_max: u32,
    per_owner_max: u32,
}

#[derive(Default)]
struct Counts {
    /// Number of slots taken, with or without admitted work.
    taken: u32,
    owners: HashMap<Owner, u32>,
    /// Number of slots with admitted work.
    held: u64,
    policies: HashMap<Arc<str>, u64>,
}

/// Leases that clients hold at this instance, and the limits of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseUsage {
    /// Leases of all callers.
    pub held: u64,
    /// Maximum of that.
    pub max: u64,
    /// Leases of the caller that has most, with requests that are being admitted.
    pub caller_held: u64,
    /// Maximum of that, for each caller.
    pub caller_max: u64,
}

/// The limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// Leases of this owner.
    Owner,
    /// Leases of this server.
    Server,
}

/// Capacity for one lease, freed on drop.
pub(super) struct LeaseSlot {
    counts: Arc<Mutex<Counts>>,
    owner: Owner,
    /// Policy of the admitted work, once there is some.
    policy: Option<Arc<str>>,
}

impl LeaseCapacity {
    /// Creates capacity for `all_max` leases. A registry has at most `SLOTS_MAX`, so this has too.
    pub(super) fn new(all_max: u32, per_owner_max: u32) -> Self {
        Self { counts: Arc::default(), all_max: all_max.min(SLOTS_MAX), per_owner_max }
    }

    pub(super) fn take(&self, owner: Owner) -> Result<LeaseSlot, Full> {
        let mut counts = self.counts.lock();
        if counts.taken >= self.all_max {
            return Err(Full::Server);
        }
        if counts.owners.get(&owner).copied().unwrap_or(0) >= self.per_owner_max {
            return Err(Full::Owner);
        }
        counts.taken += 1;
        *counts.owners.entry(owner).or_default() += 1;
        Ok(LeaseSlot { counts: self.counts.clone(), owner, policy: None })
    }

    /// Returns the number of leases for work of a policy.
    pub(super) fn held(&self, policy: &str) -> u64 {
        self.counts.lock().policies.get(policy).copied().unwrap_or(0)
    }

    /// Returns the number of leases for work of all policies.
    pub(super) fn all_held(&self) -> u64 {
        self.counts.lock().held
    }

    /// Returns the leases and their limits. Looks at every owner: for scrapes, not for requests.
    pub(super) fn usage(&self) -> LeaseUsage {
        let counts = self.counts.lock();
        let most = counts.owners.values().max().copied().unwrap_or(0);
        LeaseUsage {
            held: counts.held,
            max: self.all_max.into(),
            caller_held: most.into(),
            caller_max: self.per_owner_max.into(),
        }
    }
}

impl LeaseSlot {
    /// Records that work of this policy was admitted and holds this slot.
    pub(super) fn held_for(&mut self, policy: &Arc<str>) {
        let mut counts = self.counts.lock();
        counts.held += 1;
        *counts.policies.entry(policy.clone()).or_default() += 1;
        drop(counts);
        self.policy = Some(policy.clone());
    }
}

impl Drop for LeaseSlot {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        counts.taken -= 1;
        one_less(&mut counts.owners, self.owner);
        if let Some(policy) = self.policy.take() {
            counts.held -= 1;
            one_less(&mut counts.policies, policy);
        }
    }
}

/// Decrements a count, and removes it at zero.
fn one_less<K: Eq + Hash, N: Copy + PartialOrd + From<u8> + std::ops::SubAssign>(
    counts: &mut HashMap<K, N>,
    key: K,
) {
    if let Entry::Occupied(mut count) = counts.entry(key) {
        if *count.get() <= N::from(1) {
            count.remove();
        } else {
            *count.get_mut() -= N::from(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_from_when_it_is_taken_until_it_is_dropped() {
        let (capacity, ada, eve) = (LeaseCapacity::new(3, 2), Owner(1), Owner(2));
        let (first, second) = (capacity.take(ada).ok().unwrap(), capacity.take(ada).ok().unwrap());
        assert_eq!(capacity.take(ada).err(), Some(Full::Owner));
        let third = capacity.take(eve).ok().unwrap();
        assert_eq!(capacity.take(eve).err(), Some(Full::Server));
        drop(first);
        let fourth = capacity.take(eve).ok().unwrap();
        drop((second, third, fourth));
        assert!(capacity.counts.lock().owners.is_empty(), "who holds nothing is forgotten");
        assert_eq!(capacity.counts.lock().taken, 0);
    }

    #[test]
    fn only_admitted_work_is_told_as_held() {
        let (capacity, policy): (_, Arc<str>) = (LeaseCapacity::new(9, 9), "p".into());
        let waits = capacity.take(Owner(1)).ok().unwrap();
        let mut held = capacity.take(Owner(1)).ok().unwrap();
        held.held_for(&policy);
        assert_eq!((capacity.held("p"), capacity.held("q"), capacity.all_held()), (1, 0, 1));
        let usage = LeaseUsage { held: 1, max: 9, caller_held: 2, caller_max: 9 };
        assert_eq!(capacity.usage(), usage);
        drop((waits, held));
        assert_eq!((capacity.held("p"), capacity.all_held()), (0, 0));
        assert!(capacity.counts.lock().policies.is_empty());
    }

    #[test]
    fn the_capacity_is_at_most_that_of_a_registry() {
        let capacity = LeaseCapacity::new(u32::MAX, u32::MAX);
        let slots: Vec<_> = (0..SLOTS_MAX).map(|_| capacity.take(Owner(1)).ok()).collect();
        assert!(slots.iter().all(Option::is_some));
        assert_eq!(capacity.take(Owner(2)).err(), Some(Full::Server));
    }
}
