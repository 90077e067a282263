//! Unified admission under faults: futures dropped at every await, errors at every call to a store, handlers
//! that panic. At the end no slot is missing and every ledger is exact.

mod bugs;
mod flaky;
mod interrupt;
mod rig;
mod run;

pub use bugs::DrillBug;
pub use flaky::Flaky;
pub use run::{Drilled, drill, find};
