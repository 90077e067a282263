//! Further limiters of the ecosystem: `gcra`, `throttlecrab` as a library, `ratelimit` and `leaky-bucket`.

use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use throttlecrab::{PeriodicStore, RateLimiter as Throttlecrab};

use super::{BURST, Check, KEYS_MAX, UNIT_EVERY, consumed};
use crate::workloads::Stream;

struct Gcra {
    limiter: gcra::RateLimiter<String>,
    rate: gcra::RateLimit,
}
/// Its check takes `&mut self`: a mutex makes it usable from several requests, as in its server.
struct Crab(Mutex<Throttlecrab<PeriodicStore>>);
struct Ratelimit(ratelimit::Ratelimiter);
struct LeakyBucket(leaky_bucket::RateLimiter);

/// Keys over a `DashMap` with a fast hash; each check copies its key.
pub fn gcra() -> impl Check + 'static {
    let rate = gcra::RateLimit::new(BURST, UNIT_EVERY * BURST);
    Gcra { limiter: gcra::RateLimiter::with_clock(gcra::clock::InstantClock), rate }
}

/// Keys over a `HashMap` with a fast hash, under a lock.
pub fn throttlecrab() -> impl Check + 'static {
    Crab(Mutex::new(Throttlecrab::new(PeriodicStore::with_capacity(KEYS_MAX))))
}

/// One state: a token bucket in atomics.
pub fn ratelimit() -> impl Check + 'static {
    let builder = ratelimit::Ratelimiter::builder(1).period(UNIT_EVERY);
    let builder = builder.max_tokens(u64::from(BURST)).initial_available(u64::from(BURST));
    Ratelimit(builder.build().expect("a limiter"))
}

/// One state: a token bucket under a lock.
pub fn leaky_bucket() -> impl Check + 'static {
    let mut builder = leaky_bucket::RateLimiter::builder();
    let builder = builder.max(BURST as usize).initial(BURST as usize).refill(1).interval(UNIT_EVERY);
    LeakyBucket(builder.build())
}

impl Check for Gcra {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, (): &mut ()) -> usize {
        let check = pin!(self.limiter.check(stream.string(at).clone(), &self.rate, 1));
        let decided = check.poll(&mut Context::from_waker(Waker::noop()));
        usize::from(matches!(consumed(decided), Poll::Ready(Ok(_))))
    }

    fn seed(&self, key: &str) {
        let check = pin!(self.limiter.check(key.to_owned(), &self.rate, 1));
        _ = check.poll(&mut Context::from_waker(Waker::noop()));
    }
}

impl Crab {
    #[inline(always)]
    fn is_allowed(&self, key: &str) -> bool {
        let (burst, period) = (i64::from(BURST), UNIT_EVERY.as_secs() as i64);
        let mut limiter = self.0.lock().expect("no panic");
        let decided = limiter.rate_limit(key, burst, 1, period, 1, SystemTime::now());
        matches!(consumed(decided), Ok((true, _)))
    }
}

impl Check for Crab {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, (): &mut ()) -> usize {
        usize::from(self.is_allowed(stream.string(at)))
    }

    fn seed(&self, key: &str) {
        self.is_allowed(key);
    }
}

impl Check for Ratelimit {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, _stream: &Stream, _at: usize, (): &mut ()) -> usize {
        usize::from(consumed(self.0.try_wait()).is_ok())
    }
}

impl Check for LeakyBucket {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, _stream: &Stream, _at: usize, (): &mut ()) -> usize {
        usize::from(consumed(self.0.try_acquire(1)))
    }
}
