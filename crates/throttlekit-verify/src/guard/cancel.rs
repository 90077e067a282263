//! Futures that are dropped after any number of polls, and work that panics: checks for leaked slots.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use throttlekit::guard::{KeyedGuard, Priority};
use throttlekit::{Call, Concurrency, Guard};

use super::shipped::panic_with;
use throttlekit_conformance::Dice;

/// The concurrency of a key and of all, and the queue size of each priority.
const LIMIT: u32 = 2;
const TOTAL: u32 = 3;
const DEPTH_MAX: u32 = 4;
/// Concurrent futures.
const AT_ONCE: usize = 8;
/// A future is dropped after fewer polls than this, unless it is done before.
const POLLS: u64 = 8;
/// Keys in use; more than have a slot.
const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];
const PLACES: usize = 3;

/// Work that acquires a slot, runs for a while and ends in some way.
pub type Work = Pin<Box<dyn Future<Output = ()>>>;

/// Counts of futures, and of leaked slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// Futures that were started.
    pub cycles: u64,
    /// The number of futures dropped unfinished, by their number of polls.
    pub dropped_after: [u64; POLLS as usize],
    /// Futures dropped while panicking.
    pub panicked: u64,
    /// Futures that finished.
    pub done: u64,
    /// Slots that are neither held nor free, and queue entries without a caller.
    pub leaked: u64,
}

/// Starts `cycles` futures, each of which waits for a slot of its key and for one of all, holds both over two
/// awaits, and is dropped after a number of polls given by the seed. Counts leaked slots when all are gone.
pub fn drop_everywhere(cycles: u64, seed: u64) -> Drops {
    drop_everywhere_with(cycles, seed, |guard, key, priority| Box::pin(work(guard, key, priority)))
}

/// Does the same with another kind of work: one that leaks must be found.
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

/// Work that loses its slot if it is dropped while it runs: a bug that must be found.
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
    /// Polls the future. Returns `true` if it is done.
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

/// Acquires everything once more: all slots of each key, and all shared ones. Counts those that cannot be
/// acquired.
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

/// Returns a future that is pending at the first poll.
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
