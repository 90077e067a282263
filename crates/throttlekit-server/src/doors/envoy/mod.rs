//! Envoy's rate limit service, version 3.

mod spec;

pub use spec::{DomainSpec, EntrySpec, RuleSpec};
