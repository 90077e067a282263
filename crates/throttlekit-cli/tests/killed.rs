//! Servers that are killed (SIGKILL) while clients hold slots, and started again at once: never do more than the ceiling
//! work at a time, and the slots come back.
//!
//! `THROTTLEKIT_KILL_ROUNDS=100` plays as many rounds in each scope; a few unless set.

use std::collections::HashMap;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use throttlekit_proto::v1::rate_limiter_client::RateLimiterClient;
use throttlekit_proto::v1::{AdmitRequest, HeartbeatRequest, ReleaseRequest};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tonic::transport::{Channel, Endpoint};

const CEILING: usize = 12;
const CLIENTS: usize = 30;
/// Tests share two cores with whatever else runs.
const PATIENCE: Duration = Duration::from_secs(60);

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: eval \"$(cargo xtask services up)\""))
}

fn rounds(unless_set: usize) -> usize {
    std::env::var("THROTTLEKIT_KILL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(unless_set)
}

/// A server process that is killed and started again on the same port.
struct Instance {
    policies: PathBuf,
    store: String,
    port: u16,
    child: Child,
}

impl Instance {
    fn start(policies: &Path, store: &str, fresh: bool) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = spawn(policies, store, port, fresh);
        Self { policies: policies.to_owned(), store: store.to_owned(), port, child }
    }

    fn kill_and_start(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = spawn(&self.policies, &self.store, self.port, false);
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(policies: &Path, store: &str, port: u16, fresh: bool) -> Child {
    Command::new(env!("CARGO_BIN_EXE_throttlekit"))
        .args(["serve".as_ref(), policies.as_os_str()])
        .args(["--listen", &format!("127.0.0.1:{port}"), "--http", "off", "--metrics", "off"])
        .args(fresh.then_some("--fresh-start"))
        .env("THROTTLEKIT_STORE", store)
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Work under one lease.
#[derive(Clone, Copy)]
struct Job {
    server: usize,
    began: Instant,
    /// Until when it goes on, unless its lease is renewed.
    until: Instant,
}

/// The work that clients do, by their own clocks.
#[derive(Default)]
struct Work {
    jobs: HashMap<String, Job>,
    most: usize,
}

impl Work {
    fn at_once(&self, counts: impl Fn(&Job) -> bool) -> usize {
        let now = Instant::now();
        self.jobs.values().filter(|job| now < job.until && counts(job)).count()
    }
}

#[derive(Clone, Default)]
struct Crowd {
    work: Arc<Mutex<Work>>,
    stop: Arc<AtomicBool>,
}

impl Crowd {
    fn goes_on(&self, lease: &str, job: Job) {
        let mut work = self.work.lock().unwrap();
        work.jobs.insert(lease.to_owned(), job);
        work.most = work.most.max(work.at_once(|_| true));
    }

    fn end(&self, lease: &str) {
        self.work.lock().unwrap().jobs.remove(lease);
    }

    /// Works under one lease after another, each renewed a few times, until it is told to stop.
    async fn client(self, number: usize, channels: Vec<Channel>, policy: String) {
        for turn in number.. {
            if self.stop.load(Relaxed) {
                return;
            }
            let server = turn % channels.len();
            let mut limiter = RateLimiterClient::new(channels[server].clone());
            let began = Instant::now();
            let request = AdmitRequest { policy: policy.clone(), key: "same".into(), ..Default::default() };
            let admitted = timeout(PATIENCE, limiter.admit(request)).await;
            let held = admitted.ok().and_then(Result::ok).map(tonic::Response::into_inner);
            match held.filter(|held| !held.lease_id.is_empty()) {
                Some(held) => {
                    let lease_for = Duration::from_millis(held.lease_for_ms as u64);
                    let job = Job { server, began, until: began + lease_for };
                    self.work_under(&held.lease_id, job, lease_for, turn % 5, &mut limiter).await;
                }
                None => sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Works until it is done, or until the end of the lease where nobody renews it.
    async fn work_under(
        &self,
        lease: &str,
        mut job: Job,
        lease_for: Duration,
        heartbeats: usize,
        limiter: &mut RateLimiterClient<Channel>,
    ) {
        self.goes_on(lease, job);
        for _ in 0..heartbeats {
            sleep(lease_for / 3).await;
            let sent = Instant::now();
            let heartbeat = limiter.heartbeat(HeartbeatRequest { lease_ids: vec![lease.to_owned()] });
            match timeout_at(job.until, heartbeat).await {
                Ok(Ok(renewed)) if !renewed.get_ref().live_ids.is_empty() => {
                    job.until = sent + lease_for;
                    self.goes_on(lease, job);
                }
                // Its server is gone, or does not know it: the worst client, to which that answer is lost, works on.
                _ => {
                    sleep_until(job.until).await;
                    break;
                }
            }
        }
        self.end(lease);
        let _ = limiter.release(ReleaseRequest { lease_id: lease.to_owned(), ..Default::default() }).await;
    }
}

/// Kills one server after another while everyone asks. Each time the ceiling is reached again within `back_within`.
async fn killed(
    scope: &str,
    store: &str,
    servers: usize,
    lease_for: &str,
    rounds: usize,
    back_within: Duration,
) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("policies.yaml");
    // Runs do not meet on one store.
    let mark = format!("{scope}-{}", std::process::id());
    let policy = format!("concurrency: {{limit: {CEILING}, scope: {scope}, lease_for: {lease_for}}}");
    fs::write(&file, format!("version: 1\npolicies:\n  {mark}: {{{policy}}}\n")).unwrap();
    let mut instances: Vec<_> = (0..servers).map(|_| Instance::start(&file, store, true)).collect();
    let channels: Vec<_> = instances
        .iter()
        .map(|instance| {
            Endpoint::from_shared(format!("http://127.0.0.1:{}", instance.port)).unwrap().connect_lazy()
        })
        .collect();
    let crowd = Crowd::default();
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(crowd.clone().client(number, channels.clone(), mark.clone()));
    }
    // Those that were begun at a server before it was killed are not counted.
    let full = async |server: usize, killed: Instant, within: Duration| {
        let alive = |job: &Job| job.server != server || job.began > killed;
        loop {
            let at_once = crowd.work.lock().unwrap().at_once(alive);
            if at_once == CEILING {
                return killed.elapsed();
            }
            assert!(killed.elapsed() < within, "{scope}: {at_once} of {CEILING} after {within:?}");
            sleep(Duration::from_millis(10)).await;
        }
    };
    full(servers, Instant::now(), PATIENCE).await;
    let mut longest = Duration::ZERO;
    for round in 0..rounds {
        // At another point of leases and heartbeats each time.
        sleep(Duration::from_millis(37 * (round as u64 % 20))).await;
        let server = round % servers;
        let killed = Instant::now();
        instances[server].kill_and_start();
        longest = longest.max(full(server, killed, back_within).await);
    }
    crowd.stop.store(true, Relaxed);
    while clients.join_next().await.is_some() {}
    let most = crowd.work.lock().unwrap().most;
    println!(
        "{scope}: {rounds} rounds, most at once {most} of {CEILING}, full again after {longest:.1?} at most"
    );
    assert_eq!(most, CEILING, "{scope}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_restarted_with_slots_of_the_instance() {
    let of = |scope, unless_set| killed(scope, "memory", 1, "1s", rounds(unless_set), PATIENCE);
    // Most of the time everyone waits for leases to end.
    tokio::join!(of("instance", 3), of("instance_key", 3), of("key", 3), of("fleet", 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_restarted_with_slots_of_a_key_on_redis() {
    // Within two leases and what a busy machine adds; with 30 s on the store it took 30 s.
    killed("key", &env("THROTTLEKIT_REDIS"), 2, "1s", rounds(4), Duration::from_secs(15)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_restarted_with_a_ceiling_of_a_fleet_on_redis() {
    // Leases outlive the grant of a share, which lives for 4 s.
    killed("fleet", &env("THROTTLEKIT_REDIS"), 2, "5s", rounds(1), PATIENCE).await;
}
