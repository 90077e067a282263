//! Overload protection: limits over any number of keys in fixed memory, counts over all nodes, and client-side
//! shedding.
//!
//! | need | type |
//! |---|---|
//! | more keys than there is memory for, most of them quiet | [`FloodLimiter`] |
//! | the same, and the smallest memory or the shortest check matters most | [`SketchLimiter`] |
//! | a flood that stays below every node's limit | [`MergeableSketch`], which detects and does not limit |
//! | calls to a backend that refuses them when it is full | [`AdaptiveThrottle`] |
//!
//! `docs/overload.md` describes how large each has to be.

mod builder;
mod flood;
mod guarded;
mod latch;
mod mergeable;
mod shared;
mod sketch;
mod throttle;

#[cfg(all(test, loom))]
mod loom_tests;

pub use builder::{FloodBuilder, SketchBuilder};
pub use flood::FloodLimiter;
pub use mergeable::MergeableSketch;
pub use sketch::SketchLimiter;
pub use throttle::{AdaptiveThrottle, Attempt};
pub use throttlekit_core::overload::{
    Criticality, Hot, LinearSketch, MergeError, Merged, Shape, ShapeError, SketchError, SketchLimit,
    SnapshotError, ThrottleError,
};

/// The guide's code, run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/overload.md")]
struct Guide;
