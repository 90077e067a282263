//! Units that this instance has leased to clients, so that no client returns more than it was granted.

use std::collections::HashMap;
use std::time::Duration;

use throttlekit::internals::Mutex;
use throttlekit::rate::Timestamp;
use throttlekit::store::{Epoch, Owner, random_name};

use super::policy_call::Keys;

/// Maximum number of leases that are remembered. Unspent units of others expire with their window.
const LOANS_MAX: usize = 100_000;
/// Maximum number of leases of one owner.
const LOANS_PER_OWNER_MAX: usize = 10_000;
/// Interval at which expired leases are removed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Leases of units that may be returned.
#[derive(Default)]
pub(super) struct UnitLeases(Mutex<Registry>);

#[derive(Default)]
struct Registry {
    leases: HashMap<u128, UnitLease>,
    held: HashMap<Owner, usize>,
    /// Time at which expired leases were last removed.
    looked_at: Timestamp,
}

impl Registry {
    fn is_full_for(&self, owner: Owner) -> bool {
        let held = self.held.get(&owner).copied().unwrap_or_default();
        self.leases.len() >= LOANS_MAX || held >= LOANS_PER_OWNER_MAX
    }

    fn forget(&mut self, name: u128) -> Option<UnitLease> {
        let loan = self.leases.remove(&name)?;
        if let Some(held) = self.held.get_mut(&loan.owner) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&loan.owner);
            }
        }
        Some(loan)
    }
}

pub(super) struct UnitLease {
    pub(super) owner: Owner,
    pub(super) policy: Box<str>,
    pub(super) keys: Keys,
    pub(super) epoch: Epoch,
    pub(super) units: u64,
    /// Expiry by the store's clock.
    pub(super) until: Timestamp,
}

impl UnitLeases {
    /// Stores a loan, and returns its ID. `None` if there are too many.
    pub(super) fn note(&self, loan: UnitLease, now: Timestamp) -> Option<u128> {
        let mut registry = self.0.lock();
        if registry.is_full_for(loan.owner) && now.since(registry.looked_at) >= LOOK_EVERY {
            registry.looked_at = now;
            let over: Vec<u128> =
                registry.leases.iter().filter(|(_, loan)| loan.until <= now).map(|(name, _)| *name).collect();
            over.into_iter().for_each(|name| drop(registry.forget(name)));
        }
        if registry.is_full_for(loan.owner) {
            return None;
        }
        let name = random_name();
        *registry.held.entry(loan.owner).or_default() += 1;
        registry.leases.insert(name, loan);
        Some(name)
    }

    /// Takes a loan of which its owner returns units: once.
    pub(super) fn take(&self, name: u128, owner: Owner, policy: &str, keys: &[&[u8]]) -> Option<UnitLease> {
        let mut registry = self.0.lock();
        let same = |loan: &UnitLease| loan.keys.iter().map(AsRef::as_ref).eq(keys.iter().copied());
        let mine = |loan: &UnitLease| loan.owner == owner && &*loan.policy == policy && same(loan);
        registry.leases.get(&name).is_some_and(mine).then(|| registry.forget(name)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loan(owner: u128, until: u64) -> UnitLease {
        let (policy, keys) = ("p".into(), [b"k"[..].into()].into());
        UnitLease {
            owner: Owner(owner),
            policy,
            keys,
            epoch: Epoch(7),
            units: 5,
            until: Timestamp::from_millis(until),
        }
    }

    #[test]
    fn a_loan_is_its_owners_and_is_taken_once() {
        let (leases, now) = (UnitLeases::default(), Timestamp::from_millis(1));
        let name = leases.note(loan(1, 9), now).unwrap();
        assert!(leases.take(name, Owner(2), "p", &[b"k"]).is_none(), "another's");
        assert!(leases.take(name, Owner(1), "q", &[b"k"]).is_none(), "of another policy");
        assert!(leases.take(name, Owner(1), "p", &[b"x"]).is_none(), "of another key");
        assert_eq!(leases.take(name, Owner(1), "p", &[b"k"]).unwrap().units, 5);
        assert!(leases.take(name, Owner(1), "p", &[b"k"]).is_none(), "twice");
    }

    #[test]
    fn one_owner_does_not_take_all_the_room() {
        let (leases, now) = (UnitLeases::default(), Timestamp::from_millis(1));
        let noted = (0..LOANS_PER_OWNER_MAX + 5).filter(|_| leases.note(loan(1, 9), now).is_some()).count();
        assert_eq!(noted, LOANS_PER_OWNER_MAX);
        assert!(leases.note(loan(2, 9), now).is_some());
    }

    #[test]
    fn loans_that_are_over_make_room_for_their_owner() {
        let (leases, now) = (UnitLeases::default(), Timestamp::from_millis(1));
        assert!((0..LOANS_PER_OWNER_MAX).all(|_| leases.note(loan(1, 2_000), now).is_some()));
        assert!(leases.note(loan(1, 9_000), Timestamp::from_millis(1_999)).is_none(), "one tick before");
        assert!(leases.note(loan(1, 9_000), Timestamp::from_millis(2_999)).is_some(), "at the next look");
    }
}
