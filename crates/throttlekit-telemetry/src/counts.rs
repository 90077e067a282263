//! Counters of decisions: exact, also when events are lost.

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, OnceLock};

use throttlekit::hash::{KeyHash, TrustedHash};
use throttlekit::internals::Mutex;
use throttlekit::observe::Event;
use throttlekit::{Axis, Guarantee};

use crate::histogram::{Buckets, Histogram};

/// The name under which all policies beyond the maximum are counted.
pub const OTHER: &str = "other";

/// Every guarantee by its [label](Guarantee::label), in the order in which they are counted.
pub const GUARANTEES: [&str; 5] = ["exact", "bounded", "local", "open", "closed"];

/// Counters of the decisions of each policy, by outcome. Clones read the same counters.
///
/// A decision increments one counter, selected by its outcome and its guarantee, and one bucket of each histogram: of
/// its cost, and of its wait if it is denied. They are incremented on the calling thread, before the event is processed further; so counts are exact also when events are lost, never decrease, and
/// are consistent: every figure of a policy is a sum over the same counters, read once.
#[derive(Clone)]
pub struct Counts {
    shared: Arc<Shared>,
}

struct Shared {
    /// Policies by the hash of their names, with gaps: twice as many entries as the maximum number of policies.
    table: Box<[OnceLock<Counted>]>,
    policies_max: usize,
    full: AtomicBool,
    /// Number of policies with an entry. Locked only to add a new policy.
    known: Mutex<usize>,
    other: Counted,
    hash: TrustedHash,
    lost: AtomicU64,
    removed: AtomicU64,
}

/// Index of a policy's counters; [`Counts::name_of`] returns its name.
pub(crate) type PolicyAt = u16;
const AT_OTHER: PolicyAt = PolicyAt::MAX;

struct Counted {
    name: Box<str>,
    /// By outcome and guarantee.
    tally: [[AtomicU64; GUARANTEES.len()]; ENDS],
    costs: Buckets,
    waits: Buckets,
}

/// Number of outcomes: allowed, denied by one of the axes, by no axis.
const ENDS: usize = 2 + Axis::ALL.len();
const ALLOWED: usize = 0;
const BY_AXIS: usize = 1;
const BY_NO_AXIS: usize = BY_AXIS + Axis::ALL.len();

impl Counts {
    /// Maximum number of separately counted policies.
    pub const POLICIES_MAX: usize = 4_096;

