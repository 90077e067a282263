//! The choices that limiters over a sketch are made of.

use std::time::Duration;

use throttlekit_core::overload::{FloodWindow, Shape, ShapeError, SketchError, SketchLimit, SketchWindow};

use super::guarded::Guarded;
use super::{FloodLimiter, SketchLimiter};
use crate::{Clock, KeyHash, PreciseClock, SecretHash};

/// The error unless stated: at most 1 % of the units admitted in a window, but once in a thousand.
const ERROR: (f64, f64) = (0.01, 0.001);
/// Keys counted one by one unless stated: 16 KiB of them.
const HOT_KEYS: usize = 1 << 10;

/// What a [`SketchLimiter`] is made of.
#[derive(Debug)]
pub struct SketchBuilder<C = PreciseClock, H = SecretHash> {
    limit: Result<SketchLimit, SketchError>,
    shape: Result<Shape, ShapeError>,
    clock: C,
    hash: H,
}

/// What a [`FloodLimiter`] is made of.
#[derive(Debug)]
pub struct FloodBuilder<C = PreciseClock, H = SecretHash> {
    sketch: SketchBuilder<C, H>,
    hot_keys: usize,
}

impl SketchBuilder {
    pub(super) fn new(units: u64, window: Duration) -> Self {
        Self {
            limit: SketchLimit::new(units, window),
            shape: Shape::for_error(ERROR.0, ERROR.1),
            clock: PreciseClock::new(),
            hash: SecretHash::random(),
        }
    }
}

impl<C: Clock, H: KeyHash> SketchBuilder<C, H> {
    /// The smallest sketch that counts a key too high by more than `epsilon` of all units admitted in the window with
    /// probability `delta` at the most.
    pub fn error(self, epsilon: f64, delta: f64) -> Self {
        Self { shape: Shape::for_error(epsilon, delta), ..self }
    }

    /// A sketch of this shape.
    pub fn shape(self, shape: Shape) -> Self {
        Self { shape: Ok(shape), ..self }
    }

    /// Which clock to read: [`PreciseClock`] unless stated. With a [`CoarseClock`](crate::CoarseClock) a check takes
    /// half as long.
    pub fn clock<D: Clock>(self, clock: D) -> SketchBuilder<D, H> {
        SketchBuilder { limit: self.limit, shape: self.shape, clock, hash: self.hash }
    }

    /// How keys are hashed, with a new random secret: [`SecretHash`] unless the operator chooses the keys.
    pub fn hash<G: KeyHash>(self) -> SketchBuilder<C, G> {
        SketchBuilder { limit: self.limit, shape: self.shape, clock: self.clock, hash: G::random() }
    }

    /// Hashes with this secret instead of a random one, to replay a run. Who knows it can choose keys that deny others
    /// early; nobody is admitted more.
    pub fn seed(self, seed: [u8; 16]) -> SketchBuilder<C, SecretHash> {
        let hash = SecretHash::with_seed(seed);
        SketchBuilder { limit: self.limit, shape: self.shape, clock: self.clock, hash }
    }

    /// The limiter, or why it cannot be made.
    pub fn build(self) -> Result<SketchLimiter<C, H>, SketchError> {
        let keys = Guarded::new(SketchWindow::new(self.limit?, self.shape?));
        Ok(SketchLimiter { keys, clock: self.clock, hash: self.hash })
    }
}

impl FloodBuilder {
    pub(super) fn new(units: u64, window: Duration) -> Self {
        Self { sketch: SketchBuilder::new(units, window), hot_keys: HOT_KEYS }
    }
}

impl<C: Clock, H: KeyHash> FloodBuilder<C, H> {
    fn with<D, G>(
        self,
        change: impl FnOnce(SketchBuilder<C, H>) -> SketchBuilder<D, G>,
    ) -> FloodBuilder<D, G> {
        FloodBuilder { sketch: change(self.sketch), hot_keys: self.hot_keys }
    }

    /// How many of the busiest keys are counted one by one, in 16 bytes each: better twice as many as will be at their
    /// limit at once.
    pub fn hot_keys(self, hot_keys: usize) -> Self {
        Self { hot_keys, ..self }
    }

    /// See [`SketchBuilder::error`]; here of all units admitted to keys that are not counted one by one.
    pub fn error(self, epsilon: f64, delta: f64) -> Self {
        self.with(|sketch| sketch.error(epsilon, delta))
    }

    /// A sketch of this shape for all other keys.
    pub fn shape(self, shape: Shape) -> Self {
        self.with(|sketch| sketch.shape(shape))
    }

    /// See [`SketchBuilder::clock`].
    pub fn clock<D: Clock>(self, clock: D) -> FloodBuilder<D, H> {
        self.with(|sketch| sketch.clock(clock))
    }

    /// See [`SketchBuilder::hash`].
    pub fn hash<G: KeyHash>(self) -> FloodBuilder<C, G> {
        self.with(SketchBuilder::hash)
    }

    /// See [`SketchBuilder::seed`].
    pub fn seed(self, seed: [u8; 16]) -> FloodBuilder<C, SecretHash> {
        self.with(|sketch| sketch.seed(seed))
    }

    /// The limiter, or why it cannot be made.
    pub fn build(self) -> Result<FloodLimiter<C, H>, SketchError> {
        let SketchBuilder { limit, shape, clock, hash } = self.sketch;
        let keys = Guarded::new(FloodWindow::new(limit?, shape?, self.hot_keys)?);
        Ok(FloodLimiter { keys, clock, hash })
    }
}
