//! Untrusted input against all parsers: policy files, wire messages, descriptors, sketches and responses of
//! providers.
//!
//! Each target takes any bytes and panics if an invariant is violated. They run under libFuzzer, which is
//! guided by coverage, and under [`run`](run::run), which only mutates [seeds](seeds::of) but needs nothing
//! beyond a compiler.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod descriptors;
pub mod mutate;
mod policy;
mod random;
mod responses;
pub mod run;
pub mod seeds;
mod sketch;
mod wire;

pub use descriptors::descriptors;
pub use policy::policy;
pub use responses::responses;
pub use sketch::sketch;
pub use wire::{POLICIES, forget, wire};

/// A target: processes bytes, and returns `true` if they were valid.
pub type Target = fn(&[u8]) -> bool;

/// The targets by name.
pub const TARGETS: [(&str, Target); 5] = [
    ("policy", policy),
    ("wire", wire),
    ("descriptors", descriptors),
    ("sketch", sketch),
    ("responses", responses),
];
