//! Builder of a guard.

use super::handle::Guard;
use super::keyed::{Each, KeyedGuard, LimitOf};
use super::settings::Settings;
use crate::clock::{BootClock, Clock};
use crate::{BuildError, Concurrency};

/// Default maximum number of keys.
const KEYS_MAX_DEFAULT: usize = 1 << 12;

/// Builder of a [`Guard`] or a [`KeyedGuard`].
///
/// ```
/// use throttlekit::{Call, Concurrency, Guard};
///
/// // Interactive work may use all ten, batches leave three to it; of each at most a hundred wait.
/// let guard = Guard::builder(10).priority_below(300).queue_max(100).build()?;
/// let batch = Call::from(()).priority(1);
/// let permits: Vec<_> = (0..7).map(|_| guard.try_acquire(batch)).collect::<Result<_, _>>()?;
/// assert!(guard.try_acquire(batch).is_err() && guard.try_acquire(()).is_ok());
/// # drop(permits);
///
/// let each = Concurrency::per_key(Concurrency::adaptive(2..=64));
/// let models = Guard::builder(each.total(512))
///     .limit_of(|model| if model == b"small" { 256.into() } else { Concurrency::adaptive(2..=64) })
///     .build_per_key()?;
/// assert!(models.try_acquire("small").is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct GuardBuilder<C = BootClock> {
    limit: Concurrency,
    limit_of: Option<LimitOf>,
    keys_max: usize,
    settings: Settings<C>,
}

impl GuardBuilder {
    pub(super) fn new(limit: Concurrency) -> Self {
        Self { limit, limit_of: None, keys_max: KEYS_MAX_DEFAULT, settings: Settings::new() }
    }
}

impl<C: Clock + Clone + 'static> GuardBuilder<C> {
    /// Adds a priority after the last, from which this many thousandths of the limit are withheld, rounded down.
    ///
    /// Never fewer than from the priority before it, and never the whole limit: if there is a slot at all, each priority
    /// may use one. A guard has at most [`Priority::LEVELS_MAX`](super::Priority::LEVELS_MAX) priorities; more are not
    /// added.
    pub fn priority_below(mut self, withheld_thousandths: u16) -> Self {
        self.settings.priority_below(withheld_thousandths);
        self
    }

    /// Sets the maximum number of waiters of each priority, at each limit. Default: 0.
    pub fn queue_max(mut self, waiters: u32) -> Self {
        self.settings.queue_max = waiters;
        self
    }

    /// Sets the limit of each key, if limits differ. An invalid limit denies every call of the key.
    ///
    /// Called when a key gets a limit of its own, and for each request of a new key that shares one: all of these
    /// together have the limit that the builder was created with, and none more than its own.
    pub fn limit_of(self, limit_of: impl Fn(&[u8]) -> Concurrency + Send + Sync + 'static) -> Self {
        Self { limit_of: Some(Box::new(limit_of)), ..self }
    }

    /// Sets the maximum number of keys with a limit of their own. Default: 4,096. From 4,096 on they are kept in
    /// sixteen shards, of which one may be full a little before the others.
    pub fn keys_max(self, keys: usize) -> Self {
        Self { keys_max: keys, ..self }
    }

    /// Sets the clock that measures latency. Default: [`BootClock`].
    pub fn clock<D: Clock>(self, clock: D) -> GuardBuilder<D> {
        let Self { limit, limit_of, keys_max, settings } = self;
        GuardBuilder { limit, limit_of, keys_max, settings: settings.clock(clock) }
    }

    /// Builds the guard. Fails if the limit is invalid, or per key.
    pub fn build(self) -> Result<Guard<C>, BuildError> {
        if self.limit.is_per_key() || self.limit_of.is_some() {
            let expected = "a limit in total; one per key needs a `KeyedGuard`";
            return Err(BuildError::OutOfRange { setting: "limit of the guard", expected });
        }
        self.limit.limit_of_all()?;
        Ok(Guard::from_single(self.settings.single(self.limit.limit()?)))
    }

    /// Builds a guard with the limit for each key. Fails if the limit is invalid.
    pub fn build_per_key(self) -> Result<KeyedGuard<C>, BuildError> {
        let Self { limit, limit_of, keys_max, settings } = self;
        let total = limit.limit_of_all()?.map(|limit| settings.single(limit));
        let limit = limit.limit()?;
        let each = Each { make: Box::new(move |limit| settings.single(limit)), limit, limit_of };
        Ok(KeyedGuard::from_parts(each, total, keys_max))
    }
}

debug_fields!([C] GuardBuilder<C>, |it| limit = it.limit, keys_max = it.keys_max);
