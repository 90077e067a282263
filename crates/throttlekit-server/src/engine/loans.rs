//! What this instance has lent to clients, so that nobody hands back more than it was given.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use throttlekit::Timestamp;
use throttlekit::store::{Epoch, Owner, random_name};

/// How many loans are remembered. Of one that is not, what is left lapses with its window.
const LOANS_MAX: usize = 100_000;

/// Loans of which something may come back.
#[derive(Default)]
pub(super) struct Loans(Mutex<HashMap<u128, Loan>>);

pub(super) struct Loan {
    pub(super) owner: Owner,
    pub(super) policy: Box<str>,
    pub(super) key: Box<[u8]>,
    pub(super) epoch: Epoch,
    pub(super) units: u64,
    /// By the store's clock.
    pub(super) until: Timestamp,
}

impl Loans {
    /// Remembers a loan, and says under which name. Nothing, if there are too many.
    pub(super) fn note(&self, loan: Loan, now: Timestamp) -> Option<u128> {
        let mut loans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if loans.len() >= LOANS_MAX {
            loans.retain(|_, loan| loan.until > now);
        }
        if loans.len() >= LOANS_MAX {
            return None;
        }
        let name = random_name();
        loans.insert(name, loan);
        Some(name)
    }

    /// A loan that its owner returns something of: once.
    pub(super) fn take(&self, name: u128, owner: Owner, policy: &str, key: &[u8]) -> Option<Loan> {
        let mut loans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = |loan: &Loan| loan.owner == owner && &*loan.policy == policy && &*loan.key == key;
        loans.get(&name).is_some_and(mine).then(|| loans.remove(&name)).flatten()
    }
}
