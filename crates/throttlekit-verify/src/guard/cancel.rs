//! Futures that are dropped after every number of polls, and work that panics: what is not given back.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use throttlekit::guard::{KeyedGuard, Priority};
use throttlekit::{Call, Concurrency, Guard};

use super::shipped::panic_with;
use throttlekit_conformance::Dice;

/// How many at a time, of a key and of all; and how many wait of each priority.
const LIMIT: u32 = 2;
const TOTAL: u32 = 3;
const DEPTH_MAX: u32 = 4;
/// Futures that are in flight at once.
const AT_ONCE: usize = 8;
/// A future is dropped after fewer polls than this, unless it is done before.
const POLLS: u64 = 8;
/// Keys that come and go; more than have a place.
const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];
const PLACES: usize = 3;

/// Work that acquires a slot, runs a while and ends somehow.
pub type Work = Pin<Box<dyn Future<Output = ()>>>;

/// What was done, and what is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// Futures that were begun.
    pub cycles: u64,
    /// How many were dropped after so many polls, and not done.
    pub dropped_after: [u64; POLLS as usize],
    /// Dropped while panicking.
    pub panicked: u64,
    /// Done.
    pub done: u64,
    /// Slots that nobody holds and nobody can have, and places in line of nobody.
    pub leaked: u64,
}

/// Begins so many futures, each of which waits for a slot of its key and for one of all, holds both over two awaits,
/// and is dropped after a number of polls that the seed gives. Counts what is missing when all are gone.
pub fn drop_everywhere(cycles: u64, seed: u64) -> Drops {
    drop_everywhere_with(cycles, seed, |guard, key, priority| Box::pin(work(guard, key, priority)))
}

/// The same with work of another kind: one that leaks must be found.
pub fn drop_everywhere_with(
    cycles: u64,
    seed: u64,
    make: impl Fn(KeyedGuard, &'static str, Priority) -> Work,
) -> Drops {
    let builder =
        Guard::builder(Concurrency::per_key(LIMIT).total(TOTAL)).priority_below(300).keys_max(PLACES);
    let guard = builder.queue_max(DEPTH_MAX).build_per_key().expect("a valid limit");
    let (mut dice, mut drops) = (Dice::new(seed), Drops::default());
    let mut running: Vec<Running> = Vec::new();
    while drops.cycles < cycles || !running.is_empty() {
        if drops.cycles < cycles && running.len() < AT_ONCE {
            let (key, priority) = (dice.pick(&KEYS), Priority::new(dice.below(2) as u8));
            running.push(Running {
                work: make(guard.clone(), key, priority),
                polls: 0,
                most: dice.below(POLLS),
            });
            drops.cycles += 1;
        }
        let at = dice.below(running.len() as u64) as usize;
        if running[at].polls >= running[at].most {
            drops.lose(running.swap_remove(at), dice.once_in(8));
        } else if running[at].poll() {
            running.swap_remove(at);
            drops.done += 1;
        }
    }
    drops.leaked = leaked(&guard);
    drops
}

async fn work(guard: KeyedGuard, key: &'static str, priority: Priority) {
    let Ok(permit) = guard.acquire(Call::by(key).priority(priority)).await else { return };
    yield_once().await;
    yield_once().await;
    permit.success();
}

/// Work whose slot is lost if it is dropped while it runs: a bug that must be found.
pub fn leaky(guard: KeyedGuard, key: &'static str, priority: Priority) -> Work {
    Box::pin(async move {
        let Ok(permit) = guard.acquire(Call::by(key).priority(priority)).await else { return };
        let permit = std::mem::ManuallyDrop::new(permit);
        yield_once().await;
        std::mem::ManuallyDrop::into_inner(permit).success();
    })
}

struct Running {
    work: Work,
    polls: u64,
    most: u64,
}

impl Running {
    /// Whether it is done.
    fn poll(&mut self) -> bool {
        self.polls += 1;
        self.work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }
}

impl Drops {
    fn lose(&mut self, running: Running, panics: bool) {
        self.dropped_after[running.polls as usize] += 1;
        self.panicked += u64::from(panics);
        if panics { panic_with(running.work) } else { drop(running.work) }
    }
}

/// Everything is taken once more: of each key as many as it may have, and of all. What cannot be had is missing.
fn leaked(guard: &KeyedGuard) -> u64 {
    let stats = guard.stats();
    let mut missing = u64::from(stats.in_flight + stats.waiting) + stats.overflowing as u64;
    for key in KEYS {
        let had: Vec<_> = std::iter::from_fn(|| guard.try_acquire(key).ok()).collect();
        missing += u64::from(LIMIT).saturating_sub(had.len() as u64);
        let refused = guard.try_acquire(key).map(drop);
        missing += u64::from(!refused.is_err_and(|denied| denied.decision.limit == u64::from(LIMIT)));
    }
    missing
}

/// Not done at the first poll.
fn yield_once() -> impl Future<Output = ()> {
    let mut polled = false;
    std::future::poll_fn(move |context| {
        if std::mem::replace(&mut polled, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
}
