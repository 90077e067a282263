//! Our leases: units leased once from a store in memory, then spent by the node. The only module that uses
//! their interface.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use throttlekit::clock::LeaseClock;
use throttlekit::leasing::{Batch, LeasedKey, Leasing, ThreadCache};
use throttlekit::store::MemoryStore;
use throttlekit::{Call, Limit, SharedLimiter};
use tokio::runtime::Builder;

use super::{Check, consumed};
use crate::workloads::Stream;

/// More than any run spends of one key, all of it leased at once.
const UNITS: u64 = 1 << 40;
/// Longer than any run, as is the rest of the current window.
const WINDOW: Duration = Duration::from_secs(3_650 * 86_400);
/// More than the workloads use, so that every key has an entry.
const KEYS_MAX: usize = 65_536;
/// The key of the held lease.
const HELD: &str = "key:held";
/// The units that a thread takes from a shared lease at a time.
const CACHE_UNITS: u64 = 64;

type Leased<C> = SharedLimiter<MemoryStore, C>;
type Held<C> = LeasedKey<MemoryStore, C>;

fn leased<C: LeaseClock + 'static>(clock: C) -> Leased<C> {
    let limit = Limit::fixed_window(UNITS, WINDOW).expect("a limit");
    let leasing = Leasing::new().batch(Batch::Fixed(UNITS)).lease_max(UNITS).share(1).keys_max(KEYS_MAX);
    let leasing = leasing.refill_at_percent(0).return_after(None);
    let builder = SharedLimiter::builder(MemoryStore::new(), "lease", limit).leased_with(leasing);
    builder.clock(clock).build().expect("a limiter")
}

/// Leases a key's whole limit to this node.
fn fetch<C: LeaseClock + 'static>(limiter: &Leased<C>, key: &str) {
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let answer = runtime.block_on(limiter.check(key)).expect("an answer");
    assert!(answer.allowed, "{key} is lent: {answer:?}");
}

fn held<C: LeaseClock + 'static>(clock: C) -> Held<C> {
    let limiter = leased(clock);
    fetch(&limiter, HELD);
    limiter.leased_key(HELD).expect("a place for the key")
}

struct Spend<C: LeaseClock + 'static>(Held<C>);
struct CacheContender<C: LeaseClock + 'static>(&'static Held<C>);
struct TryCheck<C>(Leased<C>);
struct AsyncCheck<C>(Leased<C>);

/// One lease shared by threads, through a handle.
pub fn spend<C: LeaseClock + 'static>(clock: C) -> impl Check + 'static {
    Spend(held(clock))
}

/// A part of it for each thread. The handle outlives the run: threads keep a part from call to call.
pub fn thread_cache<C: LeaseClock + 'static>(clock: C) -> impl Check + 'static {
    CacheContender(Box::leak(Box::new(held(clock))))
}

/// The lease of a key that is looked up.
pub fn try_check<C: LeaseClock + 'static>(clock: C) -> impl Check + 'static {
    TryCheck(leased(clock))
}

/// The same with the full response, as a future that is ready.
pub fn check<C: LeaseClock + 'static>(clock: C) -> impl Check + 'static {
    AsyncCheck(leased(clock))
}

impl<C: LeaseClock + 'static> Check for Spend<C> {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, _stream: &Stream, _at: usize, (): &mut ()) -> usize {
        usize::from(consumed(self.0.try_spend(1)).is_some())
    }
}

impl<C: LeaseClock + 'static> Check for CacheContender<C> {
    type Scratch = Option<ThreadCache<'static, MemoryStore, C>>;

    #[inline(always)]
    fn check(&self, _stream: &Stream, _at: usize, thread_cache: &mut Self::Scratch) -> usize {
        let thread_cache = thread_cache.get_or_insert_with(|| self.0.thread_cache(CACHE_UNITS));
        usize::from(consumed(thread_cache.try_spend(1)).is_some())
    }
}

impl<C: LeaseClock + 'static> Check for TryCheck<C> {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, (): &mut ()) -> usize {
        let decision = self.0.try_check(Call::by(stream.string(at).as_str()));
        usize::from(consumed(decision).is_some_and(|decision| decision.allowed))
    }

    fn seed(&self, key: &str) {
        fetch(&self.0, key);
    }
}

impl<C: LeaseClock + 'static> Check for AsyncCheck<C> {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, (): &mut ()) -> usize {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(self.0.check(stream.string(at).as_str())).poll(&mut context) {
            Poll::Ready(Ok(answer)) => usize::from(consumed(answer).decision.allowed),
            Poll::Ready(Err(_)) | Poll::Pending => 0,
        }
    }

    fn seed(&self, key: &str) {
        fetch(&self.0, key);
    }
}
