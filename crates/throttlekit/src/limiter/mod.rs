//! Rate limits: [`Limiter`], its builder, the limiter without keys, and what belongs to a `SharedLimiter`.
//!
//! | need | call |
//! |---|---|
//! | one limit over many keys | [`Limiter::new`] |
//! | several limits, charged all or none | [`Limiter::builder`], [`limit`](LimiterBuilder::limit), [`limit_by`](LimiterBuilder::limit_by) |
//! | one limit without keys: a route, a backend, the process | [`Limiter::keyless`] |
//! | more keys than there is memory for | [`sketch`](LimiterBuilder::sketch) |

mod builder;
mod keyed;
mod keyless;
mod several;
mod sketch;

pub use builder::LimiterBuilder;
pub use keyed::{Charged, Limiter};
pub use keyless::KeylessLimiter;
pub use sketch::Sketch;
pub use throttlekit_core::overload::HotKey;

pub use crate::memory::KeyMemory;
#[cfg(feature = "store")]
pub use crate::shared::{Receipt, SharedLimiterBuilder, SharedLimiterStats, Tally};
