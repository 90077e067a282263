//! The number of threads of this process.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

/// The driver thread of the library, which the first task starts and which lives as long as the process.
const DRIVERS: usize = 1;
const LOOKS: usize = 100;

/// Returns the current number of threads, plus those that start once and stay.
pub(super) fn count() -> Result<usize> {
    // The thread that measures wake-up delays stays too.
    let now = throttlekit::clock::Clock::now(&throttlekit::clock::BootClock);
    throttlekit_verify::isolation::worst_between(now, now);
    Ok(now_running()? + DRIVERS)
}

/// Returns the number of threads after those that are about to end have ended, if they do within some
/// seconds.
pub(super) fn settled(before: usize) -> Result<usize> {
    for _ in 0..LOOKS {
        if now_running()? <= before {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    now_running()
}

fn now_running() -> Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("Threads:"));
    Ok(line.context("the system counts threads")?.trim().parse()?)
}
