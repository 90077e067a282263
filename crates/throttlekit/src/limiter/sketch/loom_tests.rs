//! Limits in a sketch under loom: two threads, a window that ends, keys that replace each other. Not three: two that
//! wait for a third wake each other up without end.
//!
//! The sketches are tiny, so that every key shares its counters. CI stops at three preemptions;
//! `LOOM_MAX_PREEMPTIONS=20` runs more of them and takes long.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use throttlekit_core::overload::{
    CounterSlot, FloodWindow, Memory, Shape, SharedCounter, SketchLimit, SketchWindow,
};
use throttlekit_core::{Decision, Timestamp};

use super::guarded::{Counts, Guarded};
use super::shared::{Shared, SharedCount, SharedWord};

const MINUTE: Duration = Duration::from_secs(60);
const FIRST: Timestamp = Timestamp::from_millis(1_000);
const SECOND: Timestamp = Timestamp::from_millis(61_000);
const ALICE: u64 = 0xA11C_E000_0000_0001;
const BOB: u64 = 0xB0B0_0000_0000_0001;

fn limit(units: u64) -> SketchLimit {
    SketchLimit::new(units, MINUTE).unwrap()
}

fn sketch(units: u64) -> Guarded<SketchWindow<Shared>> {
    Guarded::new(SketchWindow::new(limit(units), Shape::new(1, 1).unwrap()))
}

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(model);
}

/// Sends each of these requests for one unit, on a thread of its own; returns the decisions in order.
fn race<R: Counts + Send + Sync + 'static>(
    keys: &Arc<Guarded<R>>,
    asks: &[(u64, Timestamp)],
) -> Vec<Decision> {
    let ask = |(hash, now): &(u64, Timestamp)| {
        let (keys, hash, now) = (Arc::clone(keys), *hash, *now);
        move || keys.check(hash, 1, now)
    };
    let threads: Vec<_> = asks[1..].iter().map(|asked| thread::spawn(ask(asked))).collect();
    let here = ask(&asks[0])();
    std::iter::once(here).chain(threads.into_iter().map(|thread| thread.join().unwrap())).collect()
}

fn admitted_in(answers: &[Decision], window: Timestamp) -> usize {
    let ends_at = limit(1).ends_at(window);
    answers.iter().filter(|answer| answer.allowed && answer.reset_at == ends_at).count()
}

#[test]
fn loom_two_threads_on_one_key_admit_exactly_the_limit() {
    explore(|| {
        let keys = Arc::new(sketch(2));
        assert!(keys.check(ALICE, 1, FIRST).allowed);
        let answers = race(&keys, &[(ALICE, FIRST); 2]);
        assert_eq!(admitted_in(&answers, FIRST), 1);
    });
}

#[test]
fn loom_a_window_that_ends_loses_no_count_and_hands_none_on() {
    explore(|| {
        let keys = Arc::new(sketch(1));
        assert!(keys.check(ALICE, 1, FIRST).allowed);
        // One request is in the old window, which is full, or late in the new one, where there is one unit for both.
        let answers = race(&keys, &[(ALICE, FIRST), (ALICE, SECOND)]);
        assert_eq!(admitted_in(&answers, FIRST), 0);
        assert_eq!(admitted_in(&answers, SECOND), 1);
    });
}

#[test]
fn loom_a_denial_of_the_old_window_is_not_given_in_the_new_one() {
    explore(|| {
        let keys = Arc::new(sketch(2));
        assert!(keys.check(ALICE, 2, FIRST).allowed);
        let answers = race(&keys, &[(ALICE, SECOND), (BOB, SECOND)]);
        assert_eq!(admitted_in(&answers, SECOND), 2, "{answers:?}");
    });
}

#[test]
fn loom_keys_that_displace_each_other_keep_their_counts() {
    explore(|| {
        let rule = FloodWindow::new(limit(2), Shape::new(1, 1).unwrap(), 1).unwrap();
        let keys = Arc::new(Guarded::new(rule));
        // Nine keys for the eight slots of the only bucket: Alice is in the sketch, and takes a slot.
        for key in 1..=8 {
            assert!(keys.check(key << 32, 1, FIRST).allowed);
        }
        let answers = race(&keys, &[(ALICE, FIRST), (1 << 32, FIRST)]);
        let again = [ALICE, 1 << 32].map(|key| (0..3).filter(|_| keys.check(key, 1, FIRST).allowed).count());
        assert!(usize::from(answers[0].allowed) + again[0] <= 2, "Alice has two");
        assert!(usize::from(answers[1].allowed) + again[1] <= 1, "the first key had one, displaced or not");
    });
}

/// Two keys of a sketch of two columns and two rows: each has a counter of its own in the first row, and they share the
/// one in the second. Which columns a key has is in the two highest bits of its hash.
const LEFT: u64 = 1;
const RIGHT: u64 = 1 << 63 | 1;

/// Charges one key a unit and the other two at once, then finds neither counted too low.
fn count_neighbors_at_once<M: Memory + Send + Sync + 'static>()
where
    M::Count: Send + Sync,
{
    explore(|| {
        let keys = Arc::new(Guarded::new(SketchWindow::<M>::new(limit(9), Shape::new(2, 2).unwrap())));
        assert!(keys.check(LEFT, 1, FIRST).allowed);
        let there = Arc::clone(&keys);
        let other = thread::spawn(move || there.check(RIGHT, 3, FIRST));
        assert!(keys.check(LEFT, 1, FIRST).allowed);
        assert!(other.join().unwrap().allowed);
        let left = [LEFT, RIGHT].map(|key| keys.peek(key, FIRST).remaining);
        assert!(left[0] <= 7 && left[1] <= 6, "counted too low: {left:?}");
    });
}

#[test]
fn loom_keys_that_share_a_counter_are_counted_at_once() {
    count_neighbors_at_once::<Shared>();
}

/// A seeded bug: the shared counters are stored, whatever others raised them to meanwhile.
#[derive(Debug)]
struct Stored;
#[derive(Debug)]
struct StoredCount(SharedCount);

impl Memory for Stored {
    type Count = StoredCount;
    type Word = SharedWord;
}

impl CounterSlot<u32> for StoredCount {
    fn new(value: u32) -> Self {
        Self(SharedCount::new(value))
    }
    fn get(&self) -> u32 {
        self.0.get()
    }
    fn set(&self, value: u32) {
        self.0.set(value);
    }
    fn add_one(&self) {
        self.0.add_one();
    }
}

impl SharedCounter for StoredCount {
    fn claim(&self) -> u32 {
        self.0.claim()
    }
    fn release(&self, value: u32) {
        self.0.release(value);
    }
    fn raise(&self, value: u32) {
        if self.get() < value {
            self.set(value);
        }
    }
}

#[test]
#[should_panic(expected = "counted too low")]
fn loom_finds_the_seeded_bug_of_shared_counters_that_are_stored() {
    count_neighbors_at_once::<Stored>();
}

/// The steps of `check`, without the claim.
fn unguarded(used: &AtomicU64, limit: u64) -> bool {
    let seen = used.load(Relaxed);
    if seen < limit {
        used.store(seen + 1, Relaxed);
    }
    seen < limit
}

#[test]
#[should_panic(expected = "more than the limit")]
fn loom_finds_the_seeded_bug_of_two_that_decide_on_one_count() {
    explore(|| {
        let used = Arc::new(AtomicU64::new(0));
        let there = Arc::clone(&used);
        let other = thread::spawn(move || unguarded(&there, 1));
        let here = unguarded(&used, 1);
        assert!(!(here && other.join().unwrap()), "more than the limit");
    });
}
