//! Client-side load shedding for a backend that is full.

use std::time::Duration;

use throttlekit_core::overload::{Criticality, Throttle, ThrottleError};

use crate::BuildError;
use crate::clock::{Clock, PreciseClock};
use crate::hash::random_u64;
use crate::sync::Mutex;

/// Default multiplier: the backend gets up to twice what it accepts.
const MULTIPLIER: f64 = 2.0;
/// Default window.
const WINDOW: Duration = Duration::from_secs(10);

/// Sheds a growing part of the calls to a backend, the fewer of them it accepts.
///
/// A client that keeps calling a full backend makes it spend its time on refusals. This one stops sending what would be
/// refused: a call is shed with probability `max(0, (requests − K·accepts)/(requests + 1))`, over the last ten seconds,
/// scaled down by its [`Criticality`]. It needs no configured limit, and stops shedding as the backend recovers.
///
/// ```
/// use throttlekit::overload::{AdaptiveThrottle, Criticality};
///
/// let backend = AdaptiveThrottle::new()?;
/// if let Some(attempt) = backend.admit(Criticality::ORDINARY) {
///     attempt.accepted(); // after the backend took the call; else drop it
/// } // else shed: fail at once, do not call
/// assert_eq!(backend.shed_per_million(Criticality::ORDINARY), 0);
/// # Ok::<(), throttlekit::BuildError>(())
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
#[must_use = "a call that is not reported as accepted counts as rejected"]
pub struct Attempt<'a, C: Clock = PreciseClock> {
    throttle: &'a AdaptiveThrottle<C>,
}

/// Builder of an [`AdaptiveThrottle`].
#[derive(Clone, Debug)]
pub struct AdaptiveThrottleBuilder<C = PreciseClock> {
    multiplier: f64,
    window: Duration,
    clock: C,
}

impl AdaptiveThrottle {
    /// Creates a throttle with the defaults: a multiplier of 2, over ten seconds.
    pub fn new() -> Result<Self, BuildError> {
        Self::builder().build()
    }

    /// Creates a builder, with all options.
    pub fn builder() -> AdaptiveThrottleBuilder {
        AdaptiveThrottleBuilder { multiplier: MULTIPLIER, window: WINDOW, clock: PreciseClock::new() }
    }
}

impl<C: Clock> AdaptiveThrottleBuilder<C> {
    /// Sets K: up to this many times what the backend accepts is sent, counted in thousandths. Default: 2.
    pub fn multiplier(self, multiplier: f64) -> Self {
        Self { multiplier, ..self }
    }

    /// Sets the window. Default: 10 s.
    pub fn window(self, window: Duration) -> Self {
        Self { window, ..self }
    }

    /// Sets the clock. Default: [`PreciseClock`].
    pub fn clock<D: Clock>(self, clock: D) -> AdaptiveThrottleBuilder<D> {
        AdaptiveThrottleBuilder { multiplier: self.multiplier, window: self.window, clock }
    }

    /// Builds the throttle. Fails if the multiplier or the window is out of range.
    pub fn build(self) -> Result<AdaptiveThrottle<C>, BuildError> {
        let k_thousandths = (self.multiplier * 1_000.0).round() as u32;
        let throttle = Throttle::new(k_thousandths, self.window).map_err(out_of_range)?;
        Ok(AdaptiveThrottle { state: Mutex::new((throttle, Dice(random_u64()))), clock: self.clock })
    }
}

fn out_of_range(error: ThrottleError) -> BuildError {
    let (setting, expected) = match error {
        ThrottleError::Window(_) => ("window", "at least 1 ns and at most a day"),
        _ => ("multiplier", "from 1 to 1000"),
    };
    BuildError::OutOfRange { setting, expected }
}

impl<C: Clock> AdaptiveThrottle<C> {
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
