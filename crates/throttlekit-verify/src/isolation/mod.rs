//! Isolation of callers: every shared type over several runtimes, of which one is dropped, idle, blocked or
//! cancels its futures, over stores that fail. All other callers get a response in time, and nothing leaks.

mod actor;
mod client;
mod examine;
mod judge;
mod kinds;
mod lateness;
mod memory;
mod proxied;
mod proxy;
mod run;
mod schedule;
mod seeded;
mod shared;

use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle, Runtime};

pub use examine::{Benches, Examined, examine, find, one};
pub use kinds::{AnyStore, over};
pub use lateness::{Lateness, SLACK, slack_between, worst_between};
pub use memory::MemoryBench;
pub use proxied::{Connect, ProxiedBench, Rights};
pub use proxy::Proxy;
pub use run::{Tally, run};
pub use schedule::{
    BLOCK_FULL, Caller, Engine, Fault, Kind, Misbehaviour, RUNTIMES, RuntimeKind, Schedule, Timing, Trouble,
};
pub use seeded::Bug;
pub use shared::{Bench, Boxed, Found, Seen, Shared, Step, Watch};

/// Returns a runtime of the harness on which nothing misbehaves: for proxies, and the correct parts of seeded
/// clients.
pub fn background() -> &'static Handle {
    static BACKGROUND: OnceLock<Runtime> = OnceLock::new();
    let start = || Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    BACKGROUND.get_or_init(start).handle()
}
