//! Slots that are taken and given back at once: this house's guards, and those they are judged by.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use throttle_net::{AdaptiveLimiter, Aimd};
use throttlekit::store::MemoryStore;
use throttlekit::{Call, Concurrency, Guard, SharedGuard};
use tokio::runtime::Builder;
use tokio::sync::Semaphore;

use super::{Check, consumed};
use crate::workloads::Stream;

/// How many at a time: never reached, so that every ask is allowed.
const LIMIT: u32 = 200;
/// Where an adaptive ceiling may not go below.
const LEAST: u32 = 20;

struct Fixed(Guard);
struct OfClass(Guard);
struct Adaptive(Guard);
struct Fleet(SharedGuard);
struct Tokio(Semaphore);
struct Net(AdaptiveLimiter<Aimd>);
struct Floor(AtomicU64);

/// A guard that lets a fixed number in.
pub fn fixed() -> impl Check + 'static {
    Fixed(Guard::new(LIMIT).expect("a guard"))
}

/// The same for a priority that leaves some to another.
pub fn of_class() -> impl Check + 'static {
    OfClass(Guard::builder(LIMIT).priority_below(300).build().expect("a guard"))
}

/// A guard that infers how many.
pub fn adaptive() -> impl Check + 'static {
    Adaptive(Guard::new(Concurrency::adaptive(LEAST..=LIMIT)).expect("a guard"))
}

/// A node of a fleet, which has the whole ceiling. It sends a few heartbeats a second, on a thread of its own.
pub fn fleet() -> impl Check + 'static {
    let (told, heard) = mpsc::channel();
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let builder = SharedGuard::builder(MemoryStore::new(), "bench", LIMIT).divided();
            let _ = told.send(builder.lease(Duration::from_secs(1)).build().expect("a guard"));
            std::future::pending::<()>().await;
        });
    });
    let guard = heard.recv().expect("a guard");
    // A new membership record is quiet for as long as a grant lives.
    while guard.stats().limit < LIMIT {
        thread::sleep(Duration::from_millis(10));
    }
    Fleet(guard)
}

/// The anchor of fixed ones.
pub fn semaphore() -> impl Check + 'static {
    Tokio(Semaphore::new(LIMIT as usize))
}

/// The anchor of adaptive ones.
pub fn throttle_net() -> impl Check + 'static {
    Net(AdaptiveLimiter::builder().floor(LEAST).ceiling(LIMIT).initial(LEAST).build(Aimd::default()))
}

/// The least that a limit and a count in one word cost.
pub fn floor() -> impl Check + 'static {
    Floor(AtomicU64::new(u64::from(LIMIT) << 32))
}

impl Check for Fixed {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, _stream: &Stream, _at: usize, (): &mut ()) -> usize {
        consumed(self.0.try_acquire(())).map(drop).is_ok().into()
    }
}

impl Check for OfClass {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, _stream: &Stream, _at: usize, (): &mut ()) -> usize {
        consumed(self.0.try_acquire(Call::from(()).priority(1))).map(drop).is_ok().into()
    }
}

impl Check for Adaptive {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, _stream: &Stream, _at: usize, (): &mut ()) -> usize {
        consumed(self.0.try_acquire(())).map(|permit| permit.success()).is_ok().into()
    }
}

impl Check for Fleet {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, _stream: &Stream, _at: usize, (): &mut ()) -> usize {
        consumed(self.0.try_acquire(())).is_some_and(|permit| permit.map(drop).is_ok()).into()
    }
}

impl Check for Tokio {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, _stream: &Stream, _at: usize, (): &mut ()) -> usize {
        consumed(self.0.try_acquire()).map(drop).is_ok().into()
    }
}

impl Check for Net {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, _stream: &Stream, _at: usize, (): &mut ()) -> usize {
        consumed(self.0.try_acquire()).map(|permit| permit.success()).is_some().into()
    }
}

impl Check for Floor {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, _stream: &Stream, _at: usize, (): &mut ()) -> usize {
        let mut word = self.0.load(Ordering::Relaxed);
        while (word as u32) < (word >> 32) as u32 {
            match self.0.compare_exchange_weak(word, word + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    consumed(word);
                    self.0.fetch_sub(1, Ordering::AcqRel);
                    return 1;
                }
                Err(now) => word = now,
            }
        }
        0
    }
}
