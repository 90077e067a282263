//! The memory store: the state of every key, shared by threads, bounded.

mod wide;

pub(crate) use wide::WideMap;
