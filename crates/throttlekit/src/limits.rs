//! Several limits that answer one ask together.

use throttlekit_core::Decision;
use throttlekit_core::rate::{Limit, LimitError, Need, Verdict};

use crate::memory::{Capacity, HeldKey, Keys};
use crate::{Ask, Clock, KeyHash, SecretHash, SystemClock};

/// Several limits over several keys, charged all together or not at all.
///
/// Each limit has its own key in an ask, in the same order; that there are as many is checked when compiling.
///
/// ```
/// use throttlekit::{Ask, Limits, Rate};
///
/// let user_and_org = Limits::all([Rate::per_minute(60), Rate::per_minute(1_000)])?;
/// let verdict = user_and_org.check([Ask::of("alice"), Ask::of("acme")]);
/// assert!(verdict.decision.allowed);
/// assert_eq!(verdict.binding, 0, "alice has the least left");
/// # Ok::<(), throttlekit::LimitError>(())
/// ```
pub struct Limits<const N: usize, C = SystemClock, H = SecretHash> {
    need: Need,
    keys: [Keys; N],
    /// Of each limit.
    capacity: Capacity,
    clock: C,
    hash: H,
}

impl<const N: usize> Limits<N> {
    /// Every limit must allow.
    pub fn all<L: TryInto<Limit>>(limits: [L; N]) -> Result<Self, LimitError>
    where
        LimitError: From<L::Error>,
    {
        Self::needing(Need::All, limits)
    }

    /// At least one limit must allow; those that do are charged.
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
    /// The same limits with another clock, and nothing charged yet.
    pub fn clock<D: Clock>(self, clock: D) -> Limits<N, D, H> {
        Limits::with(self.need, self.keys.map(|keys| *keys.limit()), self.capacity, clock, self.hash)
    }

    /// The same limits with this many bytes for the keys of all of them, in equal parts, and nothing charged yet.
    /// Default: 128 MiB for each limit. See [`Builder::memory_budget`](crate::Builder::memory_budget).
    pub fn memory_budget(self, bytes: usize) -> Self {
        let capacity = Capacity { bytes, ..self.capacity }.each_of(N);
        Self::with(self.need, self.keys.map(|keys| *keys.limit()), capacity, self.clock, self.hash)
    }

    fn with(need: Need, limits: [Limit; N], capacity: Capacity, clock: C, hash: H) -> Self {
        let now = clock.now();
        Self { need, keys: limits.map(|limit| Keys::new(limit, capacity, now)), capacity, clock, hash }
    }

    /// Answers one ask over all limits, and charges all or none.
    ///
    /// The keys are held, in the order of the limits, for as long as it takes to decide; an ask that needs one
    /// of them meanwhile waits those few instructions.
    pub fn check(&self, asks: [Ask<'_>; N]) -> Verdict {
        let now = self.clock.now();
        let mut held: [HeldKey<'_>; N] =
            std::array::from_fn(|i| self.keys[i].hold(self.hash.fingerprint(asks[i].key), now));
        let decisions: [_; N] = std::array::from_fn(|i| held[i].decide(asks[i].cost, now));
        let verdict = self.need.judge(&decisions);
        if verdict.decision.allowed {
            let charged = held.iter_mut().zip(&asks).zip(&decisions).filter(|(_, decision)| decision.allowed);
            charged.for_each(|((key, ask), _)| key.charge(ask.cost, now));
        }
        verdict
    }

    /// What each key has left on its limit, spending nothing.
    pub fn peek_each(&self, keys: [&[u8]; N]) -> [Decision; N] {
        let now = self.clock.now();
        std::array::from_fn(|i| self.keys[i].peek(self.hash.fingerprint(keys[i]), now))
    }
}

debug_fields!(
    [const N: usize, C, H] Limits<N, C, H>,
    |it| need = it.need, limits = it.keys.each_ref().map(Keys::limit)
);
