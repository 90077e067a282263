//! Several limits checked as one atomic group.

use throttlekit_core::Decision;
use throttlekit_core::rate::{Limit, LimitError, Need, Verdict};

use crate::memory::{Capacity, HeldKey, Keys};
use crate::{Call, Clock, KeyHash, SecretHash, SystemClock};

/// Several limits over several keys, charged all or none.
///
/// Each limit has its own key in a request, in the same order; the number is checked at compile time.
///
/// ```
/// use throttlekit::{Call, Limits, Rate};
///
/// let user_and_org = Limits::all([Rate::per_minute(60), Rate::per_minute(1_000)])?;
/// let verdict = user_and_org.check([Call::by("alice"), Call::by("acme")]);
/// assert!(verdict.decision.allowed);
/// assert_eq!(verdict.binding, 0, "alice has the least left");
/// # Ok::<(), throttlekit::LimitError>(())
/// ```
pub struct Limits<const N: usize, C = SystemClock, H = SecretHash> {
    need: Need,
    keys: [Keys; N],
    /// Capacity of each limit.
    capacity: Capacity,
    clock: C,
    hash: H,
}

impl<const N: usize> Limits<N> {
    /// Creates limits that must all allow.
    pub fn all<L: TryInto<Limit>>(limits: [L; N]) -> Result<Self, LimitError>
    where
        LimitError: From<L::Error>,
    {
        Self::needing(Need::All, limits)
    }

    /// Creates limits of which at least one must allow; those that do are charged.
    pub fn any<L: TryInto<Limit>>(limits: [L; N]) -> Result<Self, LimitError>
    where
        LimitError: From<L::Error>,
    {
        Self::needing(Need::Any, limits)
    }

    fn needing<L: TryInto<Limit>>(need: Need, limits: [L; N]) -> Result<Self, LimitError>
    where
        LimitError: From<L::Error>,
    {
        const { assert!(N > 0, "an ask names at least one limit") };
        let limits: Vec<Limit> = limits.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?;
        let clock = SystemClock::for_limits(&limits);
        let limits = limits.try_into().expect("as many limits as were given");
        Ok(Self::with(need, limits, Capacity::default(), clock, SecretHash::random()))
    }
}

impl<const N: usize, C: Clock, H: KeyHash> Limits<N, C, H> {
    /// Returns the same limits with another clock, and nothing charged yet.
    pub fn clock<D: Clock>(self, clock: D) -> Limits<N, D, H> {
        Limits::with(self.need, self.keys.map(|keys| *keys.limit()), self.capacity, clock, self.hash)
    }

    /// Sets the bytes for the keys of all limits, in equal parts; nothing is charged yet. Default: 128 MiB for each
    /// limit. See [`Builder::memory_budget`](crate::Builder::memory_budget).
    pub fn memory_budget(self, bytes: usize) -> Self {
        let capacity = Capacity { bytes, ..self.capacity }.each_of(N);
        Self::with(self.need, self.keys.map(|keys| *keys.limit()), capacity, self.clock, self.hash)
    }

    fn with(need: Need, limits: [Limit; N], capacity: Capacity, clock: C, hash: H) -> Self {
        let now = clock.now();
        Self { need, keys: limits.map(|limit| Keys::new(limit, capacity, now)), capacity, clock, hash }
    }

    /// Checks one request over all limits, and charges all or none.
    ///
    /// The keys are held, in the order of the limits, while it decides; a request that needs one of them meanwhile
    /// waits those few instructions.
    pub fn check(&self, asks: [Call<'_>; N]) -> Verdict {
        let now = self.clock.now();
        let mut held: [HeldKey<'_>; N] =
            std::array::from_fn(|i| self.keys[i].hold(self.hash.fingerprint(asks[i].key()), now));
        let decisions: [_; N] = std::array::from_fn(|i| held[i].decide(asks[i].units(), now));
        let verdict = self.need.judge(&decisions);
        if verdict.decision.allowed {
            let charged = held.iter_mut().zip(&asks).zip(&decisions).filter(|(_, decision)| decision.allowed);
            charged.for_each(|((key, ask), _)| key.charge(ask.units(), now));
        }
        verdict
    }

    /// Returns what each key has left on its limit, without spending.
    pub fn peek_each(&self, keys: [&[u8]; N]) -> [Decision; N] {
        let now = self.clock.now();
        std::array::from_fn(|i| self.keys[i].peek(self.hash.fingerprint(keys[i]), now))
    }
}

debug_fields!(
    [const N: usize, C, H] Limits<N, C, H>,
    |it| need = it.need, limits = it.keys.each_ref().map(Keys::limit)
);
