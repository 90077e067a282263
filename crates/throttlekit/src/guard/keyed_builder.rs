//! Builder of a keyed guard.

use std::marker::PhantomData;

use super::keyed::{Each, LimitOf};
use super::{GuardBuilder, GuardLimit, KeyedGuard};
use crate::{BootClock, Clock, KeyHash, SecretHash};

/// Default maximum number of keys.
const KEYS_MAX_DEFAULT: usize = 1 << 12;

/// Builder of a [`KeyedGuard`].
///
/// ```
/// use throttlekit::KeyedGuard;
/// use throttlekit::guard::Ceiling;
///
/// let models = KeyedGuard::builder(Ceiling::between(2, 64))
///     .limit_of(|model| if model == b"small" { 256.into() } else { Ceiling::between(2, 64).into() })
///     .total(512)
///     .build();
/// assert!(models.try_acquire("small").is_ok());
/// ```
pub struct KeyedGuardBuilder<C = BootClock, H = SecretHash> {
    each: GuardBuilder<C>,
    limit_of: Option<LimitOf>,
    total: Option<GuardLimit>,
    keys_max: usize,
    hash: PhantomData<H>,
}

impl KeyedGuardBuilder {
    pub(super) fn new(limit: GuardLimit) -> Self {
        let each = GuardBuilder::new(limit);
        Self { each, limit_of: None, total: None, keys_max: KEYS_MAX_DEFAULT, hash: PhantomData }
    }
}

impl<C: Clock + Clone, H: KeyHash> KeyedGuardBuilder<C, H> {
    /// Sets the limit of each key, if limits differ. Called when a key gets a guard, and for each request of a new key
    /// in the shared guard: all of these together have the limit that the builder was created with, and none more than
    /// its own.
    pub fn limit_of(self, limit_of: impl Fn(&[u8]) -> GuardLimit + Send + Sync + 'static) -> Self {
        Self { limit_of: Some(Box::new(limit_of)), ..self }
    }

    /// Adds a limit over all keys, in addition to their own.
    pub fn total(self, limit: impl Into<GuardLimit>) -> Self {
        Self { total: Some(limit.into()), ..self }
    }

    /// Sets the maximum number of keys with a guard of their own. Default: 4,096. From 4,096 on they are kept in
    /// sixteen shards, of which one may be full a little before the others.
    pub fn keys_max(self, keys: usize) -> Self {
        Self { keys_max: keys, ..self }
    }

    /// Adds a priority, for each key and for the total; see [`GuardBuilder::priority_below`].
    pub fn priority_below(self, kept_thousandths: u16) -> Self {
        Self { each: self.each.priority_below(kept_thousandths), ..self }
    }

    /// Sets the maximum number of waiters of each priority at each guard. Default: 0.
    pub fn depth_max(self, depth: u32) -> Self {
        Self { each: self.each.depth_max(depth), ..self }
    }

    /// Sets the clock that measures latency. Default: [`BootClock`].
    pub fn clock<D: Clock + Clone>(self, clock: D) -> KeyedGuardBuilder<D, H> {
        let Self { each, limit_of, total, keys_max, hash } = self;
        KeyedGuardBuilder { each: each.clock(clock), limit_of, total, keys_max, hash }
    }

    /// Sets the key hash. Default: [`SecretHash`]. Use another only if the operator chooses the keys.
    pub fn hash<G: KeyHash>(self) -> KeyedGuardBuilder<C, G> {
        let Self { each, limit_of, total, keys_max, .. } = self;
        KeyedGuardBuilder { each, limit_of, total, keys_max, hash: PhantomData }
    }

    /// Builds the keyed guard.
    pub fn build(self) -> KeyedGuard<C, H> {
        let total = self.total.map(|limit| self.each.clone().limit(limit).build());
        KeyedGuard::from_parts(Each { builder: self.each, limit_of: self.limit_of }, total, self.keys_max)
    }
}

debug_fields!(
    [C: std::fmt::Debug, H] KeyedGuardBuilder<C, H>,
    |it| each = it.each, total = it.total, keys_max = it.keys_max
);
