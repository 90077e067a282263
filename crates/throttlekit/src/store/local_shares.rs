//! This process's share of each limit, counted while the store that keeps the limit is unavailable.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock, Weak};

use throttlekit_core::rate::{Limit, Need, Verdict};
use throttlekit_core::{Decision, Timestamp};

use super::KeySpace;
use crate::call::Part;
use crate::clock::{Clock, SystemClock};
use crate::hash::{KeyHash, SecretHash};
use crate::memory::{Capacity, HeldKey, Keys};
use crate::sync::Mutex;

/// Below this many limits there is no sweep for those that are gone.
const KNOWN_MIN: usize = 64;

/// One share for each limit, however many limiters of this process use it.
///
/// A store hands it out ([`Store::local_shares`](crate::store::Store::local_shares)): limiters that count together on
/// the store then also do so while it is unavailable, and admit one share instead of one each. A clone is the same
/// shares.
#[derive(Clone, Default)]
pub struct LocalShares(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// If several sets of numbers apply under one name, as with overrides, each has a share.
    by_space: HashMap<KeySpace, Vec<Weak<LocalShare>>>,
    /// Number of names from which on unused ones are swept.
    sweep_at: usize,
}

impl LocalShares {
    /// Returns the share of the limit under this name: the existing one, or else a new one.
    pub(crate) fn of(&self, space: &KeySpace, limit: Limit, nodes: NonZeroU32) -> Arc<LocalShare> {
        let mut known = self.0.lock();
        let same = |share: &Arc<LocalShare>| share.limit == limit && share.nodes == nodes;
        let there = known.by_space.get(space).and_then(|all| all.iter().filter_map(Weak::upgrade).find(same));
        there.unwrap_or_else(|| known.add(space, limit, nodes))
    }
}

impl Known {
    fn add(&mut self, space: &KeySpace, limit: Limit, nodes: NonZeroU32) -> Arc<LocalShare> {
        if self.by_space.len() >= self.sweep_at {
            self.sweep();
        }
        let share = Arc::new(LocalShare::new(limit, nodes));
        let all = self.by_space.entry(space.clone()).or_default();
        all.retain(|share| share.strong_count() > 0);
        all.push(Arc::downgrade(&share));
        share
    }

    /// Removes unused names. At most as many names are kept as twice those in use.
    fn sweep(&mut self) {
        self.by_space.retain(|_, all| all.iter().any(|share| share.strong_count() > 0));
        self.sweep_at = (2 * self.by_space.len()).max(KNOWN_MIN);
    }
}

impl std::fmt::Debug for LocalShares {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LocalShares")
    }
}

/// One node's share of one limit. Takes memory at the first outage only.
pub(crate) struct LocalShare {
    limit: Limit,
    nodes: NonZeroU32,
    /// `None` if the share is less than a unit.
    counted: OnceLock<Option<Counted>>,
}

struct Counted {
    keys: Keys,
    clock: SystemClock,
    hash: SecretHash,
}

impl LocalShare {
    pub(crate) fn new(limit: Limit, nodes: NonZeroU32) -> Self {
        Self { limit, nodes, counted: OnceLock::new() }
    }

    fn counted(&self) -> Option<&Counted> {
        self.counted.get_or_init(|| self.limit.share(self.nodes).map(Counted::new)).as_ref()
    }
}

impl Counted {
    fn new(share: Limit) -> Self {
        let clock = SystemClock::for_limits(&[share]);
        Self { keys: Keys::new(share, Capacity::default(), clock.now()), clock, hash: SecretHash::random() }
    }

    fn hold(&self, part: &Part<'_>) -> Held<'_> {
        let now = self.clock.now();
        Held { key: self.keys.hold(self.hash.fingerprint(part.key), now), cost: part.cost, now }
    }
}

struct Held<'a> {
    key: HeldKey<'a>,
    cost: u64,
    now: Timestamp,
}

/// Checks one request over all shares, and charges all or none. Returns `None` if one of them is less than a unit.
///
/// Keys are held in the order of the shares' addresses, not of the limits: two limiters may name the same limits in
/// another order, and must not deadlock.
pub(crate) fn check_shares(shares: &[Arc<LocalShare>], need: Need, parts: &[Part<'_>]) -> Option<Verdict> {
    let all: Vec<&Counted> = shares.iter().map(|share| share.counted()).collect::<Option<_>>()?;
    let mut places: Vec<usize> = (0..shares.len()).collect();
    places.sort_unstable_by_key(|&place| Arc::as_ptr(&shares[place]));
    let mut held: Vec<(usize, Held<'_>)> =
        places.into_iter().map(|place| (place, all[place].hold(&parts[place]))).collect();
    held.sort_unstable_by_key(|(place, _)| *place);

    let decisions: Vec<Decision> = held.iter().map(|(_, one)| one.key.decide(one.cost, one.now)).collect();
    let verdict = need.judge(&decisions);
    if verdict.decision.allowed {
        let passing = held.iter_mut().zip(&decisions).filter(|(_, decision)| decision.allowed);
        passing.for_each(|((_, one), _)| one.key.charge(one.cost, one.now));
    }
    Some(verdict)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use throttlekit_core::rate::shared::ScriptEncoding;

    use super::*;

    const NODES: NonZeroU32 = NonZeroU32::new(2).unwrap();

    fn limit(units: u64) -> Limit {
        Limit::fixed_window(units, Duration::from_secs(3_600)).unwrap()
    }

    fn space(policy: &str) -> KeySpace {
        KeySpace::new("tk", policy, "", &ScriptEncoding::of(&limit(1)).unwrap())
    }

    #[test]
    fn a_limit_has_one_share_and_another_limit_another() {
        let shares = LocalShares::default();
        let first = shares.of(&space("a"), limit(10), NODES);
        assert!(Arc::ptr_eq(&first, &shares.clone().of(&space("a"), limit(10), NODES)));
        let others = [
            shares.of(&space("b"), limit(10), NODES),
            shares.of(&space("a"), limit(9), NODES),
            shares.of(&space("a"), limit(10), NonZeroU32::MIN),
            LocalShares::default().of(&space("a"), limit(10), NODES),
        ];
        assert!(others.iter().all(|other| !Arc::ptr_eq(&first, other)));
    }

    #[test]
    fn unused_limits_are_forgotten() {
        let shares = LocalShares::default();
        let kept = shares.of(&space("kept"), limit(10), NODES);
        for turn in 0..10_000 {
            shares.of(&space(&turn.to_string()), limit(10), NODES);
        }
        assert!(shares.0.lock().by_space.len() <= KNOWN_MIN + 1);
        assert!(Arc::ptr_eq(&kept, &shares.of(&space("kept"), limit(10), NODES)));
    }

    /// Held in the order of the limits, each thread would soon hold what the other waits for.
    #[test]
    fn requests_over_the_same_shares_in_another_order_do_not_deadlock() {
        let shares = LocalShares::default();
        let [a, b] = ["a", "b"].map(|policy| shares.of(&space(policy), limit(100_000), NODES));
        let run = |shares: [Arc<LocalShare>; 2]| {
            let parts = [Part { key: b"k", cost: 1 }; 2];
            (0..100_000)
                .filter(|_| check_shares(&shares, Need::All, &parts).unwrap().decision.allowed)
                .count()
        };
        let passed: usize = std::thread::scope(|scope| {
            let all =
                [[a.clone(), b.clone()], [b.clone(), a.clone()]].map(|order| scope.spawn(move || run(order)));
            all.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(passed, 50_000, "one share of each, for both");
    }
}
