//! Commits that hang while reads work, as when the synchronous standby is gone.
//!
//! No timeout of the server ends such a commit. A store that opens a new connection for each abandoned call
//! takes them all, from every application on the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit::SharedLimiter;
use throttlekit::clock::{Clock, PreciseClock};
use throttlekit::store::{Store, StoreClientStats};
use tokio::time::{interval, sleep};

use super::server::Server;

/// The interval at which the server's connections are counted.
const COUNT_EVERY: Duration = Duration::from_millis(100);
/// The interval at which another application connects.
const OTHERS_EVERY: Duration = Duration::from_millis(500);
const RECOVERY_MAX: Duration = Duration::from_secs(30);
/// Connections of the store, and those whose commit hangs. All others use psql, which sets its application
/// name.
const COUNT: &str = "SELECT count(*), count(*) FILTER (WHERE wait_event = 'SyncRep') FROM pg_stat_activity
                     WHERE backend_type = 'client backend' AND application_name <> 'psql'";
const HANG: [&str; 2] = ["ALTER SYSTEM SET synchronous_standby_names = 'gone'", "SELECT pg_reload_conf()"];
const GO_ON: [&str; 2] = ["ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()"];

/// The role of another application: an ordinary one, for which no connections are reserved.
const OTHER: &str = "other_application";

/// The duration of the hang, and the request rate.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The duration in seconds.
    pub seconds: u64,
    /// Requests per second, each for a key of its own.
    pub rate: u64,
}

/// The measurements of one second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Second {
    /// The maximum number of connections of the store.
    pub connections: u64,
    /// The maximum number of them with a hung commit.
    pub hung: u64,
    /// True if the circuit breaker was open at its end.
    pub open: bool,
}

/// The results.
#[derive(Clone, Debug, Default)]
pub struct Exhaustion {
    /// Each second while commits hung.
    pub seconds: Vec<Second>,
    /// Requests sent meanwhile.
    pub requests: u64,
    /// The number of times another application tried to connect, and succeeded.
    pub others: (u64, u64),
    /// The number of times the circuit breaker opened.
    pub opened: u64,
    /// The time until the first good decision, from when commits worked again.
    pub recovery: Duration,
}

impl Exhaustion {
    /// Returns the maximum number of connections of the store.
    pub fn connections_max(&self) -> u64 {
        self.seconds.iter().map(|second| second.connections).max().unwrap_or(0)
    }

    /// Returns the maximum number of hung commits in the second half: by then the circuit breaker is open,
    /// and only a probe's may hang.
    pub fn hung_late(&self) -> u64 {
        let late = self.seconds.iter().skip(self.seconds.len() / 2);
        late.map(|second| second.hung).max().unwrap_or(0)
    }

    /// Returns the number of seconds at whose end the circuit breaker was closed. The first does not count:
    /// it has to open.
    pub fn closed_seconds(&self) -> u64 {
        self.seconds.iter().skip(1).filter(|second| !second.open).count() as u64
    }
}

/// Lets commits hang on a dedicated server while requests come, then continue. `progress` is called each
/// second.
pub async fn hang_commits<S: Store + 'static>(
    server: Arc<Server>,
    limiter: Arc<SharedLimiter<S>>,
    stats: impl Fn(&S) -> StoreClientStats,
    load: Load,
    mut progress: impl FnMut(u64, Second),
) -> Exhaustion {
    let mut seen = Exhaustion::default();
    for i in 0..20 {
        limiter.check(&format!("warm{i}")).await.expect("the server is well");
    }
    server.sql(&[&format!("CREATE ROLE {OTHER} LOGIN")]);
    server.sql(&HANG);
    let stop = Arc::new(AtomicBool::new(false));
    let stops = StopOnDrop(stop.clone());
    let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let counting = tokio::task::spawn_blocking(count(server.clone(), counts.clone(), stop.clone()));
    let others = tokio::task::spawn_blocking(connect_beside(server.clone(), stop.clone()));
    let requests = tokio::spawn(request(limiter.clone(), load.rate, stop.clone()));
    for second in 1..=load.seconds {
        sleep(Duration::from_secs(1)).await;
        let [connections, hung] = [0, 1].map(|i: usize| counts[i].swap(0, Relaxed));
        let this = Second { connections, hung, open: stats(limiter.store()).open };
        progress(second, this);
        seen.seconds.push(this);
    }
    seen.opened = stats(limiter.store()).opened;
    server.sql(&GO_ON);
    seen.recovery = recovery(&limiter).await;
    drop(stops);
    seen.requests = requests.await.expect("requests are sent");
    seen.others = others.await.expect("others connect");
    counting.await.expect("connections are counted");
    // A pile that was only late in coming counts as well.
    let last = Second { connections: counts[0].load(Relaxed), open: true, hung: 0 };
    seen.seconds.push(last);
    seen
}

/// Stops the background tasks, also if this panics because the server has no connection left: a runtime waits
/// for blocking tasks without a time limit.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn count(server: Arc<Server>, most: Arc<[AtomicU64; 2]>, stop: Arc<AtomicBool>) -> impl FnOnce() {
    move || {
        server.watch(COUNT, COUNT_EVERY, |row| {
            let numbers = row.split('|').map(|number| number.parse().unwrap_or(0));
            most.iter().zip(numbers).for_each(|(most, number)| _ = most.fetch_max(number, Relaxed));
            !stop.load(Relaxed)
        });
    }
}

fn connect_beside(server: Arc<Server>, stop: Arc<AtomicBool>) -> impl FnOnce() -> (u64, u64) {
    move || {
        let (mut tried, mut worked) = (0, 0);
        while !stop.load(Relaxed) {
            tried += 1;
            worked += u64::from(server.try_sql(OTHER, "SELECT 1") == Some("1".into()));
            std::thread::sleep(OTHERS_EVERY);
        }
        (tried, worked)
    }
}

/// Sends requests at a constant rate, whether or not earlier ones got a response.
async fn request<S: Store + 'static>(
    limiter: Arc<SharedLimiter<S>>,
    rate: u64,
    stop: Arc<AtomicBool>,
) -> u64 {
    let mut sent = 0;
    // Ticks that a busy machine misses are made up for.
    let mut tick = interval(Duration::from_secs(1) / rate as u32);
    while !stop.load(Relaxed) {
        tick.tick().await;
        let (limiter, key) = (limiter.clone(), format!("k{sent}"));
        tokio::spawn(async move { limiter.check(&key).await.map(drop) });
        sent += 1;
    }
    sent
}

async fn recovery<S: Store>(limiter: &SharedLimiter<S>) -> Duration {
    let clock = PreciseClock::new();
    let begun = clock.now();
    while clock.now().since(begun) < RECOVERY_MAX {
        if limiter.check("back").await.is_ok_and(|answer| answer.outage.is_none()) {
            break;
        }
        sleep(Duration::from_millis(5)).await;
    }
    clock.now().since(begun)
}
