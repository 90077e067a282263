//! A limiter over many keys.

use throttlekit_core::overload::HotKey;
use throttlekit_core::rate::{Limit, LimitError, Mark, Verdict};
use throttlekit_core::{Decision, Forecast, Timestamp};

use super::several::{Position, Several};
use super::sketch::SketchKeys;
use super::{KeyMemory, KeylessLimiter, LimiterBuilder};
use crate::clock::{Clock, SystemClock};
use crate::hash::{KeyHash, SecretHash};
use crate::memory::{BATCH, Keys};
use crate::{BuildError, Call};

/// One or several limits over many keys, in this process.
///
/// `check` takes tens of nanoseconds and never waits for I/O, so async code can call it directly. A known key costs one
/// compare-and-swap and no lock or allocation if its state is one word; a new key, and rules with more state, take a
/// short lock. Share it by reference or in an `Arc`.
///
/// ```
/// use throttlekit::{Limiter, Rate};
///
/// let limiter = Limiter::new(Rate::per_minute(100).burst(10))?;
///
/// let decision = limiter.check("alice");
/// assert!(decision.allowed && decision.remaining == 9);
///
/// let costly = limiter.check(("alice", 20));
/// assert!(!costly.allowed, "20 units never fit a burst of 10");
/// # Ok::<(), throttlekit::BuildError>(())
/// ```
///
/// Several limits decide as one: all are charged, or none.
///
/// ```
/// use throttlekit::{Budget, Call, Limiter, Rate};
///
/// let limiter = Limiter::builder(Rate::per_minute(60))
///     .limit("daily", Budget::per_day(10_000))
///     .limit_by(1, "org", Rate::per_minute(1_000))
///     .build()?;
/// let call = Call::by("alice").and(&["acme"]);
/// assert!(limiter.check(call).allowed);
///
/// let (decision, binding) = limiter.check_binding(call);
/// assert_eq!((decision.remaining, binding), (58, 0), "the rate of alice has the least left");
/// assert_eq!(limiter.limit_name(2), Some("org"));
/// # Ok::<(), throttlekit::BuildError>(())
/// ```
#[doc(alias = "RateLimiter")]
#[doc(alias = "governor")]
pub struct Limiter<C = SystemClock, H = SecretHash> {
    counts: Counts,
    clock: C,
    hash: H,
}

/// The counts of a limiter.
#[expect(clippy::large_enum_variant, reason = "the common one is read without an indirection")]
pub(super) enum Counts {
    One(Keys),
    Several(Box<Several>),
    Sketch(Box<SketchKeys>),
}

/// The two modes take tags that [`Keys`] leaves free, so a check still compares one tag.
const _: () = assert!(size_of::<Counts>() == size_of::<Keys>());

impl Limiter {
    /// Creates a limiter with the defaults: precise clock, attack-resistant hash, at most 128 MiB for keys, 2.4 MiB of
    /// it at once.
    pub fn new<L: TryInto<Limit>>(limit: L) -> Result<Self, BuildError>
    where
        LimitError: From<L::Error>,
    {
        Self::builder(limit).build()
    }

    /// Creates a builder with this limit, which counts by the first key of a call. A [`Rate`](crate::Rate), a
    /// [`Budget`](crate::Budget), which is a hard quota here, or any [`Limit`].
    pub fn builder<L: TryInto<Limit>>(limit: L) -> LimiterBuilder
    where
        LimitError: From<L::Error>,
    {
        LimiterBuilder::new(limit)
    }

    /// Creates a limiter without keys: one limit for a route, a backend, the process.
    pub fn keyless<L: TryInto<Limit>>(limit: L) -> Result<KeylessLimiter, BuildError>
    where
        LimitError: From<L::Error>,
    {
        Self::builder(limit).build_keyless()
    }
}

impl<C: Clock, H: KeyHash> Limiter<C, H> {
    pub(super) fn from_parts(counts: Counts, clock: C, hash: H) -> Self {
        Self { counts, clock, hash }
    }

