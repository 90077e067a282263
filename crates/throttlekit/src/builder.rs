//! The choices a limiter is made of.

use std::marker::PhantomData;

use throttlekit_core::rate::{Limit, LimitError};

use crate::{Clock, KeyHash, Limiter, SecretHash, SystemClock, WallClock};

/// Room for keys unless stated: 2.3 MiB where a key's state is one word.
pub(crate) const KEYS_MAX_DEFAULT: usize = 1 << 16;

/// What a [`Limiter`] is made of.
///
/// ```
/// use throttlekit::{CoarseClock, Limiter, Rate, TrustedHash};
///
/// let limiter = Limiter::builder(Rate::per_second(1_000))
///     .keys_max(1_000_000)
///     .hash::<TrustedHash>()
///     .clock(CoarseClock::start())
///     .build()?;
/// assert!(limiter.check("tenant-7").allowed);
/// # Ok::<(), throttlekit::LimitError>(())
/// ```
#[derive(Debug)]
pub struct Builder<C = SystemClock, H = SecretHash> {
    limit: Result<Limit, LimitError>,
    keys_max: usize,
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
        Self { limit, keys_max: KEYS_MAX_DEFAULT, clock, hash: PhantomData }
    }
}

impl<C: Clock, H: KeyHash> Builder<C, H> {
    /// How many keys are kept apart.
    ///
    /// Where a key's state is one word, memory is taken for all of them at the start: 36 bytes a key. That is so
    /// for windows, and for GCRA, token and leaky buckets at common rates (3 a second or 7 a minute, but not 97 a
    /// second, whose unit is no short fraction of a nanosecond). Elsewhere memory is taken as keys come.
    ///
    /// Beyond it the key with the least debt is dropped, and no dropped key comes back to a fresh budget.
    pub fn keys_max(self, keys: usize) -> Self {
        Self { keys_max: keys.max(1), ..self }
    }

    /// Which clock to read, instead of the one that suits the limit.
    pub fn clock<D: Clock>(self, clock: D) -> Builder<D, H> {
        Builder { limit: self.limit, keys_max: self.keys_max, clock, hash: PhantomData }
    }

    /// How keys are hashed: [`SecretHash`] unless the operator chooses the keys.
    pub fn hash<G: KeyHash>(self) -> Builder<C, G> {
        Builder { limit: self.limit, keys_max: self.keys_max, clock: self.clock, hash: PhantomData }
    }

    /// The limiter, or why the limit cannot be one.
    pub fn build(self) -> Result<Limiter<C, H>, LimitError> {
        Ok(Limiter::from_parts(self.limit?, self.keys_max, self.clock, H::random()))
    }
}
