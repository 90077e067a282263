//! Tests of what subscribers receive.

mod common;
mod harmless;
mod opentelemetry;
mod prometheus;
mod tracing;
