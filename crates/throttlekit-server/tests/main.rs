//! Tests of the engine, its endpoints and its telemetry. `network` has what strangers do to a server.
#![recursion_limit = "256"] // The engine's futures hold each other many deep.

mod coalesced;
mod engine;
mod envoy;
#[cfg(feature = "otlp")]
mod otlp;
mod outage;
mod own_redis;
mod python_client;
mod telemetry;
