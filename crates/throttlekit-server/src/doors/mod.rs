//! Doors: what the engine is asked through. They translate, and never decide.

pub(crate) mod debits;
pub mod envoy;
#[cfg(test)]
mod further_keys;
pub mod grpc;
pub mod http;
pub mod words;
