//! Admission control for APIs and language-model gateways.

mod ask;
mod builder;
mod clock;
mod gate;
mod hash;
#[cfg(feature = "http")]
pub mod http;
mod limiter;
mod limits;
mod memory;
mod sync;

pub use ask::Ask;
pub use builder::Builder;
pub use clock::{Clock, CoarseClock, ManualClock, PreciseClock, SystemClock, WallClock};
pub use gate::Gate;
pub use hash::{KeyHash, SecretHash, TrustedHash};
pub use limiter::Limiter;
pub use limits::Limits;
pub use throttlekit_core::rate::{Cadence, Limit, LimitError, Rate, Weekday};
pub use throttlekit_core::{ALLOW_FULL, Cost, Decision, Forecast, Retry, Timestamp, combine, rate};
