//! Tests of the gateway as a process.

mod common;
mod faults;
mod load;
mod openai_client;
mod python;
