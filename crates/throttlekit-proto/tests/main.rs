//! Tests of the wire types.

mod contract;
mod stubs;
mod wire;
