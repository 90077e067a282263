//! `reload-room`: when the numbers of a limit change, exactly the units that were used and have not come back count under
//! the new ones, and every store answers alike.
//!
//! A [`ReloadScenario`] is one limit in several versions, and what happens while they follow each other or run side by
//! side. It is played to a store and to a [`MemoryStore`](throttlekit::store::MemoryStore) beside it: every answer is
//! the same. And an oracle that knows no states counts what every key has used, in units: every answer must follow from
//! its count.

mod judge;
mod oracle;
mod play;
mod report;
mod scenario;
mod seeded;

pub use play::{examine_reload, find_reload_bug};
pub use report::ReloadReport;
pub use scenario::{ReloadScenario, ReloadStep};
pub use seeded::{ReloadBug, Seeded};
