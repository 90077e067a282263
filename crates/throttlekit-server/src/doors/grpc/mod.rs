//! The gRPC door, `throttlekit.v1`.

mod fleet;
mod health;
pub(crate) mod lease_id;
mod monitor;
mod rate_limiter;
mod status;
mod undecodable;

pub use fleet::FleetDoor;
pub(crate) use fleet::lease;
pub(crate) use health::health;
pub use monitor::MonitorDoor;
pub use rate_limiter::RateLimiterDoor;
pub use status::status;
pub use undecodable::undecodable_is_invalid;
