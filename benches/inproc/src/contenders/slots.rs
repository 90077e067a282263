//! Slots that are acquired and released at once: our guards, and their anchors.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use throttle_net::{AdaptiveLimiter, Aimd};
use throttlekit::store::MemoryStore;
use throttlekit::{Call, Concurrency, Guard, SharedGuard};
use tokio::runtime::Builder;
use tokio::sync::Semaphore;

use super::{Check, consumed};
use crate::workloads::Stream;

/// The concurrency limit: never reached, so that every request is allowed.
const LIMIT: u32 = 200;
/// The minimum of an adaptive ceiling.
const LEAST: u32 = 20;

struct Fixed(Guard);
struct OfClass(Guard);
struct Adaptive(Guard);
struct Fleet(SharedGuard);
struct Tokio(Semaphore);
struct Net(AdaptiveLimiter<Aimd>);
struct Congestion(congestion_limiter::limiter::DefaultLimiter<congestion_limiter::limits::Aimd>);
struct Floor(AtomicU64);

/// A guard with a fixed limit.
pub fn fixed() -> impl Check + 'static {
    Fixed(Guard::new(LIMIT).expect("a guard"))
}

/// The same for a priority that leaves some to another.
pub fn of_class() -> impl Check + 'static {
    OfClass(Guard::builder(LIMIT).priority_below(300).build().expect("a guard"))
}

/// A guard with an inferred limit.
pub fn adaptive() -> impl Check + 'static {
    Adaptive(Guard::new(Concurrency::adaptive(LEAST..=LIMIT)).expect("a guard"))
}

/// A node of a divided guard, which has the whole ceiling. It sends a few heartbeats per second, on a thread
/// of its own.
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
    // A new membership record is quiet for the lifetime of a grant.
    while guard.stats().limit < LIMIT {
        thread::sleep(Duration::from_millis(10));
    }
    Fleet(guard)
}

/// The anchor of fixed limits.
pub fn semaphore() -> impl Check + 'static {
    Tokio(Semaphore::new(LIMIT as usize))
}

/// The anchor of adaptive limits.
pub fn throttle_net() -> impl Check + 'static {
    Net(AdaptiveLimiter::builder().floor(LEAST).ceiling(LIMIT).initial(LEAST).build(Aimd::default()))
}

/// Another one that adapts, over a semaphore.
pub fn congestion() -> impl Check + 'static {
    use congestion_limiter::{limiter::DefaultLimiter, limits::Aimd};
    let (least, most) = (LEAST as usize, LIMIT as usize);
    Congestion(DefaultLimiter::new(Aimd::new(least, least..=most)))
}

/// The minimum cost of a limit and a count in one word.
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

impl Check for Congestion {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, _stream: &Stream, _at: usize, (): &mut ()) -> usize {
        use congestion_limiter::limiter::{Limiter, Outcome};
        let held = pin!(async {
            let token = consumed(self.0.try_acquire().await)?;
            Some(self.0.release(token, Some(Outcome::Success)).await)
        });
        matches!(held.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Some(_))).into()
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
