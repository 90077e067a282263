//! A mock model, and a load generator that compares three ways to meter tokens through `llm-gateway`.

pub mod load;
pub mod mock;
pub mod process;
