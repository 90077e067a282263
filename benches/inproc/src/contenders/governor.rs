//! governor 0.10: with its defaults, with the hash and the clock of the contenders beside it, at its best, and with the
//! whole decision.

use std::hash::BuildHasher;
use std::num::NonZeroU32;
use std::sync::OnceLock;
use std::time::Duration;

use dashmap::DashMap;
use foldhash::fast::RandomState;
use governor::clock::{Clock, DefaultClock, QuantaInstant, QuantaUpkeepClock};
use governor::middleware::{NoOpMiddleware, RateLimitingMiddleware, StateInformationMiddleware};
use governor::state::keyed::DashMapStateStore;
use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota, RateLimiter};

use super::budget::tokens;
use super::{BURST, Check, UNIT_EVERY, consumed};
use crate::workloads::{KEY_BYTES, Stream};

type Array = [u8; KEY_BYTES];
type Seen = StateInformationMiddleware;
/// Keyed over a `DashMap`.
pub struct Keyed<
    K: std::hash::Hash + Eq + Clone,
    S: BuildHasher + Clone,
    M: RateLimitingMiddleware<QuantaInstant>,
    C: Clock<Instant = QuantaInstant> = DefaultClock,
>(RateLimiter<K, DashMapStateStore<K, S>, C, M>);
struct Direct<M: RateLimitingMiddleware<QuantaInstant>, C: Clock<Instant = QuantaInstant> = DefaultClock>(
    RateLimiter<governor::state::NotKeyed, governor::state::InMemoryState, C, M>,
);
/// A key without units is denied.
struct Denied<S: BuildHasher + Clone>(RateLimiter<String, DashMapStateStore<String, S>, DefaultClock>);

/// Step of the clock that a thread updates, as that of our coarse clock.
const UPKEEP: Duration = Duration::from_millis(1);

struct DirectN(DefaultDirectRateLimiter);

fn quota() -> Quota {
    let burst = NonZeroU32::new(BURST).expect("a burst");
    Quota::with_period(UNIT_EVERY).expect("a period").allow_burst(burst)
}

/// The main anchor: `String` keys and all defaults.
pub fn keyed_string() -> impl Check + 'static {
    Keyed(DefaultKeyedRateLimiter::<String>::dashmap(quota()))
}

/// `String` keys and a fast hash, as our limiter for trusted keys has.
pub fn keyed_fast_hash() -> impl Check + 'static {
    Keyed(RateLimiter::<String, _, _, NoOpMiddleware>::dashmap_with_hasher(quota(), RandomState::default()))
}

/// The same with a clock that a thread updates.
pub fn keyed_fast_hash_coarse() -> impl Check + 'static {
    let states = DashMap::with_hasher(RandomState::default());
    Keyed(RateLimiter::<String, _, _, NoOpMiddleware>::new(quota(), states, upkeep()))
}

/// `String` keys without units, and every default.
pub fn denied() -> impl Check + 'static {
    Denied(RateLimiter::dashmap(spent()))
}

/// The same with a fast hash.
pub fn denied_fast_hash() -> impl Check + 'static {
    Denied(RateLimiter::dashmap_with_hasher(spent(), RandomState::default()))
}

/// A clock of the process that a thread updates; there can be only one.
fn upkeep() -> QuantaUpkeepClock {
    static CLOCK: OnceLock<QuantaUpkeepClock> = OnceLock::new();
    CLOCK.get_or_init(|| QuantaUpkeepClock::from_interval(UPKEEP).expect("the first one")).clone()
}

/// One unit a day, which the seed spends.
fn spent() -> Quota {
    Quota::with_period(Duration::from_secs(86_400)).expect("a period")
}

/// Keys inline and the fastest hash: the best case.
pub fn keyed_array() -> impl Check + 'static {
    Keyed(RateLimiter::<Array, _, _, NoOpMiddleware>::dashmap_with_hasher(quota(), RandomState::default()))
}

/// The main anchor, with the units left as well.
pub fn keyed_state() -> impl Check + 'static {
    Keyed(DefaultKeyedRateLimiter::<String>::dashmap(quota()).with_middleware::<Seen>())
}

/// One state, every default.
pub fn direct() -> impl Check + 'static {
    Direct(DefaultDirectRateLimiter::direct(quota()))
}

/// One state, with a clock that a thread updates.
pub fn direct_coarse() -> impl Check + 'static {
    Direct(RateLimiter::<_, _, _, NoOpMiddleware>::new(
        quota(),
        governor::state::InMemoryState::default(),
        upkeep(),
    ))
}

/// One state, every default, several units at a time.
pub fn direct_n() -> impl Check + 'static {
    DirectN(DefaultDirectRateLimiter::direct(quota()))
}

/// One state, with the units left as well.
pub fn direct_state() -> impl Check + 'static {
    Direct(DefaultDirectRateLimiter::direct(quota()).with_middleware::<Seen>())
}

/// The main anchor bare, with keys that are stale at once, so that a clean-up finds all of them.
pub fn stale_at_once() -> DefaultKeyedRateLimiter<String> {
    DefaultKeyedRateLimiter::dashmap(short())
}

/// The same with memory for this many keys from the start.
pub fn stale_at_once_sized(keys: usize) -> DefaultKeyedRateLimiter<String> {
    RateLimiter::new(short(), DashMap::with_capacity(keys), DefaultClock::default())
}

fn short() -> Quota {
    Quota::per_second(NonZeroU32::new(1_000_000_000).expect("a burst"))
}

impl<S, M, C> Check for Keyed<String, S, M, C>
where
    S: BuildHasher + Clone + Sync,
    M: RateLimitingMiddleware<QuantaInstant> + Sync,
    C: Clock<Instant = QuantaInstant> + Sync,
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

impl<M, C> Check for Direct<M, C>
where
    M: RateLimitingMiddleware<QuantaInstant> + Sync,
    C: Clock<Instant = QuantaInstant> + Sync,
{
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

impl<S: BuildHasher + Clone + Sync> Check for Denied<S> {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, (): &mut ()) -> usize {
        usize::from(consumed(self.0.check_key(stream.string(at))).is_err())
    }

    fn seed(&self, key: &str) {
        _ = self.0.check_key(&key.to_owned());
    }
}
