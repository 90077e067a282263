//! Builders of limiters over a sketch.

use std::time::Duration;

use throttlekit_core::overload::{FloodWindow, Shape, ShapeError, SketchError, SketchLimit, SketchWindow};

use super::guarded::Guarded;
use super::{FloodLimiter, SketchLimiter};
use crate::{Clock, KeyHash, PreciseClock, SecretHash};

/// Default error: at most 1 % of the units admitted in a window, but once in a thousand.
const ERROR: (f64, f64) = (0.01, 0.001);
/// Default number of keys counted one by one: 16 KiB of them.
const HOT_KEYS: usize = 1 << 10;

/// Declares a builder with the options that both kinds have, and its own.
macro_rules! builder {
    ($(#[$doc:meta])* $name:ident { $($own:ident: $type:ty = $default:expr)? }) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<C = PreciseClock, H = SecretHash> {
            limit: Result<SketchLimit, SketchError>,
            shape: Result<Shape, ShapeError>,
            clock: C,
            hash: H,
            $($own: $type,)?
        }

        impl $name {
            pub(super) fn new(units: u64, window: Duration) -> Self {
                Self {
                    limit: SketchLimit::new(units, window),
                    shape: Shape::for_error(ERROR.0, ERROR.1),
                    clock: PreciseClock::new(),
                    hash: SecretHash::random(),
                    $($own: $default,)?
                }
            }
        }

        impl<C: Clock, H: KeyHash> $name<C, H> {
            /// Uses the smallest sketch that counts a key too high by more than `epsilon` of all units that it admits
            /// in a window with probability at most `delta`.
            pub fn error(self, epsilon: f64, delta: f64) -> Self {
                Self { shape: Shape::for_error(epsilon, delta), ..self }
            }

            /// Uses a sketch of this shape.
            pub fn shape(self, shape: Shape) -> Self {
                Self { shape: Ok(shape), ..self }
            }

            /// Sets the clock. Default: [`PreciseClock`]. With a [`CoarseClock`](crate::CoarseClock) a check takes half
            /// as long.
            pub fn clock<D: Clock>(self, clock: D) -> $name<D, H> {
                let Self { limit, shape, hash, $($own,)? .. } = self;
                $name { limit, shape, clock, hash, $($own)? }
            }

            /// Sets the hash of keys, with a new random secret. Default: [`SecretHash`]. Change it only if the operator
            /// chooses the keys.
            pub fn hash<G: KeyHash>(self) -> $name<C, G> {
                self.hash_by(G::random())
            }

            /// Hashes with this secret instead of a random one, to replay a run. Anyone who knows it can choose keys
            /// that deny others early; nobody is admitted more.
            pub fn seed(self, seed: [u8; 16]) -> $name<C, SecretHash> {
                self.hash_by(SecretHash::with_seed(seed))
            }

            fn hash_by<G>(self, hash: G) -> $name<C, G> {
                let Self { limit, shape, clock, $($own,)? .. } = self;
                $name { limit, shape, clock, hash, $($own)? }
            }
        }
    };
}

builder! {
    /// Builder of a [`SketchLimiter`].
    SketchBuilder {}
}

builder! {
    /// Builder of a [`FloodLimiter`]. Its sketch counts the keys that are not counted one by one.
    FloodBuilder { hot_keys: usize = HOT_KEYS }
}

impl<C: Clock, H: KeyHash> SketchBuilder<C, H> {
    /// Builds the limiter, or returns why it cannot be built.
    pub fn build(self) -> Result<SketchLimiter<C, H>, SketchError> {
        let keys = Guarded::new(SketchWindow::new(self.limit?, self.shape?));
        Ok(SketchLimiter { keys, clock: self.clock, hash: self.hash })
    }
}

impl<C: Clock, H: KeyHash> FloodBuilder<C, H> {
    /// Sets the number of the busiest keys that are counted one by one, in 16 bytes each: better twice as many as will
    /// be at their limit at once. Default: 1,024.
    pub fn hot_keys(self, hot_keys: usize) -> Self {
        Self { hot_keys, ..self }
    }

    /// Builds the limiter, or returns why it cannot be built.
    pub fn build(self) -> Result<FloodLimiter<C, H>, SketchError> {
        let keys = Guarded::new(FloodWindow::new(self.limit?, self.shape?, self.hot_keys)?);
        Ok(FloodLimiter { keys, clock: self.clock, hash: self.hash })
    }
}