    /// Checks one call, and charges it if allowed.
    // The call is converted on each path by itself: if one of them passed it by reference, all would write it to memory.
    // Always inline: a tenth of the instructions would save registers and return the decision.
    #[inline(always)]
    pub fn check<'a>(&self, call: impl Into<Call<'a>>) -> Decision {
        if let Counts::One(Keys::Gcra(table, _)) = &self.counts {
            let call = call.into();
            return table.check(self.hash.fingerprint(call.key()), call.units(), &self.clock);
        }
        self.check_other(call)
    }

    /// Separate, so that the common path stays short and compares one tag; generic, so that the call is created here.
    #[inline(never)]
    fn check_other<'a>(&self, call: impl Into<Call<'a>>) -> Decision {
        match &self.counts {
            Counts::One(keys) => {
                let call = call.into();
                keys.check_at(self.hash.fingerprint(call.key()), call.units(), self.clock.now())
            }
            Counts::Several(several) => {
                several.check(&call.into(), &self.hash, self.clock.now(), None).decision
            }
            Counts::Sketch(keys) => {
                let call = call.into();
                keys.check(self.hash.fingerprint(call.key()), call.units(), self.clock.now())
            }
        }
    }

    /// Like [`check`](Self::check), and returns the index of the limit that determined the decision: for a denial the
    /// one to wait for, otherwise the one with the least left (of [`any`](LimiterBuilder::any), the one with the most).
    pub fn check_binding<'a>(&self, call: impl Into<Call<'a>>) -> (Decision, usize) {
        let Counts::Several(several) = &self.counts else { return (self.check(call), 0) };
        let Verdict { decision, binding } = several.check(&call.into(), &self.hash, self.clock.now(), None);
        (decision, binding)
    }

    /// Like [`check`](Self::check), with proof of the charge, by which it can be [settled](Self::settle) when the
    /// actual cost is known. `None` if the call was denied, and for a limiter with a [`sketch`](LimiterBuilder::sketch),
    /// whose counts cannot be lowered.
    ///
    /// ```
    /// use throttlekit::{Budget, Limiter};
    ///
    /// let tokens = Limiter::new(Budget::per_minute(1_000).tokens()?)?;
    /// let (decision, charged) = tokens.charge(("acme", 300));
    /// assert!(decision.remaining == 700);
    /// if let Some(charged) = charged {
    ///     tokens.settle(charged, 120);
    /// }
    /// assert_eq!(tokens.peek("acme").remaining, 880);
    /// # Ok::<(), throttlekit::BuildError>(())
    /// ```
    // Always inline, as `check`.
    #[inline(always)]
    pub fn charge<'a>(&self, call: impl Into<Call<'a>>) -> (Decision, Option<Charged>) {
        let Counts::One(keys) = &self.counts else { return self.charge_other(call) };
        let call = call.into();
        let (key, cost) = (self.hash.fingerprint(call.key()), call.units());
        let (decision, mark) = keys.check_marked(key, cost, self.clock.now());
        (decision, decision.allowed.then_some(Charged(ChargedAt::One { key, mark, cost })))
    }

    #[inline(never)]
    fn charge_other<'a>(&self, call: impl Into<Call<'a>>) -> (Decision, Option<Charged>) {
        let Counts::Several(several) = &self.counts else { return (self.check(call), None) };
        let mut positions = Vec::new();
        let verdict = several.check(&call.into(), &self.hash, self.clock.now(), Some(&mut positions));
        (verdict.decision, verdict.decision.allowed.then_some(Charged(ChargedAt::Several(positions))))
    }

    /// Replaces the charged cost by the actual cost: returns the rest to the window it came from, or charges the
    /// difference, which may go beyond the limit. Call it on the limiter that charged, and before a reset of the key.
    #[inline(always)]
    pub fn settle(&self, charged: Charged, actual: u64) {
        match (&self.counts, charged.0) {
            (Counts::One(keys), ChargedAt::One { key, mark, cost }) if cost != actual => {
                keys.settle(key, mark, cost, actual, self.clock.now());
            }
            (Counts::Several(several), ChargedAt::Several(at)) => {
                several.settle(&at, actual, self.clock.now());
            }
            _ => {}
        }
    }

    /// Checks each call, all at one instant and in order.
    ///
    /// ```
    /// use throttlekit::{Limiter, Rate};
    ///
    /// let limiter = Limiter::new(Rate::per_minute(10))?;
    /// let decisions = limiter.check_many(["alice", "bob"]);
    /// assert!(decisions.iter().all(|decision| decision.allowed));
    /// assert_eq!(limiter.check_many([("alice", 9), ("bob", 10)])[1].remaining, 9);
    /// # Ok::<(), throttlekit::BuildError>(())
    /// ```
    pub fn check_many<'a, T: Into<Call<'a>>>(&self, calls: impl IntoIterator<Item = T>) -> Vec<Decision> {
        let mut decisions = Vec::new();
        self.check_many_into(calls, &mut decisions);
        decisions
    }

    /// Like [`check_many`](Self::check_many), into the caller's vector, whose content it replaces.
    pub fn check_many_into<'a, T: Into<Call<'a>>>(
        &self,
        calls: impl IntoIterator<Item = T>,
        decisions: &mut Vec<Decision>,
    ) {
        decisions.clear();
        let (calls, now) = (calls.into_iter(), self.clock.now());
        decisions.reserve(calls.size_hint().0);
        let single = |call: T| {
            let call = call.into();
            (self.hash.fingerprint(call.key()), call.units())
        };
        match &self.counts {
            Counts::One(keys) => {
                let mut calls = calls.map(single);
                while keys.check_batch(calls.by_ref().take(BATCH), now, decisions) == BATCH
                    && calls.size_hint().1 != Some(0)
                {}
            }
            Counts::Several(several) => {
                let check = |call: T| several.check(&call.into(), &self.hash, now, None).decision;
                decisions.extend(calls.map(check));
            }
            Counts::Sketch(keys) => {
                decisions.extend(calls.map(single).map(|(key, cost)| keys.check(key, cost, now)));
            }
        }
    }

    /// Returns what a call's key has left, without spending: `allowed` reports whether one unit would pass. Of several
    /// limits, the combined decision.
    pub fn peek<'a>(&self, call: impl Into<Call<'a>>) -> Decision {
        let (call, now) = (call.into(), self.clock.now());
        match &self.counts {
            Counts::One(keys) => keys.peek(self.hash.fingerprint(call.key()), now),
            Counts::Several(several) => several.peek(&several.parts(&call, &self.hash), now),
            Counts::Sketch(keys) => keys.peek(self.hash.fingerprint(call.key()), now),
        }
    }

    /// Returns what is left on each limit, in the order of the limits, without spending.
    pub fn peek_each<'a>(&self, call: impl Into<Call<'a>>) -> Vec<Decision> {
        let call = call.into();
        match &self.counts {
            Counts::Several(several) => {
                several.peek_each(&several.parts(&call, &self.hash), self.clock.now())
            }
            _ => vec![self.peek(call)],
        }
    }

    /// Forecasts what a key could spend at the call's cost, now and later. Of several limits, by the one with the least
    /// to spend (of [`any`](LimiterBuilder::any), the most).
    pub fn forecast<'a>(&self, call: impl Into<Call<'a>>) -> Forecast {
        let (call, now) = (call.into(), self.clock.now());
        let cost = call.units();
        match &self.counts {
            Counts::One(keys) => keys.forecast(self.hash.fingerprint(call.key()), cost, now),
            Counts::Several(several) => several.forecast(&several.parts(&call, &self.hash), now),
            Counts::Sketch(keys) => keys.forecast(self.hash.fingerprint(call.key()), cost, now),
        }
    }

    /// Forgets a key: its next call counts as its first. Limits by a key that the call does not have stay as they are.
    ///
    /// A key that is estimated, beyond the memory budget or in a sketch, is not forgotten: its usage is in cells that
    /// others share.
    pub fn reset<'a>(&self, call: impl Into<Call<'a>>) {
        let call = call.into();
        match &self.counts {
            Counts::One(keys) => keys.reset(self.hash.fingerprint(call.key())),
            Counts::Several(several) => several.reset(&call, &several.parts(&call, &self.hash)),
            Counts::Sketch(_) => {}
        }
    }

    /// Returns how full the memory for keys is, and how many calls it was too small for. Scans the whole store: for
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
    /// # Ok::<(), throttlekit::BuildError>(())
    /// ```
    pub fn memory(&self) -> KeyMemory {
        let now = self.clock.now();
        match &self.counts {
            Counts::One(keys) => keys.memory(now),
            Counts::Several(several) => several.memory(now),
            Counts::Sketch(keys) => keys.memory(),
        }
    }

    /// Returns up to `count` keys, the busiest of this window first. Empty unless built with a
    /// [`sketch`](LimiterBuilder::sketch) that has hot keys. Scans all of them: for dashboards, not for requests.
    ///
    /// Keys are identified by their fingerprint alone: compare with the [`fingerprint`](Self::fingerprint)s of keys
    /// that you log. It blocks no request, so the numbers of a key may be of the moment before or after.
    pub fn busiest(&self, count: usize) -> Vec<HotKey> {
        match &self.counts {
            Counts::Sketch(keys) => keys.busiest(count, self.clock.now()),
            _ => Vec::new(),
        }
    }

    /// Returns the hash that identifies a key in this limiter.
    #[inline]
    pub fn fingerprint(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> u64 {
        self.hash.fingerprint(key.as_ref())
    }

    /// Returns the current time of this limiter's clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

impl<C, H> Limiter<C, H> {
    /// Returns the first limit.
    pub fn limit(&self) -> &Limit {
        self.limit_at(0).expect("a limiter has a limit")
    }

    /// Returns all limits, in order.
    pub fn limits(&self) -> impl Iterator<Item = &Limit> {
        (0..).map_while(|index| self.limit_at(index))
    }

    /// Returns the name of a limit that was added by name; `None` for the first.
    pub fn limit_name(&self, index: usize) -> Option<&str> {
        if let Counts::Several(several) = &self.counts { several.name(index) } else { None }
    }

    fn limit_at(&self, index: usize) -> Option<&Limit> {
        match &self.counts {
            Counts::Several(several) => several.limit(index),
            Counts::One(keys) if index == 0 => Some(keys.limit()),
            Counts::Sketch(keys) if index == 0 => Some(keys.limit()),
            _ => None,
        }
    }
}

/// Proof of a charge in this process. Settled once: it cannot be copied. If dropped, the charge stays.
#[derive(Debug, PartialEq, Eq)]
pub struct Charged(ChargedAt);

#[derive(Debug, PartialEq, Eq)]
enum ChargedAt {
    One { key: u64, mark: Mark, cost: u64 },
    Several(Vec<Position>),
}

debug_fields!([C, H] Limiter<C, H>, |it| limits = it.limits().collect::<Vec<_>>());
