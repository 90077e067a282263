//! `same-everywhere` for shared stores: one trace gives one sequence of responses and leaves one state in every store.
//!
//! A [`StoreWorld`] is a scenario: a policy of several limits and the operations on it. It is run against a
//! [`Store`](throttlekit::store::Store) and against the pure rules over a plain map, [`CoreStates`]; every response is
//! compared field by field, and at the end every state. A store's own test is ten lines:
//!
//! ```
//! use throttlekit::store::MemoryStore;
//! use throttlekit_conformance::stores::examine_store;
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let make = |clock| async { Ok(MemoryStore::with_clock(clock)) };
//! let report = examine_store(make, 0..100).await.unwrap_or_else(|violation| panic!("{violation}"));
//! assert_eq!(report.timelines, 100);
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

mod coverage;
mod debits;
mod examine;
mod fixture;
mod hot_key;
mod lend_storm;
mod lending;
mod play;
mod policy;
mod reference;
mod report;
mod seeded;
mod seeded_debits;
mod seeded_lending;
mod shrink;
mod vectors;
mod world;

#[doc(hidden)]
pub use examine::policy_name;
pub use examine::{LANES, STORE_WORLDS, examine_store, find_store_bug};
pub use hot_key::{PROCESSES, Storm, TASKS, storm, storm_in_processes, storm_policy};
pub use lend_storm::{LendContention, lend_storm};
pub use reference::CoreStates;
#[doc(hidden)]
pub use reference::same_state;
pub use report::{FEATURES, StoreReport};
pub use seeded::{SeededStore, StoreBug};
pub use vectors::examine_vectors;
#[doc(hidden)]
pub use world::{MICRO, reach, roll_shareable, roll_store_cost, roll_used, roll_wait_micros, roll_want};
pub use world::{StoreDebit, StoreLease, StoreOperation, StoreRequest, StoreWorld, Turn, Used};