    pub(crate) fn new(policies_max: usize) -> Self {
        let policies_max = policies_max.clamp(1, Self::POLICIES_MAX);
        let shared = Shared {
            table: (0..2 * policies_max).map(|_| OnceLock::new()).collect(),
            policies_max,
            full: AtomicBool::new(false),
            known: Mutex::new(0),
            other: Counted::new(OTHER),
            hash: TrustedHash::random(),
            lost: AtomicU64::new(0),
            removed: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the counts so far: each policy, and [`OTHER`] once there were more than the maximum. In no order.
    pub fn policies(&self) -> Vec<PolicyCounts> {
        let places = self.shared.table.iter().enumerate();
        let known = places.filter_map(|(place, counted)| Some(counted.get()?.read(place)));
        let other = self.shared.other.read(self.shared.table.len());
        known.chain(Some(other).filter(|other| other.decisions() > 0)).collect()
    }

    /// Returns the number of entries in which a policy may be counted, [`OTHER`] included: all
    /// [places](PolicyCounts::place) are below this. It never changes.
    pub fn places(&self) -> usize {
        self.shared.table.len() + 1
    }

    pub(crate) fn place_of(&self, at: PolicyAt) -> usize {
        usize::from(at).min(self.shared.table.len())
    }

    /// Returns the number of events that reached no subscriber and no top key: the queue was full, or its thread had
    /// ended.
    pub fn events_lost(&self) -> u64 {
        self.shared.lost.load(Relaxed)
    }

    /// Returns the number of subscribers removed after a panic.
    pub fn subscribers_removed(&self) -> u64 {
        self.shared.removed.load(Relaxed)
    }

    /// Counts a decision, and returns the index of its policy.
    #[inline]
    pub(crate) fn count(&self, event: &Event<'_>) -> PolicyAt {
        let (at, counted) = self.shared.policy(event.policy);
        counted.tally[end_of(event)][guarantee_at(event.guarantee)].fetch_add(1, Relaxed);
        counted.costs.count_cost(event.cost);
        if let (false, Some(wait)) = (event.decision.allowed, event.decision.retry_after.wait_ms()) {
            counted.waits.count_wait(wait);
        }
        at
    }

    pub(crate) fn name_of(&self, at: PolicyAt) -> &str {
        let counted = self.shared.table.get(usize::from(at)).and_then(OnceLock::get);
        counted.map_or(OTHER, |counted| &counted.name)
    }

    pub(crate) fn lose(&self, events: u64) {
        self.shared.lost.fetch_add(events, Relaxed);
    }

    pub(crate) fn strike_off(&self) {
        self.shared.removed.fetch_add(1, Relaxed);
    }
}

throttlekit::debug_fields!([] Counts, |it| policies_max = it.shared.policies_max, events_lost = it.events_lost());

impl Shared {
    /// Returns the counters of this policy.
    #[inline]
    fn policy(&self, name: &str) -> (PolicyAt, &Counted) {
        self.find(name).unwrap_or_else(|| self.unknown(name))
    }

    /// Finds the entry of a policy. At most half of the entries are used, so a gap is near.
    #[inline]
    fn find(&self, name: &str) -> Option<(PolicyAt, &Counted)> {
        let mut at = self.home(name);
        while let Some(counted) = self.table[at].get() {
            if *counted.name == *name {
                return Some((at as PolicyAt, counted));
            }
            at = (at + 1) % self.table.len();
        }
        None
    }

    fn home(&self, name: &str) -> usize {
        self.hash.fingerprint(name.as_bytes()) as usize % self.table.len()
    }

    /// Adds an entry for a new policy, or counts it with the others.
    #[cold]
    fn unknown(&self, name: &str) -> (PolicyAt, &Counted) {
        // A policy of that very name is counted with them, so that the name appears once.
        if name != OTHER && !self.full.load(Acquire) {
            self.enter(name);
        }
        // Also if the table is full: another thread may have added it to the last free entry since the lookup.
        self.find(name).unwrap_or((AT_OTHER, &self.other))
    }

    /// Uses the first gap from its hash index on. Gaps are filled only under the lock.
    fn enter(&self, name: &str) {
        let mut known = self.known.lock();
        if self.find(name).is_some() {
            return;
        }
        if *known == self.policies_max {
            self.full.store(true, Release);
            return;
        }
        let mut at = self.home(name);
        while self.table[at].get().is_some() {
            at = (at + 1) % self.table.len();
        }
        self.table[at].get_or_init(|| Counted::new(name));
        *known += 1;
    }
}

impl Counted {
    fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            tally: Default::default(),
            costs: Buckets::default(),
            waits: Buckets::default(),
        }
    }

    fn read(&self, place: usize) -> PolicyCounts {
        PolicyCounts {
            policy: (*self.name).into(),
            place,
            tally: self.tally.each_ref().map(|ends| ends.each_ref().map(|count| count.load(Relaxed))),
            costs: self.costs.costs(),
            waits: self.waits.waits(),
        }
    }
}

fn end_of(event: &Event<'_>) -> usize {
    match (event.decision.allowed, event.denied_by) {
        (true, _) => ALLOWED,
        (false, Some(axis)) => BY_AXIS + axis.index(),
        (false, None) => BY_NO_AXIS,
    }
}

const fn guarantee_at(guarantee: Guarantee) -> usize {
    match guarantee {
        Guarantee::Exact => 0,
        Guarantee::Bounded(_) => 1,
        Guarantee::Local => 2,
        Guarantee::Open => 3,
        Guarantee::Closed => 4,
    }
}

/// The decisions of one policy, read once: `allowed + denied = decisions`, and the denials by the axes and by no axis
/// add up to `denied`.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyCounts {
    policy: Box<str>,
    place: usize,
    tally: [[u64; GUARANTEES.len()]; ENDS],
    costs: Histogram,
    waits: Histogram,
}

impl PolicyCounts {
    /// Returns the policy's name.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// Returns the policy's index, as [`Telemetry::observe_at`](crate::Telemetry::observe_at) returned: for callers
    /// that keep further data of each policy in an array.
    pub fn place(&self) -> usize {
        self.place
    }

    /// Returns the number of decisions.
    pub fn decisions(&self) -> u64 {
        self.allowed() + self.denied()
    }

    /// Returns the number of allowed decisions.
    pub fn allowed(&self) -> u64 {
        self.ended(ALLOWED)
    }

    /// Returns the number of denied decisions.
    pub fn denied(&self) -> u64 {
        (BY_AXIS..ENDS).map(|end| self.ended(end)).sum()
    }

    /// Returns the number of denials by this axis.
    pub fn denied_by(&self, axis: Axis) -> u64 {
        self.ended(BY_AXIS + axis.index())
    }

    /// Returns the number of denials whose event names no axis.
    pub fn denied_by_no_axis(&self) -> u64 {
        self.ended(BY_NO_AXIS)
    }

