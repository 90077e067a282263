//! A limit over any number of keys in fixed memory.

mod guarded;
mod latch;
mod shared;

#[cfg(all(test, loom))]
mod loom_tests;

use throttlekit_core::overload::{
    FloodWindow, HotKey, Shape, ShapeError, SketchError, SketchLimit, SketchWindow,
};
use throttlekit_core::rate::Limit;
use throttlekit_core::{Decision, Forecast, Timestamp};

use self::guarded::Guarded;
use self::shared::Shared;
use crate::BuildError;
use crate::memory::KeyMemory;

/// Default number of keys counted one by one: 16 KiB of them.
const HOT_KEYS: usize = 1 << 10;

/// The size of the sketch in which a [`Limiter`](crate::Limiter) counts any number of keys.
///
/// No key is ever admitted more than its limit in a window, whatever the traffic, with any number of threads. The price
/// is that a key may be denied early, when others fill the counters that it shares with them: by more than ε of all
/// units admitted in the window with probability at most δ. So choose ε such that ε times what is admitted in a window
/// is small beside the limit. A denied key can be admitted again in the next window.
///
/// The busiest keys are counted one by one. They do not fill the counters which quiet ones share, so far fewer quiet
/// ones are denied early; and [`busiest`](crate::Limiter::busiest) reports them. Without such hot keys a denied call
/// writes nothing, and a check takes half as long.
///
/// | | default | `hot_keys(0)` |
/// |---|---|---|
/// | ε, δ | 0.01, 0.001 | 0.01, 0.001 |
/// | keys counted one by one | 1,024 | 0 |
/// | bytes | 24,000 | 7,616 |
///
/// ```
/// use throttlekit::{Budget, Limiter, limiter::Sketch};
///
/// let smallest = Sketch::new(0.01, 0.001).hot_keys(0);
/// let shield = Limiter::builder(Budget::per_minute(100)).sketch(smallest).build()?;
/// assert!(shield.check("203.0.113.7").allowed);
/// assert_eq!(shield.check(("203.0.113.7", 99)).remaining, 0);
/// assert!(!shield.check("203.0.113.7").allowed);
/// assert_eq!(shield.memory().used_bytes, 7_616);
/// # Ok::<(), throttlekit::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sketch {
    shape: Result<Shape, ShapeError>,
    hot_keys: usize,
}

impl Sketch {
    /// Uses the smallest sketch that counts a key too high by more than `epsilon` of all units that it admits in a window
    /// with probability at most `delta`.
    pub fn new(epsilon: f64, delta: f64) -> Self {
        Self { shape: Shape::for_error(epsilon, delta), hot_keys: HOT_KEYS }
    }

    /// Uses a sketch of this shape.
    pub fn with_shape(shape: Shape) -> Self {
        Self { shape: Ok(shape), hot_keys: HOT_KEYS }
    }

    /// Sets the number of the busiest keys that are counted one by one, in 16 bytes each: better twice as many as will be
    /// at their limit at once. 0 is a plain sketch. Default: 1,024.
    pub fn hot_keys(self, keys: usize) -> Self {
        Self { hot_keys: keys, ..self }
    }

    /// Creates the counts of a limit, or returns why it cannot be counted in this sketch.
    pub(super) fn keys(self, limit: Limit) -> Result<SketchKeys, BuildError> {
        let window = match &limit {
            Limit::Window(window) if !window.is_budget() => window.aligned_length(),
            _ => None,
        };
        let length = window.ok_or(BuildError::InvalidSketch(
            "only quotas in windows aligned to the epoch are supported: use `Budget::per_minute` or \
             `Limit::fixed_window`",
        ))?;
        let in_sketch = SketchLimit::new(limit.units(), length).map_err(invalid)?;
        let shape = self.shape.map_err(|error| invalid(error.into()))?;
        let counts = match self.hot_keys {
            0 => SketchCounts::Plain(Guarded::new(SketchWindow::new(in_sketch, shape))),
            keys => {
                SketchCounts::Hot(Guarded::new(FloodWindow::new(in_sketch, shape, keys).map_err(invalid)?))
            }
        };
        Ok(SketchKeys { limit, counts })
    }
}

/// ε 0.01, δ 0.001, 1,024 keys counted one by one.
impl Default for Sketch {
    fn default() -> Self {
        Self::new(0.01, 0.001)
    }
}

fn invalid(error: SketchError) -> BuildError {
    BuildError::InvalidSketch(match error {
        SketchError::Units(_) => "expected a limit of 1 to 2147483647 units: count larger units",
        SketchError::Length(_) => "expected a window of 1 ns to 366 days",
        SketchError::Hot(_) => "expected at most 65536 keys that are counted exactly",
        SketchError::Shape(ShapeError::Error(_)) => "expected epsilon and delta between 0 and 1, exclusive",
        _ => "expected at least 1 column, 1 to 16 rows and at most 4194304 counters",
    })
}

/// The counts of one limit in a sketch.
pub(super) struct SketchKeys {
    limit: Limit,
    counts: SketchCounts,
}

enum SketchCounts {
    Plain(Guarded<SketchWindow<Shared>>),
    Hot(Guarded<FloodWindow<Shared>>),
}

impl SketchKeys {
    pub(super) fn check(&self, key: u64, cost: u64, now: Timestamp) -> Decision {
        match &self.counts {
            SketchCounts::Plain(keys) => keys.check(key, cost, now),
            SketchCounts::Hot(keys) => keys.check(key, cost, now),
        }
    }

    pub(super) fn peek(&self, key: u64, now: Timestamp) -> Decision {
        match &self.counts {
            SketchCounts::Plain(keys) => keys.peek(key, now),
            SketchCounts::Hot(keys) => keys.peek(key, now),
        }
    }

    pub(super) fn forecast(&self, key: u64, cost: u64, now: Timestamp) -> Forecast {
        let left = self.peek(key, now);
        let full_at = if left.remaining == left.limit { now } else { left.reset_at };
        Forecast { spendable_now: left.remaining / cost.max(1), next_replenish_at: full_at, full_at }
    }

    pub(super) fn busiest(&self, count: usize, now: Timestamp) -> Vec<HotKey> {
        match &self.counts {
            SketchCounts::Hot(keys) if keys.is_current(now) => keys.rule().busiest(count),
            _ => Vec::new(),
        }
    }

    pub(super) fn memory(&self) -> KeyMemory {
        let bytes = match &self.counts {
            SketchCounts::Plain(keys) => keys.rule().shape().bytes(),
            SketchCounts::Hot(keys) => keys.rule().bytes(),
        };
        KeyMemory { budget_bytes: bytes, used_bytes: bytes, ..KeyMemory::default() }
    }

    pub(super) fn limit(&self) -> &Limit {
        &self.limit
    }
}
