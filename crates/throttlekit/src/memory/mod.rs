//! The memory store: the state of every key, shared by threads, bounded.

mod cell;
mod keys;
mod shards;
mod table;
mod wide;

pub(crate) use keys::{HeldKey, Keys, word_origin};
#[cfg(feature = "store")]
pub(crate) use shards::{Debts, LockedKey, Shards};
pub(crate) use table::BATCH;

#[cfg(all(test, loom))]
mod loom_tests;
