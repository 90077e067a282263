//! Builder of a limiter.

use std::marker::PhantomData;

use throttlekit_core::rate::{Limit, LimitError};

use crate::memory::Capacity;
use crate::{Clock, KeyHash, Limiter, SecretHash, SystemClock, WallClock};

/// Default maximum number of separate tenants, or names of a tree.
pub(crate) const KEYS_MAX_DEFAULT: usize = 1 << 16;

/// Builder of a [`Limiter`].
///
/// ```
/// use throttlekit::{CoarseClock, Limiter, Rate, TrustedHash};
///
/// let limiter = Limiter::builder(Rate::per_second(1_000))
///     .memory_budget(128 << 20)
///     .expected_keys(1_000_000)
///     .hash::<TrustedHash>()
///     .clock(CoarseClock::start())
///     .build()?;
/// assert!(limiter.check("tenant-7").allowed);
/// # Ok::<(), throttlekit::LimitError>(())
/// ```
#[derive(Debug)]
pub struct Builder<C = SystemClock, H = SecretHash> {
    limit: Result<Limit, LimitError>,
    capacity: Capacity,
    clock: C,
    hash: PhantomData<H>,
}

impl Builder {
    pub(crate) fn new<L: TryInto<Limit>>(limit: L) -> Self
    where
        LimitError: From<L::Error>,
    {
        let limit = limit.try_into().map_err(LimitError::from);
        let clock = limit.as_ref().map_or(SystemClock::Wall(WallClock), SystemClock::for_limit);
        Self { limit, capacity: Capacity::default(), clock, hash: PhantomData }
    }
}

impl<C: Clock, H: KeyHash> Builder<C, H> {
    /// Sets the maximum number of bytes for keys. Default: 128 MiB, which counts four million keys of one word exactly.
    ///
    /// Memory is allocated as keys arrive. A key whose state is one word takes 16 bytes, and 22 with its part of the
    /// estimates: windows, and GCRA, token and leaky buckets at common rates (3 a second or 100 a minute, but not 7 a
    /// minute, whose unit is no short fraction of a nanosecond). Other states are larger, and counted as they are. Keys
    /// whose state has fully recovered are evicted first.
    ///
    /// Beyond the budget a key without an entry is counted in an estimate. It is never below the key's use, so no key
    /// gets more than its limit, and it may be above, so a key may be denied early. See
    /// [`Limiter::memory`](crate::Limiter::memory).
    pub fn memory_budget(self, bytes: usize) -> Self {
        Self { capacity: Capacity { bytes, ..self.capacity }, ..self }
    }

    /// Preallocates a table for this many keys, 39 bytes each, so that nearly all of them are found in one cache line.
    /// More keys allocate memory as they arrive, and checking them probes a few more positions. At most three quarters
    /// of the budget. Default: 65,536. No effect if a key's state is more than one word.
    pub fn expected_keys(self, keys: usize) -> Self {
        Self { capacity: Capacity { expected_keys: keys, ..self.capacity }, ..self }
    }

    /// Sets the clock, instead of the one that fits the limit.
    pub fn clock<D: Clock>(self, clock: D) -> Builder<D, H> {
        Builder { limit: self.limit, capacity: self.capacity, clock, hash: PhantomData }
    }

    /// Sets the key hash. Default: [`SecretHash`]. Use another only if the operator chooses the keys.
    pub fn hash<G: KeyHash>(self) -> Builder<C, G> {
        Builder { limit: self.limit, capacity: self.capacity, clock: self.clock, hash: PhantomData }
    }

    /// Builds the limiter. Fails if the limit is invalid.
    pub fn build(self) -> Result<Limiter<C, H>, LimitError> {
        Ok(Limiter::from_parts(self.limit?, self.capacity, self.clock, H::random()))
    }
}
