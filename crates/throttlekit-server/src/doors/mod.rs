//! Doors: what the engine is asked through. They translate, and never decide.

pub mod envoy;
pub mod grpc;
pub mod http;
pub mod words;
