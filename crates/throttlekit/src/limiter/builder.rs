//! Builder of a limiter.

use throttlekit_core::rate::{Limit, LimitError, Need};

use super::keyed::Counts;
use super::several::{LIMITS_MAX, LimitEntry, Several};
use super::{KeylessLimiter, Sketch};
use crate::clock::{Clock, SystemClock};
use crate::hash::{KeyHash, SecretHash};
use crate::memory::{Capacity, Keys};
use crate::{BuildError, Limiter};

/// Builder of a [`Limiter`].
///
/// ```
/// use throttlekit::clock::CoarseClock;
/// use throttlekit::hash::TrustedHash;
/// use throttlekit::{Limiter, Rate};
///
/// let limiter = Limiter::builder(Rate::per_second(1_000))
///     .memory_budget(128 << 20)
///     .expected_keys(1_000_000)
///     .hash::<TrustedHash>()
///     .clock(CoarseClock::start())
///     .build()?;
/// assert!(limiter.check("tenant-7").allowed);
/// # Ok::<(), throttlekit::BuildError>(())
/// ```
#[derive(Debug)]
pub struct LimiterBuilder<C = SystemClock, H = SecretHash> {
    options: Options,
    clock: ClockChoice<C>,
    hash: H,
}

#[derive(Debug)]
struct Options {
    /// The limits, or the first error.
    limits: Result<Vec<LimitEntry>, BuildError>,
    need: Need,
    sketch: Option<Sketch>,
    /// `None`: the default for each limit.
    memory_budget: Option<usize>,
    expected_keys: usize,
}

#[derive(Debug)]
enum ClockChoice<C> {
    Fitting(fn(&[Limit]) -> C),
    Given(C),
}

impl LimiterBuilder {
    pub(super) fn new<L: TryInto<Limit>>(limit: L) -> Self
    where
        LimitError: From<L::Error>,
    {
        let limit = limit.try_into().map_err(LimitError::from);
        let first = limit.map(|limit| vec![LimitEntry { name: None, key: 0, limit }]);
        let options = Options {
            limits: first.map_err(BuildError::from),
            need: Need::All,
            sketch: None,
            memory_budget: None,
            expected_keys: Capacity::default().expected_keys,
        };
        Self { options, clock: ClockChoice::Fitting(SystemClock::for_limits), hash: SecretHash::random() }
    }
}

impl<C: Clock, H: KeyHash> LimiterBuilder<C, H> {
    /// Adds a limit on the same key. A call must pass all limits, and is charged to all of them or to none. At most 16
    /// limits.
    pub fn limit<L: TryInto<Limit>>(self, name: &str, limit: L) -> Self
    where
        LimitError: From<L::Error>,
    {
        self.limit_by(0, name, limit)
    }

    /// Adds a limit that counts by the call's key at `index`: 0 is the key of [`Call::by`](crate::Call::by), those of
    /// [`and`](crate::Call::and) follow. All calls without such a key share one.
    pub fn limit_by<L: TryInto<Limit>>(mut self, index: usize, name: &str, limit: L) -> Self
    where
        LimitError: From<L::Error>,
    {
        let limit = limit.try_into().map_err(LimitError::from);
        self.options.limits = self.options.limits.and_then(|limits| with_limit(limits, index, name, limit?));
        self
    }

    /// Requires one limit to allow a call instead of all; those that do are charged.
    pub fn any(mut self) -> Self {
        self.options.need = Need::Any;
        self
    }

