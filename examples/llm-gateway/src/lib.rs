//! An OpenAI-compatible gateway that meters tokens while they stream, a mock model to put behind it, and a load that
//! compares three ways to meter.

pub mod api;
pub mod fields;
pub mod gate;
pub mod headers;
pub mod ledger;
pub mod load;
pub mod mock;
pub mod process;
pub mod proxy;
pub mod refusal;
pub mod serve;
pub mod sse;
pub mod tenants;
pub mod tokens;
pub mod upstream;
