//! The rate rules, for limits beyond [`Rate`], [`Budget`] and [`Limit`].
//!
//! Times and windows of limits ([`Timestamp`], [`Cadence`]), forecasts, the error of an invalid limit, and the algebra
//! of decisions ([`combine`]). Everything of `throttlekit_core::rate` is here too, for authors of stores.

pub use throttlekit_core::rate::*;
pub use throttlekit_core::{ALLOW_FULL, Forecast, Timestamp, combine};
