//! governor 0.10: as it comes, at its best, and with the answer in full.

use std::hash::BuildHasher;
use std::num::NonZeroU32;

use foldhash::fast::RandomState;
use governor::clock::{DefaultClock, QuantaInstant};
use governor::middleware::{NoOpMiddleware, RateLimitingMiddleware, StateInformationMiddleware};
use governor::state::keyed::DashMapStateStore;
use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota, RateLimiter};

use super::budget::tokens;
use super::{BURST, Check, UNIT_EVERY, consumed};
use crate::workloads::{KEY_BYTES, Stream};

type Array = [u8; KEY_BYTES];
type Seen = StateInformationMiddleware;
/// Keyed over a `DashMap` with the default clock.
pub struct Keyed<
    K: std::hash::Hash + Eq + Clone,
    S: BuildHasher + Clone,
    M: RateLimitingMiddleware<QuantaInstant>,
>(RateLimiter<K, DashMapStateStore<K, S>, DefaultClock, M>);
struct Direct<M: RateLimitingMiddleware<QuantaInstant>>(
    RateLimiter<governor::state::NotKeyed, governor::state::InMemoryState, DefaultClock, M>,
);

struct DirectN(DefaultDirectRateLimiter);

fn quota() -> Quota {
    let burst = NonZeroU32::new(BURST).expect("a burst");
    Quota::with_period(UNIT_EVERY).expect("a period").allow_burst(burst)
}

/// The main anchor: `String` keys and every default.
pub fn keyed_string() -> impl Check + 'static {
    Keyed(DefaultKeyedRateLimiter::<String>::dashmap(quota()))
}

/// Keys inline and the fastest hash: the best case.
pub fn keyed_array() -> impl Check + 'static {
    Keyed(RateLimiter::<Array, _, _, NoOpMiddleware>::dashmap_with_hasher(quota(), RandomState::default()))
}

/// The main anchor, telling what is left as well.
pub fn keyed_state() -> impl Check + 'static {
    Keyed(DefaultKeyedRateLimiter::<String>::dashmap(quota()).with_middleware::<Seen>())
}

/// One state, every default.
pub fn direct() -> impl Check + 'static {
    Direct(DefaultDirectRateLimiter::direct(quota()))
}

/// One state, every default, several units at a time.
pub fn direct_n() -> impl Check + 'static {
    DirectN(DefaultDirectRateLimiter::direct(quota()))
}

/// One state, telling what is left as well.
pub fn direct_state() -> impl Check + 'static {
    Direct(DefaultDirectRateLimiter::direct(quota()).with_middleware::<Seen>())
}

/// The main anchor bare, with keys that are stale at once, so that a clean-up finds all of them.
pub fn stale_at_once() -> DefaultKeyedRateLimiter<String> {
    DefaultKeyedRateLimiter::dashmap(Quota::per_second(NonZeroU32::new(1_000_000_000).expect("a burst")))
}

impl<S, M> Check for Keyed<String, S, M>
where
    S: BuildHasher + Clone + Sync,
    M: RateLimitingMiddleware<QuantaInstant> + Sync,
{
    type Scratch = ();

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, (): &mut ()) -> usize {
        usize::from(consumed(self.0.check_key(stream.string(at))).is_ok())
    }

    fn seed(&self, key: &str) {
        _ = self.0.check_key(&key.to_owned());
    }
}

impl<S, M> Check for Keyed<Array, S, M>
where
    S: BuildHasher + Clone + Sync,
    M: RateLimitingMiddleware<QuantaInstant> + Sync,
{
    type Scratch = ();

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, (): &mut ()) -> usize {
        usize::from(consumed(self.0.check_key(stream.array(at))).is_ok())
    }

    fn seed(&self, key: &str) {
        _ = self.0.check_key(key.as_bytes().try_into().expect("16 bytes"));
    }
}

impl<M: RateLimitingMiddleware<QuantaInstant> + Sync> Check for Direct<M> {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, _stream: &Stream, _at: usize, (): &mut ()) -> usize {
        usize::from(consumed(self.0.check()).is_ok())
    }
}

impl Check for DirectN {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, _stream: &Stream, at: usize, (): &mut ()) -> usize {
        let tokens = NonZeroU32::new(tokens(at) as u32).expect("at least one");
        usize::from(matches!(consumed(self.0.check_n(tokens)), Ok(Ok(()))))
    }
}