    /// Counts in a sketch: memory does not grow with the number of keys. One limit only, in windows of a fixed length
    /// aligned to the epoch: a [`Budget`](crate::Budget) per minute, hour or day, or a
    /// [`fixed_window`](Limit::fixed_window). The memory options below do not apply.
    ///
    /// ```
    /// use throttlekit::{Budget, Limiter, limiter::Sketch};
    ///
    /// let sketch = Sketch::new(0.001, 0.001).hot_keys(4_096);
    /// let shield = Limiter::builder(Budget::per_minute(100)).sketch(sketch).build()?;
    /// while shield.check("203.0.113.7").allowed {}
    /// assert!(shield.check("198.51.100.1").allowed);
    ///
    /// let busiest = shield.busiest(1);
    /// assert_eq!(busiest[0].fingerprint, shield.fingerprint("203.0.113.7"));
    /// assert_eq!((busiest[0].admitted, busiest[0].denied), (100, 1));
    /// # Ok::<(), throttlekit::BuildError>(())
    /// ```
    pub fn sketch(mut self, sketch: Sketch) -> Self {
        self.options.sketch = Some(sketch);
        self
    }

    /// Sets the maximum number of bytes for keys; several limits get equal parts. Default: 128 MiB for each limit, which
    /// counts four million keys of one word exactly.
    ///
    /// Memory is allocated as keys arrive. A key whose state is one word takes 16 bytes, and 22 with its part of the
    /// estimates: windows, and GCRA, token and leaky buckets at common rates (3 a second or 100 a minute, but not 7 a
    /// minute, whose unit is no short fraction of a nanosecond). Other states are larger, and counted as they are. Keys
    /// whose state has fully recovered are evicted first.
    ///
    /// Beyond the budget a key without an entry is counted in an estimate. It is never below the key's use, so no key
    /// gets more than its limit, and it may be above, so a key may be denied early. See
    /// [`Limiter::memory`](crate::Limiter::memory).
    pub fn memory_budget(mut self, bytes: usize) -> Self {
        self.options.memory_budget = Some(bytes);
        self
    }

    /// Preallocates a table for this many keys, 39 bytes each, so that nearly all of them are found in one cache line.
    /// More keys allocate memory as they arrive, and checking them probes a few more positions. At most three quarters
    /// of the budget. Default: 65,536. No effect if a key's state is more than one word.
    pub fn expected_keys(mut self, keys: usize) -> Self {
        self.options.expected_keys = keys;
        self
    }

    /// Sets the clock, instead of the one that fits the limits.
    pub fn clock<D: Clock>(self, clock: D) -> LimiterBuilder<D, H> {
        LimiterBuilder { options: self.options, clock: ClockChoice::Given(clock), hash: self.hash }
    }

    /// Sets the key hash, with a new random secret. Default: [`SecretHash`]. Use another only if the operator chooses
    /// the keys.
    pub fn hash<G: KeyHash>(self) -> LimiterBuilder<C, G> {
        self.hash_with(G::random())
    }

    /// Sets the key hash with its secret, to replay a run. Anyone who knows the secret can choose keys that collide, so
    /// that others are denied early; nobody is admitted more.
    pub fn hash_with<G: KeyHash>(self, hash: G) -> LimiterBuilder<C, G> {
        LimiterBuilder { options: self.options, clock: self.clock, hash }
    }

    /// Builds the limiter. Fails if a limit is invalid, its name is taken or invalid, there are more than 16, or the
    /// sketch cannot count the limit.
    pub fn build(self) -> Result<Limiter<C, H>, BuildError> {
        let limits = self.options.limits?;
        let clock = self.clock.of(&limits);
        let default = Capacity { expected_keys: self.options.expected_keys, ..Capacity::default() };
        let capacity = match self.options.memory_budget {
            Some(bytes) => Capacity { bytes, ..default }.each_of(limits.len()),
            None => default,
        };
        let counts = match (&limits[..], self.options.sketch) {
            ([one], None) => Counts::One(Keys::new(one.limit, capacity, clock.now())),
            ([one], Some(sketch)) => Counts::Sketch(Box::new(sketch.keys(one.limit)?)),
            (_, None) => {
                Counts::Several(Box::new(Several::new(limits, self.options.need, capacity, clock.now())))
            }
            (_, Some(_)) => return Err(BuildError::InvalidSketch("a sketch counts one limit")),
        };
        Ok(Limiter::from_parts(counts, clock, self.hash))
    }

