//! `reload-room`: when the numbers of a limit change, exactly the units that were used and have not come back
//! count under the new ones, and every store responds alike.
//!
//! A [`ReloadScenario`] is one limit in several versions, and the operations while they follow each other or
//! run side by side. It runs on a store and on a [`MemoryStore`](throttlekit::store::MemoryStore) beside it:
//! every response is the same. And an oracle without access to states counts the use of every key, in units:
//! every response must follow from its count.

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
