//! A limit over any number of keys, in the memory of one sketch.

use std::time::Duration;

use throttlekit_core::overload::{Shape, SketchError, SketchLimit, SketchWindow};
use throttlekit_core::{Decision, Timestamp};

use super::SketchBuilder;
use super::guarded::Guarded;
use super::shared::Shared;
use crate::{Call, Clock, KeyHash, PreciseClock, SecretHash};

/// A limit of units for each key in each window, over any number of keys, in fixed memory. Default: 7,616 bytes.
///
/// No key is ever admitted more than its limit in a window, whatever the traffic, with any number of threads. The price
/// is that a key may be denied early, when others fill the counters that it shares with them: by more than ε of all
/// units admitted in the window with probability at most δ. So choose ε such that ε times what is admitted in a window
/// is small beside the limit. A denied key can be admitted again in the next window.
///
/// A denied request takes no lock and writes nothing.
///
/// ```
/// use std::time::Duration;
/// use throttlekit::{Call, SketchLimiter};
///
/// let shield = SketchLimiter::new(100, Duration::from_secs(60))?;
/// assert!(shield.check("203.0.113.7").allowed);
/// assert_eq!(shield.check(Call::by("203.0.113.7").cost(99)).remaining, 0);
/// assert!(!shield.check("203.0.113.7").allowed);
/// # Ok::<(), throttlekit::overload::SketchError>(())
/// ```
pub struct SketchLimiter<C = PreciseClock, H = SecretHash> {
    pub(super) keys: Guarded<SketchWindow<Shared>>,
    pub(super) clock: C,
    pub(super) hash: H,
}

impl SketchLimiter {
    /// Creates a limiter with the defaults: ε 0.01, δ 0.001, precise clock, attack-resistant hash with a secret of its
    /// own.
    pub fn new(units: u64, window: Duration) -> Result<Self, SketchError> {
        Self::builder(units, window).build()
    }

    /// Creates a builder, with all options.
    pub fn builder(units: u64, window: Duration) -> SketchBuilder {
        SketchBuilder::new(units, window)
    }
}

impl<C: Clock, H: KeyHash> SketchLimiter<C, H> {
    /// Checks one request, and charges it if allowed.
    #[inline]
    pub fn check<'a>(&self, ask: impl Into<Call<'a>>) -> Decision {
        let ask = ask.into();
        self.keys.check(self.hash.fingerprint(ask.key()), ask.units(), self.clock.now())
    }

    /// Returns what a key has at least left, without spending: `allowed` reports whether one unit would pass.
    pub fn peek(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> Decision {
        self.keys.peek(self.hash.fingerprint(key.as_ref()), self.clock.now())
    }

    /// Returns the current time of this limiter's clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the limit.
    pub fn limit(&self) -> &SketchLimit {
        self.keys.rule().limit()
    }

    /// Returns the size of the sketch.
    pub fn shape(&self) -> Shape {
        self.keys.rule().shape()
    }
}

debug_fields!([C, H] SketchLimiter<C, H>, |it| limit = it.keys.rule().limit(), shape = it.keys.rule().shape());
