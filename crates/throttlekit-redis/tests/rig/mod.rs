//! Private servers for fault injection, a lossy proxy, and callers that record their responses.

mod cluster;
mod load;
mod pair;
mod proxy;
mod sentinel;
mod server;

use std::time::Duration;

use throttlekit::Guarantee;
use throttlekit::clock::{Clock, PreciseClock};
use throttlekit::rate::Timestamp;
use throttlekit_redis::RedisStore;

pub(crate) use cluster::{Cluster, window_key};
pub(crate) use load::{Heard, Load, admitted, ask_once, exact_after, labelled};
pub(crate) use pair::Pair;
pub(crate) use proxy::Proxy;
pub(crate) use sentinel::Sentinels;
pub(crate) use server::{Connection, Server, ask};

pub(crate) type Limiter = throttlekit::SharedLimiter<RedisStore>;

/// The maximum time until exact responses resume once a server could give them.
pub(crate) const RECOVERY_MAX: Duration = Duration::from_millis(300);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);
/// A machine may be busy once; three failures in a row are ours.
const ATTEMPTS: usize = 3;

/// Returns the time of one clock for all measurements of a test.
pub(crate) fn now() -> Timestamp {
    static CLOCK: std::sync::OnceLock<PreciseClock> = std::sync::OnceLock::new();
    CLOCK.get_or_init(PreciseClock::new).now()
}

/// Prints a measurement. The figures of `docs/concepts/failure-modes.md` are printed here.
pub(crate) fn figure(fault: &str, what: &str, value: impl std::fmt::Display) {
    println!("{fault}: {what} {value}");
}

/// Checks that the best of a few attempts meets the threshold.
pub(crate) async fn recovers(fault: &str, mut attempt: impl AsyncFnMut(usize) -> Duration) {
    let mut measured = Vec::new();
    for number in 0..ATTEMPTS {
        let took = attempt(number).await;
        measured.push(took);
        if took <= RECOVERY_MAX {
            break;
        }
    }
    figure(fault, "recovery_ms", measured.last().map_or(0, Duration::as_millis));
    assert!(measured.iter().min() <= Some(&RECOVERY_MAX), "{fault}: {measured:?}");
}

/// Polls every few milliseconds until it holds.
pub(crate) async fn until(what: &str, limit: Duration, mut holds: impl AsyncFnMut() -> bool) -> Timestamp {
    let begun = now();
    while !holds().await {
        assert!(now().since(begun) < limit, "{what}: not within {limit:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    now()
}

/// Returns `true` if a response is the store's own. Most servers here have run for seconds and decide about
/// days, so they are not vouched for yet, and their responses are bounded: `label_truth.rs` tests that.
pub(crate) fn is_own(guarantee: Guarantee) -> bool {
    matches!(guarantee, Guarantee::Exact | Guarantee::Bounded(_))
}

/// Returns the resident memory of this process, in bytes.
pub(crate) fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}

/// Returns the number of open files and sockets of this process.
pub(crate) fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Returns the 99th percentile.
pub(crate) fn p99(mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    took[took.len() * 99 / 100]
}
