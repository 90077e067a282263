//! A limiter for one limit over many keys.

use throttlekit_core::rate::{Limit, LimitError, Mark};
use throttlekit_core::{Cost, Decision, Forecast, Timestamp};

use crate::memory::{BATCH, Capacity, Keys};
use crate::{Builder, Call, Clock, KeyHash, KeyMemory, SecretHash, SystemClock};

/// One limit over many keys, in this process.
///
/// `check` takes tens of nanoseconds and never waits for I/O, so async code can call it directly. A known key costs one
/// compare-and-swap and no lock or allocation if its state is one word; a new key, and rules with more state, take a
/// short lock. Share it by reference or in an `Arc`.
///
/// ```
/// use throttlekit::{Call, Limiter, Rate};
///
/// let limiter = Limiter::new(Rate::per_minute(100).burst(10))?;
///
/// let decision = limiter.check("alice");
/// assert!(decision.allowed && decision.remaining == 9);
///
/// let costly = limiter.check(Call::by("alice").cost(20));
/// assert!(!costly.allowed, "20 units never fit a burst of 10");
/// # Ok::<(), throttlekit::LimitError>(())
/// ```
pub struct Limiter<C = SystemClock, H = SecretHash> {
    keys: Keys,
    clock: C,
    hash: H,
}

impl Limiter {
    /// Creates a limiter with the defaults: precise clock, attack-resistant hash, at most 128 MiB for keys, 2.4 MiB of
    /// it at once.
    pub fn new<L: TryInto<Limit>>(limit: L) -> Result<Self, LimitError>
    where
        LimitError: From<L::Error>,
    {
        Self::builder(limit).build()
    }

    /// Creates a builder, with all options.
    pub fn builder<L: TryInto<Limit>>(limit: L) -> Builder
    where
        LimitError: From<L::Error>,
    {
        Builder::new(limit)
    }
}

impl<C: Clock, H: KeyHash> Limiter<C, H> {
    pub(crate) fn from_parts(limit: Limit, capacity: Capacity, clock: C, hash: H) -> Self {
        let keys = Keys::new(limit, capacity, clock.now());
        Self { keys, clock, hash }
    }

    /// Checks one request, and charges it if allowed.
    #[inline]
    pub fn check<'a>(&self, ask: impl Into<Call<'a>>) -> Decision {
        let ask = ask.into();
        self.keys.check(self.hash.fingerprint(ask.key()), ask.units(), &self.clock)
    }

    /// Like [`check`](Self::check), with proof of the charge, by which it can be [settled](Self::settle) when the
    /// actual cost is known.
    ///
    /// ```
    /// use std::time::Duration;
    /// use throttlekit::{Call, Limit, Limiter};
    ///
    /// let tokens = Limiter::new(Limit::token_budget(1_000, Duration::from_secs(60))?)?;
    /// let (decision, charged) = tokens.charge(Call::by("acme").cost(300));
    /// assert!(decision.remaining == 700);
    /// if let Some(charged) = charged {
    ///     tokens.settle(charged, 120);
    /// }
    /// assert_eq!(tokens.peek("acme").remaining, 880);
    /// # Ok::<(), throttlekit::LimitError>(())
    /// ```
    #[inline]
    pub fn charge<'a>(&self, ask: impl Into<Call<'a>>) -> (Decision, Option<Charged>) {
        let ask = ask.into();
        let key = self.hash.fingerprint(ask.key());
        let (decision, mark) = self.keys.check_marked(key, ask.units(), self.clock.now());
        (decision, decision.allowed.then_some(Charged { key, mark, cost: ask.units() }))
    }

    /// Replaces the charged cost by the actual cost: returns the rest to the window it came from, or charges the
    /// difference, which may go beyond the limit. Call it on the limiter that charged, and before a reset of the key.
    #[inline]
    #[expect(clippy::needless_pass_by_value, reason = "a charge is settled once")]
    pub fn settle(&self, charged: Charged, actual: Cost) {
        let Charged { key, mark, cost } = charged;
        if cost != actual {
            self.keys.settle(key, mark, cost, actual, self.clock.now());
        }
    }

    /// Checks a request of `cost` for each key, all at one instant and in order.
    pub fn check_many<K: AsRef<[u8]>>(&self, keys: &[K], cost: Cost) -> Vec<Decision> {
        let mut decisions = Vec::with_capacity(keys.len());
        self.check_many_into(keys, cost, &mut decisions);
        decisions
    }

    /// Like [`check_many`](Self::check_many), into the caller's vector, whose content it replaces.
    pub fn check_many_into<K: AsRef<[u8]>>(&self, keys: &[K], cost: Cost, decisions: &mut Vec<Decision>) {
        decisions.clear();
        let now = self.clock.now();
        for batch in keys.chunks(BATCH) {
            let keys = batch.iter().map(|key| self.hash.fingerprint(key.as_ref()));
            self.keys.check_batch(keys, cost, now, decisions);
        }
    }

    /// Returns what a key has left, without spending: `allowed` reports whether one unit would pass.
    pub fn peek(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> Decision {
        self.keys.peek(self.hash.fingerprint(key.as_ref()), self.clock.now())
    }

    /// Forecasts what a key could spend at the request's cost, now and later.
    pub fn forecast<'a>(&self, ask: impl Into<Call<'a>>) -> Forecast {
        let ask = ask.into();
        self.keys.forecast(self.hash.fingerprint(ask.key()), ask.units(), self.clock.now())
    }

    /// Forgets a key: its next request counts as its first.
    ///
    /// A key that is estimated, beyond the memory budget, is not forgotten: its usage is in cells that others share.
    pub fn reset(&self, key: &(impl AsRef<[u8]> + ?Sized)) {
        self.keys.reset(self.hash.fingerprint(key.as_ref()));
    }

    /// Returns the number of keys with usage now. Scans the whole store: for dashboards, not for requests.
    pub fn live_keys(&self) -> usize {
        self.keys.live(self.clock.now())
    }

    /// Returns how full the memory for keys is, and how many requests it was too small for. Scans the whole store: for
    /// dashboards, not for requests.
    ///
    /// ```
    /// use throttlekit::{Limiter, Rate};
    ///
    /// let limiter = Limiter::builder(Rate::per_hour(5)).memory_budget(1 << 20).build()?;
    /// (0..1_000_u32).for_each(|key| _ = limiter.check(&key.to_be_bytes()));
    /// let memory = limiter.memory();
    /// assert_eq!((memory.live_keys, memory.estimated), (1_000, 0));
    /// assert!(memory.live_keys < memory.keys_max / 10 * 9, "every decision was exact");
    /// # Ok::<(), throttlekit::LimitError>(())
    /// ```
    pub fn memory(&self) -> KeyMemory {
        self.keys.memory(self.clock.now())
    }

    /// Returns the current time of this limiter's clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the limit.
    pub fn limit(&self) -> &Limit {
        self.keys.limit()
    }
}

/// Proof of a charge in this process. Settled once: it cannot be copied. If dropped, the charge stays.
#[derive(Debug, PartialEq, Eq)]
pub struct Charged {
    key: u64,
    mark: Mark,
    cost: Cost,
}

debug_fields!([C, H] Limiter<C, H>, |it| limit = it.keys.limit());
