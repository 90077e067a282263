//! ThrottleKit as a service: the same engine behind gRPC, Envoy's rate limit service, HTTP and RESP.
//!
//! Instances share a store and are otherwise stateless. The APIs translate and never decide.
//!
//! # Features
//!
//! * `otlp`: traces and metrics to an OpenTelemetry collector. Off by default.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod access;
mod api;
mod audit;
mod background;
mod date_time;
mod engine;
mod files;
mod limits;
mod listen;
pub mod policy;
mod principal;
mod process_options;
mod reload;
mod server;
mod server_check;
mod server_config;
mod server_error;
mod share;
mod store_options;
mod store_url;
mod telemetry;
mod wire_format;

pub use process_options::ProcessOptions;
pub use server::{Server, ServerOptions};
pub use server_check::Checked;
pub use server_error::ServerError;
pub use store_options::StoreOptions;
pub use store_url::StoreUrl;

/// Parts of the server for the command, tests and benchmarks. Not part of the public API: may change in any release.
#[doc(hidden)]
pub mod internals {
    macro_rules! parts {
        ($($part:ident),*) => {$(
            pub mod $part {
                pub use crate::$part::*;
            }
        )*};
    }

    parts!(access, api, engine, listen, reload, telemetry);
}

/// The README's code, compiled as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
