//! Client-side load shedding for a backend that is full.

use std::time::Duration;

use throttlekit_core::overload::{Criticality, Throttle, ThrottleError};

use crate::hash::random_u64;
use crate::sync::Mutex;
use crate::{Clock, PreciseClock};

/// Default K: the backend gets up to twice what it accepts.
const K_THOUSANDTHS: u32 = 2_000;
/// Default window.
const WINDOW: Duration = Duration::from_secs(10);

/// Sheds a growing part of the calls to a backend, the fewer of them it accepts.
///
/// A client that keeps calling a full backend makes it spend its time on refusals. This one stops sending what would be
/// refused: a call is shed with probability `max(0, (requests − K·accepts)/(requests + 1))`, over the last ten seconds,
/// scaled down by its [`Criticality`]. It needs no configured limit, and stops shedding as the backend recovers.
///
/// ```
/// use throttlekit::AdaptiveThrottle;
/// use throttlekit::overload::Criticality;
///
/// let backend = AdaptiveThrottle::new();
/// match backend.admit(Criticality::ORDINARY) {
///     Some(attempt) => attempt.accepted(), // after the backend took the call; else drop it
///     None => return,                      // shed: fail at once, do not even try
/// }
/// assert_eq!(backend.shed_per_million(Criticality::ORDINARY), 0);
/// ```
pub struct AdaptiveThrottle<C = PreciseClock> {
    state: Mutex<(Throttle, Dice)>,
    clock: C,
}

/// A call that may be sent.
///
/// Call [`accepted`](Self::accepted) when the backend took it, whatever the result. If dropped, it counts as refused:
/// this covers a timeout, an error and a panic.
#[derive(Debug)]
#[must_use = "a call that is not said to be accepted counts as refused"]
pub struct Attempt<'a, C: Clock = PreciseClock> {
    throttle: &'a AdaptiveThrottle<C>,
}

impl AdaptiveThrottle {
    /// Creates a throttle with K 2 over ten seconds.
    pub fn new() -> Self {
        Self::with(K_THOUSANDTHS, WINDOW, PreciseClock::new()).expect("the defaults are a throttle")
    }
}

impl Default for AdaptiveThrottle {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Clock> AdaptiveThrottle<C> {
    /// Creates a throttle that sends up to K, in thousandths, times what is accepted, over a window of this length.
    pub fn with(k_thousandths: u32, window: Duration, clock: C) -> Result<Self, ThrottleError> {
        let throttle = Throttle::new(k_thousandths, window)?;
        Ok(Self { state: Mutex::new((throttle, Dice(random_u64()))), clock })
    }

    /// Checks whether a call may be sent. Returns `None` if it is shed.
    pub fn admit(&self, criticality: Criticality) -> Option<Attempt<'_, C>> {
        let now = self.clock.now();
        let (throttle, dice) = &mut *self.state.lock();
        throttle.admit(criticality, dice.roll(), now).then_some(Attempt { throttle: self })
    }

    /// Returns how many of a million calls of this criticality are shed now: for dashboards.
    pub fn shed_per_million(&self, criticality: Criticality) -> u32 {
        let now = self.clock.now();
        self.state.lock().0.shed_per_million(criticality, now)
    }
}

impl<C: Clock> Attempt<'_, C> {
    /// Records that the backend took the call.
    pub fn accepted(self) {
        let now = self.throttle.clock.now();
        self.throttle.state.lock().0.accept(now);
    }
}

debug_fields!([C] AdaptiveThrottle<C>);

/// SplitMix64: predicting it gains nothing.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 32) as u32
    }
}
