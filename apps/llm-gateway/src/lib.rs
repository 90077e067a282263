//! A gateway for language models that meters tokens while they stream.

pub mod api;
pub mod fields;
pub mod headers;
pub mod ledger;
pub mod metering;
pub mod proxy;
pub mod refusal;
pub mod serve;
pub mod sse;
pub mod tenants;
pub mod tokens;
pub mod upstream;
