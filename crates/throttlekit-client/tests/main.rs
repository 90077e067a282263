//! Tests against a real server in this process.

mod closing;
mod common;
mod golden;
mod isolation;
mod leased;
mod outbound;
mod policy;
mod session;
mod session_server;
mod tls;
