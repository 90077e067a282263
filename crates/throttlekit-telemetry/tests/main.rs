//! Tests of the events that subscribers receive.

mod common;
mod harmless;
mod opentelemetry;
mod prometheus;
mod tracing;