    /// Returns the number of decisions with this guarantee. The number in [`Guarantee::Bounded`] is ignored.
    pub fn guaranteed(&self, guarantee: Guarantee) -> u64 {
        let at = guarantee_at(guarantee);
        self.tally.iter().map(|ends| ends[at]).sum()
    }

    /// Returns denials by axis, under the names that metrics use: the axes, and `none`. The price has a metric of its
    /// own.
    pub fn by_axis(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let axes = Axis::ALL.into_iter().filter(|axis| *axis != Axis::Price);
        let axes = axes.map(|axis| (axis.label(), self.denied_by(axis)));
        axes.chain([("none", self.denied_by_no_axis())])
    }

    /// Returns decisions by outcome, likewise.
    #[cfg(any(feature = "prometheus", feature = "opentelemetry"))]
    pub(crate) fn by_outcome(&self) -> [(&'static str, u64); 2] {
        [("allowed", self.allowed()), ("denied", self.denied())]
    }

    /// Returns decisions by guarantee, under the names that metrics use.
    pub fn by_guarantee(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let worth = |at: usize| self.tally.iter().map(|ends| ends[at]).sum();
        GUARANTEES.into_iter().enumerate().map(move |(at, label)| (label, worth(at)))
    }

    /// Returns the costs of calls, in units, allowed or denied.
    pub fn costs(&self) -> &Histogram {
        &self.costs
    }

    /// Returns the waits that denials reported, in seconds. A denial without a known wait is not in it.
    pub fn waits(&self) -> &Histogram {
        &self.waits
    }

    fn ended(&self, end: usize) -> u64 {
        self.tally[end].iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_events::event;

    #[test]
    fn labels_of_guarantees_are_in_the_order_of_their_counters() {
        let all =
            [Guarantee::Exact, Guarantee::Bounded(7), Guarantee::Local, Guarantee::Open, Guarantee::Closed];
        assert_eq!(all.map(|guarantee| GUARANTEES[guarantee_at(guarantee)]), all.map(Guarantee::label));
    }

    #[test]
    fn a_policy_beyond_the_cap_is_counted_with_the_others_and_one_at_it_is_not() {
        let counts = Counts::new(3);
        let names = ["a", OTHER, "b", "c", "d", "e", "a", "c"];
        let at = names.map(|policy| counts.count(&Event { policy, ..event() }));
        assert_eq!(at.map(|at| counts.name_of(at)), ["a", OTHER, "b", "c", OTHER, OTHER, "a", "c"]);
        let mut read: Vec<_> =
            counts.policies().iter().map(|policy| (policy.policy().to_owned(), policy.allowed())).collect();
        read.sort();
        let told = [("a", 2), ("b", 1), ("c", 2), (OTHER, 3)].map(|(name, count)| (name.to_owned(), count));
        assert_eq!(read, told);
        let place =
            |name| counts.policies().iter().find(|policy| policy.policy() == name).map(PolicyCounts::place);
        assert_eq!(
            at.map(|at| Some(counts.place_of(at))),
            names.map(|name| place(name).or(Some(counts.places() - 1)))
        );
    }

    #[test]
    fn threads_that_meet_a_new_policy_at_once_count_it_once_under_its_name() {
        for _ in 0..50 {
            let counts = Counts::new(8);
            std::thread::scope(|threads| {
                for _ in 0..4 {
                    threads.spawn(|| {
                        for policy in ["a", "b", "c", "d", "e", "f", "g", "h"] {
                            counts.count(&Event { policy, ..event() });
                        }
                    });
                }
            });
            let read = counts.policies();
            assert_eq!((read.len(), read.iter().map(PolicyCounts::decisions).max()), (8, Some(4)));
        }
    }

    #[test]
    fn each_end_has_its_counter() {
        let counts = Counts::new(1);
        let denied = crate::test_events::denied();
        counts.count(&event());
        for axis in Axis::ALL {
            counts.count(&Event { denied_by: Some(axis), ..denied });
        }
        counts.count(&Event { denied_by: None, guarantee: Guarantee::Closed, ..denied });
        let [read] = counts.policies().try_into().unwrap();
        assert_eq!((read.decisions(), read.allowed(), read.denied()), (7, 1, 6));
        assert_eq!(Axis::ALL.map(|axis| read.denied_by(axis)), [1; 5]);
        assert_eq!((read.denied_by_no_axis(), read.by_axis().count()), (1, 5));
        assert_eq!((read.guaranteed(Guarantee::Exact), read.guaranteed(Guarantee::Closed)), (6, 1));
    }
}
