//! The gRPC API, `throttlekit.v1`.

mod fleet;
mod health;
mod monitor;
mod rate_limiter;
mod status;
mod undecodable;

pub use fleet::FleetApi;
pub(crate) use fleet::lease;
pub(crate) use health::health;
pub use monitor::MonitorApi;
pub use rate_limiter::RateLimiterApi;
pub use status::status;
pub use undecodable::undecodable_is_invalid;
