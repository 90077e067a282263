//! ThrottleKit as a service: the same engine behind gRPC, Envoy's rate limit service and HTTP.
//!
//! Instances share a store and are otherwise stateless. The APIs translate and never decide.
//!
//! # Features
//!
//! * `otlp`: traces and metrics to an OpenTelemetry collector. Off by default.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod access;
pub mod api;
mod audit;
mod background;
mod date_time;
pub mod engine;
mod files;
mod limits;
pub mod listen;
pub mod policy;
mod principal;
pub mod reload;
mod server;
mod share;
mod store_url;
pub mod telemetry;
mod wire_format;

pub use server::{Server, ServerOptions};
pub use store_url::StoreUrl;

/// The README's code, compiled as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
