//! `same-everywhere` for shared stores: one trace gives one sequence of responses and leaves one state in every store.
//!
//! A [`StoreScenario`] is a policy of several limits and the operations on it. It is run against a
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
//! assert_eq!(report.traces, 100);
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

mod coverage;
mod debits;
mod examine;
mod fixture;
mod hot_key;
mod lend_contention;
mod lending;
mod local_periods;
mod play;
mod policy;
mod reference;
mod report;
mod scenario;
mod seeded;
mod seeded_debits;
mod seeded_lending;
mod shrink;
mod vectors;

#[doc(hidden)]
pub use examine::policy_name;
pub use examine::{PARALLEL_SCENARIOS, STORE_SCENARIOS, examine_store, find_store_bug};
pub use hot_key::{
    HotKeyContention, PROCESSES, TASKS, hot_key_contention, hot_key_in_processes, hot_key_policy,
};
pub use lend_contention::{LendContention, lend_contention};
pub use local_periods::{LocalPeriods, examine_local_periods};
pub use reference::CoreStates;
#[doc(hidden)]
pub use reference::same_state;
pub use report::{FEATURES, StoreReport};
#[doc(hidden)]
pub use scenario::{MICRO, reach, roll_shareable, roll_store_cost, roll_used, roll_wait_micros, roll_want};
pub use scenario::{StoreDebit, StoreLease, StoreOperation, StoreRequest, StoreScenario, Turn, Used};
pub use seeded::{SeededStore, StoreBug};
pub use vectors::examine_vectors;
