//! Admission control for APIs and language-model gateways.

mod ask;
mod clock;
mod hash;
#[cfg(feature = "http")]
pub mod http;
mod limiter;
mod memory;

pub use ask::Ask;
pub use clock::{Clock, CoarseClock, ManualClock, PreciseClock, WallClock};
pub use hash::{KeyHash, SecretHash, TrustedHash};
pub use limiter::Limiter;
pub use throttlekit_core::rate::{Cadence, Limit, LimitError, Rate, Weekday};
pub use throttlekit_core::{ALLOW_FULL, Cost, Decision, Forecast, Retry, Timestamp, combine, rate};
