//! Tests of the program as a process.

mod admin;
mod alerts;
mod commands;
mod common;
mod containers;
mod instances;
mod killed;
mod newcomer;
mod operations;
#[cfg(feature = "otlp")]
mod otlp;
mod resp;
mod start_pages;
mod stores;
mod systemd;
#[cfg(feature = "dashboard")]
mod top;