    /// Builds a limiter without keys, of one limit. Options for keys do not apply.
    pub fn build_keyless(self) -> Result<KeylessLimiter<C>, BuildError> {
        let limits = self.options.limits?;
        let [one] = &limits[..] else { return Err(BuildError::TooManyLimits { max: 1 }) };
        if self.options.sketch.is_some() {
            return Err(BuildError::InvalidSketch("a limiter without keys needs none"));
        }
        Ok(KeylessLimiter::from_parts(one.limit, self.clock.of(&limits)))
    }
}

impl<C> ClockChoice<C> {
    fn of(self, limits: &[LimitEntry]) -> C {
        match self {
            Self::Fitting(fitting) => fitting(&limits.iter().map(|entry| entry.limit).collect::<Vec<_>>()),
            Self::Given(clock) => clock,
        }
    }
}

fn with_limit(
    mut limits: Vec<LimitEntry>,
    key: usize,
    name: &str,
    limit: Limit,
) -> Result<Vec<LimitEntry>, BuildError> {
    if limits.len() == LIMITS_MAX {
        return Err(BuildError::TooManyLimits { max: LIMITS_MAX });
    }
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if name.is_empty() || !name.chars().all(is_valid) {
        return Err(BuildError::InvalidName(name.into()));
    }
    if limits.iter().any(|limit| limit.name.as_deref() == Some(name)) {
        return Err(BuildError::DuplicateName(name.into()));
    }
    limits.push(LimitEntry { name: Some(name.into()), key, limit });
    Ok(limits)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Budget, Rate};

    fn numbered(limits: usize) -> LimiterBuilder {
        (1..limits).fold(Limiter::builder(Rate::per_second(1)), |builder, number| {
            builder.limit(&format!("limit-{number}"), Rate::per_second(1))
        })
    }

    #[test]
    fn sixteen_limits_are_built_and_seventeen_are_refused() {
        let limiter = numbered(16).build().unwrap();
        assert_eq!(limiter.limits().count(), 16);
        assert_eq!((limiter.limit_name(0), limiter.limit_name(15)), (None, Some("limit-15")));
        assert!(limiter.check("alice").allowed && !limiter.check("alice").allowed);
        let error = numbered(17).build().unwrap_err();
        assert_eq!(error, BuildError::TooManyLimits { max: 16 });
    }

    #[test]
    fn the_first_error_is_reported() {
        let rate = Rate::per_second(1);
        let build =
            |name: &str, other: &str| Limiter::builder(rate).limit(name, rate).limit(other, rate).build();
        assert_eq!(build("a", "a").unwrap_err(), BuildError::DuplicateName("a".into()));
        assert_eq!(build("a b", "").unwrap_err(), BuildError::InvalidName("a b".into()));
        let zero = Limiter::builder(rate).limit("zero", Rate::per_second(0)).limit("", rate).build();
        assert_eq!(zero.unwrap_err(), BuildError::Limit(LimitError::Units(0)));
    }

    #[test]
    fn several_limits_follow_the_wall_clock_if_one_of_them_does() {
        let builder = Limiter::builder(Rate::per_second(1)).limit("daily", Budget::per_day(1));
        assert!(matches!(builder.clock.of(&builder.options.limits.unwrap()), SystemClock::Wall(_)));
    }

    #[test]
    fn unsupported_combinations_are_build_errors() {
        let minute = Budget::per(1, Duration::from_secs(60));
        let sketched = |builder: LimiterBuilder| builder.sketch(Sketch::default());
        let refused = |built: Result<(), BuildError>| matches!(built, Err(BuildError::InvalidSketch(_)));
        assert!(refused(sketched(Limiter::builder(Rate::per_minute(1))).build().map(drop)));
        assert!(refused(sketched(Limiter::builder(minute).limit("other", minute)).build().map(drop)));
        assert!(refused(sketched(Limiter::builder(minute)).build_keyless().map(drop)));
        let keyless = Limiter::builder(minute).limit("other", minute).build_keyless();
        assert_eq!(keyless.unwrap_err(), BuildError::TooManyLimits { max: 1 });
    }
}
