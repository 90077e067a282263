//! Overload protection: counts over all nodes, and client-side shedding.
//!
//! | need | type |
//! |---|---|
//! | more keys than there is memory for | a [`Limiter`](crate::Limiter) with a [`Sketch`](crate::limiter::Sketch) |
//! | a flood that stays below every node's limit | [`MergeableSketch`], which detects and does not limit |
//! | calls to a backend that refuses them when it is full | [`AdaptiveThrottle`] |
//!
//! `docs/guides/overload.md` describes how large each has to be.

mod mergeable;
mod throttle;

pub use mergeable::MergeableSketch;
pub use throttle::{AdaptiveThrottle, AdaptiveThrottleBuilder, Attempt};
pub use throttlekit_core::overload::{
    Criticality, LinearSketch, MergeError, Merged, Shape, ShapeError, SnapshotError,
};
