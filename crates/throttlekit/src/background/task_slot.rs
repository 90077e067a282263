//! A task that runs at most once at a time.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Acquire};

use super::Background;

/// A slot for one background task that is started when needed and restarted after it has ended, also by a panic.
///
/// ```text
/// // Empty => Taken (by one of those who need it) ; Taken => Empty (the task ended, panicked or was dropped)
/// ```
#[derive(Debug, Default)]
pub struct TaskSlot {
    /// The process that owns the task; zero: there is none. A task of the parent does not run in a forked child.
    process: AtomicU32,
}

impl TaskSlot {
    /// Checks whether the task runs.
    pub fn is_taken(&self) -> bool {
        self.process.load(Acquire) == process::id()
    }

    /// Starts the task, unless it runs.
    pub fn ensure<F>(self: &Arc<Self>, background: &Background, task: impl FnOnce() -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (process, seen) = (process::id(), self.process.load(Acquire));
        if seen == process || self.process.compare_exchange(seen, process, AcqRel, Acquire).is_err() {
            return;
        }
        let (taken, task) = (Taken { slot: self.clone(), process }, task());
        background.spawn(async move {
            let _taken = taken;
            task.await;
        });
    }
}

struct Taken {
    slot: Arc<TaskSlot>,
    process: u32,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let _ = self.slot.process.compare_exchange(self.process, 0, AcqRel, Acquire);
    }
}
