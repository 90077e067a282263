//! The driver thread of the process.

use std::process;

use crate::sync::RwLock;
use tokio::runtime::{Builder, Handle, Runtime};

/// The driver of this process, once it was needed.
static DRIVER: RwLock<Option<Driver>> = RwLock::new(None);

struct Driver {
    runtime: Runtime,
    /// The process that started it. After a fork the child has a copy of this value and no thread.
    process: u32,
}

/// Returns the runtime of the driver thread, and starts the thread if this process has none.
///
/// # Panics
///
/// If the operating system cannot create a thread.
pub(super) fn handle() -> Handle {
    let process = process::id();
    let known = DRIVER.read();
    match &*known {
        Some(driver) if driver.process == process => driver.runtime.handle().clone(),
        _ => {
            drop(known);
            start(process)
        }
    }
}

/// Starts the driver, unless another thread just did.
#[cold]
fn start(process: u32) -> Handle {
    let mut driver = DRIVER.write();
    if let Some(driver) = driver.as_ref().filter(|driver| driver.process == process) {
        return driver.runtime.handle().clone();
    }
    let runtime = runtime();
    let handle = runtime.handle().clone();
    if let Some(before) = driver.replace(Driver { runtime, process }) {
        // The parent's runtime: its thread is not in this process, so shutting it down would block forever.
        std::mem::forget(before);
    }
    handle
}

/// Creates a multi-thread runtime with one worker: that worker is woken only if it sleeps, while a current-thread
/// runtime needs a system call for each task that another thread spawns.
fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).thread_name("throttlekit").enable_all();
    builder.build().expect("cannot start a thread for background work: raise the thread limit of the process")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_driver_serves_the_process_until_the_process_id_changes() {
        let ours = handle();
        assert_eq!(ours.id(), handle().id());
        let child = start(process::id() + 1);
        assert_ne!(ours.id(), child.id(), "a forked child has no thread of its parent");
        assert_ne!(child.id(), handle().id(), "nor the parent one of its child");
    }
}
