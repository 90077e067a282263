//! The gRPC API, `throttlekit.v1`.

mod admin;
mod calls;
mod encoding;
mod health;
mod lease_service;
mod monitor;
mod rate_limiter;
mod session;
mod status;
mod undecodable;

pub use admin::AdminApi;
pub(crate) use health::health;
pub use lease_service::LeaseApi;
pub(crate) use lease_service::lease;
pub use monitor::MonitorApi;
pub use rate_limiter::RateLimiterApi;
pub(crate) use session::{SessionApi, SessionContext};
pub use status::status;
pub use undecodable::undecodable_is_invalid;
