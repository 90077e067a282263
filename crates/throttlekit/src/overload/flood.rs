//! The limiter for floods: the busiest keys exactly, all others in a sketch.

use std::time::Duration;

use throttlekit_core::overload::{FloodWindow, Hot, SketchError, SketchLimit};
use throttlekit_core::{Decision, Timestamp};

use super::FloodBuilder;
use super::guarded::Guarded;
use super::shared::Shared;
use crate::{Call, Clock, KeyHash, PreciseClock, SecretHash};

/// [`SketchLimiter`](super::SketchLimiter) with the busiest keys counted one by one.
///
/// It guarantees the same: no key is admitted more than its limit in a window, ever, in fixed memory. In addition busy
/// keys do not fill the counters which quiet ones share, so far fewer quiet ones are denied early; and it can report
/// the busiest keys.
///
/// ```
/// use std::time::Duration;
/// use throttlekit::FloodLimiter;
///
/// let shield = FloodLimiter::builder(100, Duration::from_secs(60)).hot_keys(4_096).build()?;
/// while shield.check("203.0.113.7").allowed {}
/// assert!(shield.check("198.51.100.1").allowed);
///
/// let busiest = shield.busiest(1);
/// assert_eq!(busiest[0].hash, shield.fingerprint("203.0.113.7"));
/// assert_eq!((busiest[0].admitted, busiest[0].denied), (100, 1));
/// # Ok::<(), throttlekit::overload::SketchError>(())
/// ```
pub struct FloodLimiter<C = PreciseClock, H = SecretHash> {
    pub(super) keys: Guarded<FloodWindow<Shared>>,
    pub(super) clock: C,
    pub(super) hash: H,
}

impl FloodLimiter {
    /// Creates a limiter with the defaults: 1,024 keys counted one by one, ε 0.01 and δ 0.001 for the rest, precise
    /// clock, attack-resistant hash with a secret of its own; 24,000 bytes.
    pub fn new(units: u64, window: Duration) -> Result<Self, SketchError> {
        Self::builder(units, window).build()
    }

    /// Creates a builder, with all options.
    pub fn builder(units: u64, window: Duration) -> FloodBuilder {
        FloodBuilder::new(units, window)
    }
}

impl<C: Clock, H: KeyHash> FloodLimiter<C, H> {
    /// Checks one request, and charges it if allowed.
    #[inline]
    pub fn check<'a>(&self, ask: impl Into<Call<'a>>) -> Decision {
        let ask = ask.into();
        self.keys.check(self.fingerprint(ask.key()), ask.units(), self.clock.now())
    }

    /// Returns what a key has at least left, without spending: `allowed` reports whether one unit would pass.
    pub fn peek(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> Decision {
        self.keys.peek(self.fingerprint(key), self.clock.now())
    }

    /// Returns up to `count` keys, the busiest of this window first. Scans the whole table: for dashboards, not for
    /// requests.
    ///
    /// Keys are identified by their hash alone: compare with the [`fingerprint`](Self::fingerprint)s of keys that you
    /// log. It blocks no request, so the numbers of a key may be of the moment before or after.
    pub fn busiest(&self, count: usize) -> Vec<Hot> {
        let current = self.keys.is_current(self.clock.now());
        if current { self.keys.rule().busiest(count) } else { Vec::new() }
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

    /// Returns the limit.
    pub fn limit(&self) -> &SketchLimit {
        self.keys.rule().limit()
    }

    /// Returns the bytes that its counts take.
    pub fn bytes(&self) -> usize {
        self.keys.rule().bytes()
    }
}

debug_fields!([C, H] FloodLimiter<C, H>, |it| limit = it.keys.rule().limit(), bytes = it.keys.rule().bytes());
