//! Private servers to break, a proxy that loses what it is told to, and callers who write down what they heard.

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

/// How soon good answers must come again once a server could give them.
pub(crate) const RECOVERY_MAX: Duration = Duration::from_millis(300);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);
/// The machine may be busy with something else once; three times in a row is us.
const ATTEMPTS: usize = 3;

/// One clock for all measurements of a test.
pub(crate) fn now() -> Timestamp {
    static CLOCK: std::sync::OnceLock<PreciseClock> = std::sync::OnceLock::new();
    CLOCK.get_or_init(PreciseClock::new).now()
}

/// Says what was measured. The figures of `docs/concepts/failure-modes.md` are what this prints.
pub(crate) fn figure(fault: &str, what: &str, value: impl std::fmt::Display) {
    println!("{fault}: {what} {value}");
}

/// The best of a few attempts keeps the bar.
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

/// Looks every few milliseconds until it holds.
pub(crate) async fn until(what: &str, limit: Duration, mut holds: impl AsyncFnMut() -> bool) -> Timestamp {
    let begun = now();
    while !holds().await {
        assert!(now().since(begun) < limit, "{what}: not within {limit:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    now()
}

/// Whether an answer is the store's own. Most servers here have run for seconds and are asked about days, so they are not
/// vouched for yet, and their answers are bounded: `label_truth.rs` is about that.
pub(crate) fn is_own(guarantee: Guarantee) -> bool {
    matches!(guarantee, Guarantee::Exact | Guarantee::Bounded(_))
}

/// Resident memory of this process, in bytes.
pub(crate) fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}

/// Open files and sockets of this process.
pub(crate) fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The bound of a tail: 99 in 100 took no longer.
pub(crate) fn p99(mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    took[took.len() * 99 / 100]
}
