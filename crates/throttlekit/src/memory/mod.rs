//! The memory store: the state of every key, shared by threads, bounded.

mod budget;
mod cache_lines;
mod cell;
mod key_memory;
mod keys;
mod prefetch;
mod segments;
mod shards;
mod sketch;
mod table;
mod trie;
mod wide;
mod word_sketch;

pub(crate) use budget::Capacity;
#[cfg(feature = "store")]
pub(crate) use budget::{BUDGET_DEFAULT, Budget};
pub use key_memory::KeyMemory;
pub(crate) use keys::{AtHome, HeldKey, HeldWord, Keys, word_form};
#[cfg(feature = "store")]
pub(crate) use shards::{LockedKey, Owing, Shards};
pub(crate) use table::BATCH;

#[cfg(all(test, loom))]
mod loom_tests;
