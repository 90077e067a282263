//! Tests of the gateway over sockets.

mod common;
mod endpoints;
mod faults;
mod openai_client;
mod python;
mod tls;
