//! The APIs of the server: gRPC, Envoy's rate limit service, HTTP, RESP. They translate requests for the engine and
//! never decide.

pub(crate) mod admin;
pub(crate) mod debit_id;
pub(crate) mod direct;
pub mod envoy;
pub(crate) mod fair_use;
pub mod grpc;
pub mod http;
pub(crate) mod lease_id;
#[cfg(test)]
mod multi_key_tests;
pub(crate) mod resp;
pub(crate) mod unary;
