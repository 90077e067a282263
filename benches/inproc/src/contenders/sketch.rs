//! Counting any number of keys in fixed memory: pingora's estimator, and our limiters over a sketch.

use std::time::Duration;

use pingora_limits::estimator::Estimator;
use pingora_limits::rate::Rate;
use throttlekit::clock::Clock;
use throttlekit::hash::KeyHash;
use throttlekit::limiter::Sketch;
use throttlekit::overload::Shape;
use throttlekit::{Budget, Limiter};

use super::{Check, consumed};
use crate::workloads::Stream;

/// Longer than any run.
const WINDOW: Duration = Duration::from_secs(366 * 86_400);
/// More than any run requests.
const UNITS: u64 = (1 << 31) - 1;

/// The shape with which pingora's estimator is measured, and ours beside it.
pub const NARROW: (u32, u32) = (512, 4);
/// Our default: ε 0.01, δ 0.001.
pub const DEFAULT: (u32, u32) = (272, 7);

struct Incr(Estimator);
struct Observe(Rate);
struct Allowed<C, H>(Limiter<C, H>);
struct Refused<C, H>(Limiter<C, H>);

/// pingora's sketch alone: no limit, no window, no clock.
pub fn estimator() -> impl Check + 'static {
    Incr(Estimator::new(NARROW.1 as usize, NARROW.0 as usize))
}

/// pingora's estimate of a rate: two sketches, a clock, no limit.
pub fn rate() -> impl Check + 'static {
    Observe(Rate::new(Duration::from_secs(1)))
}

fn limiter<C: Clock, H: KeyHash>(units: u64, sketch: Sketch, clock: C) -> Limiter<C, H> {
    let builder = Limiter::builder(Budget::per(units, WINDOW)).sketch(sketch);
    builder.clock(clock).hash::<H>().build().expect("a limiter")
}

fn plain((width, depth): (u32, u32)) -> Sketch {
    Sketch::with_shape(Shape::new(width, depth).expect("a shape")).hot_keys(0)
}

/// Our whole check: hash, clock, window, count and response.
pub fn sketch<C: Clock + 'static, H: KeyHash + 'static>(shape: (u32, u32), clock: C) -> impl Check + 'static {
    Allowed(limiter::<C, H>(UNITS, plain(shape), clock))
}

/// The same where every key is at its limit, as in a flood.
pub fn refused<C: Clock + 'static, H: KeyHash + 'static>(
    shape: (u32, u32),
    clock: C,
) -> impl Check + 'static {
    Refused(limiter::<C, H>(1, plain(shape), clock))
}

/// The same with exact counts of the busiest keys.
pub fn flood<C: Clock + 'static, H: KeyHash + 'static>(clock: C) -> impl Check + 'static {
    Allowed(limiter::<C, H>(UNITS, Sketch::default(), clock))
}

impl Check for Incr {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, (): &mut ()) -> usize {
        usize::from(consumed(self.0.incr(stream.string(at).as_str(), 1)) > 0)
    }
}

impl Check for Observe {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, (): &mut ()) -> usize {
        usize::from(consumed(self.0.observe(&stream.string(at).as_str(), 1)) > 0)
    }
}

impl<C: Clock, H: KeyHash> Check for Allowed<C, H> {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, (): &mut ()) -> usize {
        usize::from(consumed(self.0.check(stream.string(at).as_str())).allowed)
    }
}

impl<C: Clock, H: KeyHash> Check for Refused<C, H> {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, (): &mut ()) -> usize {
        usize::from(!consumed(self.0.check((stream.string(at).as_str(), 2))).allowed)
    }
}
