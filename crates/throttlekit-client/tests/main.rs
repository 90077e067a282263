//! Tests against a real server in this process.

mod common;
mod fleet;
mod golden;
mod isolation;
mod limiter;
mod tls;
