//! Counts of requests and decisions by principal, for metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use throttlekit::internals::Mutex;
use throttlekit_telemetry::OTHER;

use super::CallerMap;
use super::who::Group;

/// Maximum number of principals with a label of their own: each is a few series for the lifetime of the process.
const NAMES_MAX: usize = 256;
/// The label of callers without a name.
const NOBODY: &str = "anonymous";

/// Counts of one principal. They only grow.
#[derive(Debug, Default)]
pub(super) struct Tally {
    requests: AtomicU64,
    decisions: AtomicU64,
    denied: AtomicU64,
    shed: AtomicU64,
}

/// The counts of one principal at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrincipalSeen {
    /// Its name; `anonymous` for those without one.
    pub name: String,
    /// Requests whose turn came.
    pub requests: u64,
    /// Decisions that they requested.
    pub decisions: u64,
    /// Decisions that denied.
    pub denied: u64,
    /// Requests shed.
    pub shed: u64,
    /// Thousandths of all decisions since the last read.
    pub share: u64,
}

impl Tally {
    /// Counts requests of one decision each.
    pub(super) fn begun(&self, requests: u64) {
        self.requests.fetch_add(requests, Relaxed);
        self.decisions.fetch_add(requests, Relaxed);
    }

    pub(super) fn weighed(&self, more: u64) {
        self.decisions.fetch_add(more, Relaxed);
    }

    pub(super) fn denied(&self, decisions: u64) {
        if decisions > 0 {
            self.denied.fetch_add(decisions, Relaxed);
        }
    }

    pub(super) fn shed(&self, requests: u64) {
        self.shed.fetch_add(requests, Relaxed);
    }
}

/// All counts, by name.
#[derive(Debug, Default)]
pub(super) struct Tallies(Mutex<CallerMap<Box<str>, Kept>>);

#[derive(Debug, Default)]
struct Kept {
    tally: Arc<Tally>,
    /// Decisions at the last read.
    read: u64,
}

impl Tallies {
    pub(super) fn of(&self, group: &Group) -> Arc<Tally> {
        let name = match group {
            Group::Named(principal) => principal.name(),
            Group::At(_) => NOBODY,
        };
        let mut all = self.0.lock();
        if let Some(kept) = all.get(name) {
            return kept.tally.clone();
        }
        let name = if all.len() < NAMES_MAX { name } else { OTHER };
        all.entry(name.into()).or_default().tally.clone()
    }

    pub(super) fn seen(&self) -> Vec<PrincipalSeen> {
        let mut all = self.0.lock();
        let read = |count: &AtomicU64| count.load(Relaxed);
        let mut seen: Vec<_> = all
            .iter_mut()
            .map(|(name, kept)| {
                let decisions = read(&kept.tally.decisions);
                let since = decisions - std::mem::replace(&mut kept.read, decisions);
                let Tally { requests, denied, shed, .. } = &*kept.tally;
                let (requests, denied, shed) = (read(requests), read(denied), read(shed));
                PrincipalSeen { name: name.to_string(), requests, decisions, denied, shed, share: since }
            })
            .collect();
        let all: u64 = seen.iter().map(|one| one.share).sum();
        seen.iter_mut().for_each(|one| one.share = one.share * 1_000 / all.max(1));
        seen.sort_by(|a, b| a.name.cmp(&b.name));
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Principal;

    #[test]
    fn names_are_bounded_and_shares_are_of_what_was_decided_since() {
        let tallies = Tallies::default();
        for name in 0..1_000 {
            tallies.of(&Group::Named(Principal::named(&name.to_string()))).begun(1);
        }
        let seen = tallies.seen();
        assert_eq!(seen.len(), NAMES_MAX + 1);
        assert_eq!(seen.iter().map(|one| one.requests).sum::<u64>(), 1_000);
        assert!(seen.iter().any(|one| one.name == OTHER && one.requests > 700));
        let one = tallies.of(&Group::Named(Principal::named("1")));
        one.begun(1);
        one.weighed(3);
        tallies.of(&Group::Named(Principal::named("2"))).begun(1);
        let share = |name: &str, seen: &[PrincipalSeen]| {
            seen.iter().find(|one| one.name == name).map(|one| one.share)
        };
        let seen = tallies.seen();
        assert_eq!([share("1", &seen), share("2", &seen)], [Some(800), Some(200)]);
    }
}
