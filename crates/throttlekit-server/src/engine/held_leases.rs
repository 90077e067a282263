//! Leases that clients hold at this server, as operators see them.

use std::time::Duration;

use sha2::{Digest, Sha256};
use throttlekit::clock::{BootClock, Clock};
use throttlekit::store::LeaseId;

use super::Engine;
use super::policy_call::Keys;
use crate::background;

/// Leases that are listed or ended. What is empty matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseFilter {
    /// The policy.
    pub policy: String,
    /// The first key of the call.
    pub key: String,
    /// Name of the principal that holds it.
    pub principal: String,
    /// Its handle.
    pub handle: String,
}

/// A lease that a client holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLease {
    /// Its handle. Its ID is a secret of its holder.
    pub handle: String,
    /// The policy.
    pub policy: String,
    /// The keys of the call.
    pub keys: Keys,
    /// Name of the principal that holds it; empty if anonymous.
    pub principal: String,
    /// Time since its work was admitted.
    pub held_for: Duration,
}

impl LeaseFilter {
    pub(super) fn fits(&self, policy: &str, keys: &[Box<[u8]>], principal: &str) -> bool {
        let fits = |wanted: &str, found: &[u8]| wanted.is_empty() || wanted.as_bytes() == found;
        self.policy == policy
            && fits(&self.key, keys.first().map_or(&[][..], AsRef::as_ref))
            && fits(&self.principal, principal.as_bytes())
    }
}

/// Returns the handle of a lease.
fn handle(lease: LeaseId) -> String {
    let digest =
        Sha256::new().chain_update("throttlekit lease").chain_update(lease.0.to_be_bytes()).finalize();
    digest[..12].iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Engine {
    /// Returns leases in the order of their handles, after the handle `after`.
    pub async fn held_leases(&self, filter: LeaseFilter, after: String, max: usize) -> Vec<HeldLease> {
        let engine = self.clone();
        // A server may hold a hundred thousand.
        let listed = background::run(move || {
            let now = BootClock.now();
            let found =
                engine.shared.leases.matching(&filter).into_iter().map(|(_, lease, work)| HeldLease {
                    handle: handle(lease),
                    policy: work.policy.to_string(),
                    keys: work.keys.clone(),
                    principal: work.principal.name().to_owned(),
                    held_for: now.since(work.since),
                });
            let wanted = |held: &HeldLease| filter.handle.is_empty() || held.handle == filter.handle;
            let mut listed: Vec<_> = found.filter(|held| held.handle > after && wanted(held)).collect();
            listed.sort_unstable_by(|one, other| one.handle.cmp(&other.handle));
            listed.truncate(max);
            listed
        });
        listed.await.unwrap_or_default()
    }

    /// Ends up to `max` leases, as if their clients had stopped without a report. Returns how many, and whether there
    /// are more.
    pub async fn release_held(&self, filter: LeaseFilter, max: usize) -> (usize, bool) {
        let engine = self.clone();
        let released = background::run(move || {
            let found = engine.shared.leases.matching(&filter);
            let mut wanted =
                found.into_iter().filter(|one| filter.handle.is_empty() || handle(one.1) == filter.handle);
            let ended = wanted.by_ref().take(max);
            let ended = ended.filter(|(owner, lease, _)| engine.shared.leases.end(*owner, *lease)).count();
            (ended, wanted.next().is_some())
        });
        released.await.unwrap_or_default()
    }
}
