//! One hot key, many tasks, several processes: exactly the limit is admitted.

use std::env;
use std::process::{Command, Stdio};
use std::sync::Arc;

use throttlekit::store::Store;
use throttlekit::{Limit, Rate, SharedLimiter};

/// Concurrent client processes.
pub const PROCESSES: usize = 3;
/// Tasks in each, all with requests for one key.
pub const TASKS: usize = 200;
const ASKS_PER_TASK: usize = 3;
/// Fewer than all requests, more than those of one process.
const LIMIT: u64 = 700;
const VARIABLE: &str = "THROTTLEKIT_HOT_KEY_POLICY";

/// Units admitted by each rule over all processes, and the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotKeyContention {
    /// By GCRA, a window and a sliding log, in this order.
    pub admitted: [u64; 3],
    /// Expected number for each.
    pub limit: u64,
}

/// Runs the test with this name again in several processes at once, which must call [`hot_key_contention`], and adds
/// up.
///
/// # Panics
///
/// If a process fails.
pub fn hot_key_in_processes(test: &str, policy: &str) -> HotKeyContention {
    let exe = env::current_exe().expect("a test knows its own program");
    let start = || {
        let mut command = Command::new(&exe);
        command.args(["--exact", test, "--nocapture"]).env(VARIABLE, policy).stdout(Stdio::piped());
        command.spawn().expect("a test can run itself")
    };
    let children: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
    let mut admitted = [0; 3];
    for child in children {
        let output = child.wait_with_output().expect("a child ends");
        let text = String::from_utf8_lossy(&output.stdout);
        let counts = text.lines().find_map(|line| line.split_once("admitted: ")).map(|(_, counts)| counts);
        let counts = counts.unwrap_or_else(|| panic!("a process of the test failed\n{text}"));
        admitted
            .iter_mut()
            .zip(counts.split(' '))
            .for_each(|(sum, count)| *sum += count.parse::<u64>().unwrap_or(0));
    }
    HotKeyContention { admitted, limit: LIMIT }
}

/// Returns the policy of the stress test that this process is part of, if it is.
pub fn hot_key_policy() -> Option<String> {
    env::var(VARIABLE).ok()
}

/// Runs this process's part of the stress test.
///
/// # Panics
///
/// If the store is unavailable.
pub async fn hot_key_contention<S: Store + Clone>(store: S, policy: &str) {
    let day = std::time::Duration::from_secs(86_400);
    let limits = [
        Limit::gcra(Rate::every(day).burst(LIMIT)),
        Limit::fixed_window(LIMIT, 30 * day),
        Limit::sliding_log(LIMIT, day),
    ];
    let mut admitted = [0; 3];
    for (sum, (index, limit)) in admitted.iter_mut().zip(limits.into_iter().enumerate()) {
        let limit = limit.expect("a limit of the test is valid");
        let limiter = SharedLimiter::new(store.clone(), &format!("{policy}-{index}"), limit);
        *sum = ask_all(Arc::new(limiter.expect("and can be shared"))).await;
    }
    println!("admitted: {} {} {}", admitted[0], admitted[1], admitted[2]);
}

async fn ask_all<S: Store>(limiter: Arc<SharedLimiter<S>>) -> u64 {
    let tasks: Vec<_> = (0..TASKS).map(|_| tokio::spawn(ask_some(limiter.clone()))).collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.expect("a task of the test does not panic");
    }
    admitted
}

async fn ask_some<S: Store>(limiter: Arc<SharedLimiter<S>>) -> u64 {
    let mut admitted = 0;
    for _ in 0..ASKS_PER_TASK {
        let answer = limiter.check("hot").await.expect("the store answers");
        assert!(answer.outage.is_none(), "{answer:?}");
        admitted += u64::from(answer.decision.allowed);
    }
    admitted
}
