//! The memory store: the state of every key, shared by threads, bounded.

mod cell;
mod keys;
mod table;
mod wide;

pub(crate) use keys::{HeldKey, Keys, word_origin};
pub(crate) use table::BATCH;
#[cfg(feature = "store")]
pub(crate) use wide::{Locked, WideMap};

#[cfg(all(test, loom))]
mod loom_tests;
