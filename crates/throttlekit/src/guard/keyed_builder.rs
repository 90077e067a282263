//! The choices a keyed guard is made of.

use std::marker::PhantomData;

use super::keyed::{Each, LimitOf};
use super::{GuardBuilder, GuardLimit, KeyedGuard};
use crate::{BootClock, Clock, KeyHash, SecretHash};

/// Room for keys unless stated.
const KEYS_MAX_DEFAULT: usize = 1 << 12;

/// What a [`KeyedGuard`] is made of.
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
    /// The limit of a key, where they differ; asked when a key gets a guard, and for each ask of a newcomer that shares
    /// one: of these, all together have the limit that the builder was made with, and none more than its own.
    pub fn limit_of(self, limit_of: impl Fn(&[u8]) -> GuardLimit + Send + Sync + 'static) -> Self {
        Self { limit_of: Some(Box::new(limit_of)), ..self }
    }

    /// A limit over all keys, beside their own.
    pub fn total(self, limit: impl Into<GuardLimit>) -> Self {
        Self { total: Some(limit.into()), ..self }
    }

    /// How many keys have a guard of their own: 4,096 unless stated. From 4,096 on they are kept in sixteen parts, of
    /// which one may be full a little before the others.
    pub fn keys_max(self, keys: usize) -> Self {
        Self { keys_max: keys, ..self }
    }

    /// See [`GuardBuilder::class_below`]; for each key, and for all.
    pub fn class_below(self, kept_thousandths: u16) -> Self {
        Self { each: self.each.class_below(kept_thousandths), ..self }
    }

    /// How many of each class may wait at each guard: none unless stated.
    pub fn depth_max(self, depth: u32) -> Self {
        Self { each: self.each.depth_max(depth), ..self }
    }

    /// Which clock measures latency, instead of [`BootClock`].
    pub fn clock<D: Clock + Clone>(self, clock: D) -> KeyedGuardBuilder<D, H> {
        let Self { each, limit_of, total, keys_max, hash } = self;
        KeyedGuardBuilder { each: each.clock(clock), limit_of, total, keys_max, hash }
    }

    /// How keys are hashed: [`SecretHash`] unless the operator chooses the keys.
    pub fn hash<G: KeyHash>(self) -> KeyedGuardBuilder<C, G> {
        let Self { each, limit_of, total, keys_max, .. } = self;
        KeyedGuardBuilder { each, limit_of, total, keys_max, hash: PhantomData }
    }

    /// The keyed guard.
    pub fn build(self) -> KeyedGuard<C, H> {
        let total = self.total.map(|limit| self.each.clone().limit(limit).build());
        KeyedGuard::from_parts(Each { builder: self.each, limit_of: self.limit_of }, total, self.keys_max)
    }
}

debug_fields!(
    [C: std::fmt::Debug, H] KeyedGuardBuilder<C, H>,
    |it| each = it.each, total = it.total, keys_max = it.keys_max
);
