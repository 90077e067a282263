//! Background work such as validating a policy file, on a thread with a lower priority than the threads that serve.

use std::thread::{Builder, JoinHandle};

/// Niceness of these threads: a sixtieth of the time of a thread that serves, where both compete for a core.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 19;

/// Runs `work` at a lower priority than the threads that serve. Returns `None` if it panics, or if no thread can be
/// started.
///
/// The runtime's own threads for blocking work have the same priority as those that serve: on a machine with few cores
/// a file that takes 5 ms to validate delays all requests by 5 ms.
pub(crate) async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    // Not on a thread of the runtime, whose priority would stay low for the next task on it.
    let thread = move || {
        let behind = Builder::new().name("background".into()).spawn(move || {
            step_back();
            work()
        });
        behind.map(JoinHandle::join)
    };
    match tokio::task::spawn_blocking(thread).await.ok()? {
        Ok(ended) => ended.ok(),
        Err(error) => {
            tracing::warn!(%error, "background thread not started");
            None
        }
    }
}

/// Lowers the priority of this thread permanently. On Linux niceness belongs to threads; elsewhere to the process.
fn step_back() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(NICENESS);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_runs_on_a_thread_of_its_own_and_a_panic_is_none() {
        let here = std::thread::current().id();
        assert!(run(move || std::thread::current().id() != here).await.expect("no panic"));
        assert_eq!(run(|| panic!("work that fails")).await, None::<()>);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn work_runs_behind_the_threads_that_serve() {
        let niceness = || rustix::process::nice(0).expect("a niceness");
        let before = niceness();
        let behind = run(niceness).await.expect("no panic");
        assert_eq!((behind, niceness()), ((before + NICENESS).min(19), before));
    }
}
