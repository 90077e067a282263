//! Rust client of a ThrottleKit server: call it for every decision, or lease units and decide in process.
//!
//! A [`Client`] connects to one server or to several that share a store. It creates
//!
//! * [`RemotePolicy`], which calls the server for every request: rates, budgets, and work that holds a slot while it
//!   runs. It has the verbs of the library's shared limiters and returns the library's results.
//! * [`RemoteStore`], over which the library's leased [`SharedLimiter`](throttlekit::SharedLimiter) takes units in
//!   batches and spends them in this process. The name of the limiter is that of the server's policy. Its bounds are
//!   those of the guarantees `lease-coupled` and `lease-rolling`.
//!
//! [`Client::snapshot_json`] and [`Client::watch`] report the state and the denials of the server.
//!
//! ```no_run
//! use throttlekit::{Rate, SharedLimiter};
//! use throttlekit_client::Client;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new("http://127.0.0.1:50051")?;
//!
//! let api = client.policy("api");
//! if !api.check("alice").await?.allowed {
//!     return Ok(());
//! }
//!
//! // The same policy, decided here: one call for each batch.
//! let leased = SharedLimiter::builder(client.store(), "api", Rate::per_second(1_000)).leased().build()?;
//! assert!(leased.check("alice").await?.allowed);
//! # Ok(())
//! # }
//! ```
//!
//! A denial is a normal response. An error means that nothing was decided: every call has a timeout, a circuit breaker
//! keeps an outage cheap, and [`OnOutage`](throttlekit::OnOutage) selects the fallback. A call that a server may have
//! processed is sent again only if it is idempotent: debits, releases and heartbeats. One that no server has processed
//! (its connection closed first, or the server reported so by GOAWAY) is sent again over another connection, and then to
//! the next server: a rolling upgrade fails no call.
//!
//! Both implement [`Admit`](throttlekit::Admit), so they work in the library's tower layer.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod admit;
mod builder;
mod channels;
mod client;
mod cost_hint;
mod failure;
mod fallback;
mod guarantees;
mod monitor;
mod permit;
mod policy;
mod policy_builder;
mod renewer;
mod request;
mod returns;
mod rpc;
mod session;
mod store;
mod store_key;
mod token;
mod wire;

pub use builder::ClientBuilder;
pub use client::Client;
pub use cost_hint::CostHint;
pub use monitor::{Denial, Denials};
pub use policy::RemotePolicy;
pub use policy_builder::RemotePolicyBuilder;
pub use store::RemoteStore;

/// The README's code, run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
