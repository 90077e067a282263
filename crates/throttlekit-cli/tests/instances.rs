//! Three instances over one store, as people run them: processes that are killed, stopped and started again while two
//! hundred clients ask, and a policy file that changes ten times a second.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use throttlekit_proto::v1::CheckRequest;
use throttlekit_proto::v1::rate_limiter_client::RateLimiterClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::{Channel, Endpoint};

const CLIENTS: usize = 200;
const INSTANCES: usize = 3;
/// How many units an instance fetches at a time, of the policy that is leased.
const BATCH: u64 = 16;
/// How long an instance that is stopped in order goes on serving while it is not ready, in seconds: long enough for
/// clients that watch readiness.
const LAME_DUCK_S: &str = "2";
/// For clients that do not.
const LAME_DUCK_SHORT_S: &str = "1";
/// How often a client looks whether an instance is ready.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Tests share two cores with whatever else runs.
const PATIENCE: Duration = Duration::from_secs(60);

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: eval \"$(cargo xtask services up)\""))
}

fn spawn(policies: &Path, store: &str, lame_duck_s: &str, [port, http]: [u16; 2]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_throttlekit"))
        .args(["serve".as_ref(), policies.as_os_str()])
        .args([
            "--listen",
            &format!("127.0.0.1:{port}"),
            "--http",
            &format!("127.0.0.1:{http}"),
            "--metrics",
            "127.0.0.1:0",
            "--migrate",
        ])
        .args(["--reload-every-ms", "50", "--store-deadline-ms", "20000"])
        .args(["--lame-duck-s", lame_duck_s])
        .env("THROTTLEKIT_STORE", store)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// One server process.
struct Instance {
    policies: PathBuf,
    store: String,
    lame_duck_s: &'static str,
    /// Of gRPC and of HTTP.
    ports: [u16; 2],
    child: Child,
}

impl Instance {
    async fn start(policies: &Path, store: &str, lame_duck_s: &'static str, ports: [u16; 2]) -> Self {
        let child = spawn(policies, store, lame_duck_s, ports);
        let mut started =
            Self { policies: policies.to_owned(), store: store.to_owned(), lame_duck_s, ports, child };
        let deadline = Instant::now() + PATIENCE;
        while tokio::net::TcpStream::connect(("127.0.0.1", ports[0])).await.is_err() {
            assert!(Instant::now() < deadline, "the server does not come up");
            sleep(Duration::from_millis(20)).await;
            // It does not start with a file that is bad; whoever looks after it tries again.
            if started.child.try_wait().unwrap().is_some() {
                started.child = spawn(policies, store, lame_duck_s, ports);
            }
        }
        started
    }

    fn signal(&self, signal: &str) {
        let sent =
            Command::new("sh").arg("-c").arg(format!("kill {signal} {}", self.child.id())).status().unwrap();
        assert!(sent.success());
    }

    /// Ends it with this signal, waits until it is gone, and starts it again.
    async fn restart(mut self, signal: &str) -> Self {
        self.signal(signal);
        let gone = tokio::task::spawn_blocking(move || {
            self.child.wait().unwrap();
            self
        });
        let gone = timeout(PATIENCE, gone).await.expect("it stops in time").unwrap();
        Self::start(&gone.policies, &gone.store, gone.lame_duck_s, gone.ports).await
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port below those that the system gives to others: they would take it while its instance is away, and clients would
/// call them.
fn free_port() -> u16 {
    const FIRST: u32 = 11_000;
    const COUNT: u32 = 10_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let begin = std::process::id().wrapping_mul(7_919);
    let mut ports = (0..COUNT).map(|_| FIRST + begin.wrapping_add(NEXT.fetch_add(1, Relaxed)) % COUNT);
    let free = ports.find(|port| TcpListener::bind(("127.0.0.1", *port as u16)).is_ok());
    free.expect("a free port") as u16
}

fn channel(port: u16) -> Channel {
    Endpoint::from_shared(format!("http://127.0.0.1:{port}")).unwrap().connect_lazy()
}

/// What clients saw.
#[derive(Default)]
struct Seen {
    allowed: AtomicU64,
    denied: AtomicU64,
    /// Asks that got no answer: they may have been counted.
    lost: AtomicU64,
    /// Why.
    failures: Mutex<Vec<String>>,
}

impl Seen {
    fn read(&self) -> (u64, u64, u64) {
        self.failures.lock().unwrap().iter().for_each(|failure| println!("no answer: {failure}"));
        (self.allowed.load(Relaxed), self.denied.load(Relaxed), self.lost.load(Relaxed))
    }
}

/// Asks an instance; another, if that one was not there to be asked. Says whether it was allowed; nothing, if an ask that
/// may have been counted got no answer.
async fn one_ask(policy: &str, channels: &[Channel], first: usize) -> Result<bool, String> {
    for turn in 0.. {
        let mut limiter = RateLimiterClient::new(channels[(first + turn) % channels.len()].clone());
        let request =
            CheckRequest { policy: policy.into(), key: "all".into(), cost: 1, ..CheckRequest::default() };
        match limiter.check(request).await {
            Ok(answer) => {
                return Ok(answer.get_ref().decision.as_ref().is_some_and(|decision| decision.allowed));
            }
            Err(status) if was_not_sent(&status) => sleep(Duration::from_millis(5)).await,
            Err(status) => return Err(format!("{status:?}")),
        }
    }
    unreachable!("there is always another turn")
}

/// Whether the request never reached anyone who would answer it: there was no connection, it was still waiting for one
/// that closed or had just closed, or it came after the server had said which requests it would still answer (RFC 9113, 6.8). Clients that
/// know it send such a request again by themselves.
fn was_not_sent(status: &tonic::Status) -> bool {
    let said = format!("{status:?}");
    UNSENT.iter().any(|unsent| said.contains(unsent))
}

const UNSENT: [&str; 5] = [
    "tcp connect error",
    "Connection refused",
    "Canceled, \"connection closed\"",
    "Canceled, \"connection was not ready\"",
    "NO_ERROR, Remote",
];

/// Two hundred clients that ask one instance or another until they are told to stop.
struct Crowd {
    seen: Arc<Seen>,
    stop: Arc<AtomicBool>,
    tasks: tokio::task::JoinSet<()>,
}

impl Crowd {
    fn asking(policy: &str, ports: [u16; INSTANCES], asks_each: usize) -> Self {
        let (seen, stop) = (Arc::new(Seen::default()), Arc::new(AtomicBool::new(false)));
        let mut tasks = tokio::task::JoinSet::new();
        // Few connections, each used by many clients, as gateways do.
        let channels: Vec<_> = (0..12).map(|i| channel(ports[i % INSTANCES])).collect();
        for client in 0..CLIENTS {
            let (seen, stop, channels) = (seen.clone(), stop.clone(), channels.clone());
            let policy = policy.to_owned();
            tasks.spawn(async move {
                for ask in 0..asks_each {
                    if stop.load(Relaxed) {
                        return;
                    }
                    let count = match one_ask(&policy, &channels, client + ask).await {
                        Ok(true) => &seen.allowed,
                        Ok(false) => &seen.denied,
                        Err(failure) => {
                            seen.failures.lock().unwrap().push(failure);
                            &seen.lost
                        }
                    };
                    count.fetch_add(1, Relaxed);
                }
            });
        }
        Self { seen, stop, tasks }
    }

    async fn finish(mut self) -> (u64, u64, u64) {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        timeout(PATIENCE * 4, all).await.expect("everyone is answered");
        self.seen.read()
    }

    async fn end(self) -> (u64, u64, u64) {
        self.stop.store(true, Relaxed);
        self.finish().await
    }
}

/// A file in which nothing that counts changes, but much else does: other policies come, go and change, and the two that
/// are asked about change their words.
fn policies(turn: u64, limit: u64, mark: u32) -> String {
    let other = turn % 7 + 1;
    format!(
        "version: 1
policies:
  strict-{mark}:
    description: turn {turn}
    rate: {{algorithm: fixed_window, limit: {limit}, per: 1d}}
  leased-{mark}:
    description: turn {turn}
    rate: {{algorithm: fixed_window, limit: {limit}, per: 1d, lease: {{mode: leased, batch: {BATCH}}}}}
  other-{mark}-{other}: {{rate: {{limit: {other}, per: 1s}}}}
"
    )
}

struct Cluster {
    _folder: TempDir,
    path: PathBuf,
    instances: [Option<Instance>; INSTANCES],
    ports: [u16; INSTANCES],
    /// In the names of its policies, so that runs do not meet on one store.
    mark: u32,
}

impl Cluster {
    async fn of(store: &str, limit: u64, lame_duck_s: &'static str) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("policies.yaml");
        let mark = std::process::id();
        fs::write(&path, policies(0, limit, mark)).unwrap();
        let ports = [free_port(), free_port(), free_port()];
        let mut instances = [None, None, None];
        for (instance, port) in instances.iter_mut().zip(ports) {
            *instance = Some(Instance::start(&path, store, lame_duck_s, [port, free_port()]).await);
        }
        Self { _folder: folder, path, instances, ports, mark }
    }

    async fn restart(&mut self, place: usize, signal: &str) {
        let instance = self.instances[place].take().unwrap();
        self.instances[place] = Some(instance.restart(signal).await);
    }

    /// Writes the file again ten times a second, each time whole, as an operator's tools do.
    fn keep_writing(&self, limit: u64) -> tokio::task::JoinHandle<u64> {
        let (path, mark) = (self.path.clone(), self.mark);
        tokio::spawn(async move {
            for turn in 1.. {
                let next = path.with_extension("next");
                // Every fifth is bad, and must change nothing.
                let text = if turn % 5 == 0 {
                    "version: 1\npolicies: [".to_owned()
                } else {
                    policies(turn, limit, mark)
                };
                fs::write(&next, text).unwrap();
                fs::rename(&next, &path).unwrap();
                sleep(Duration::from_millis(100)).await;
            }
            0
        })
    }
}

async fn exactly_the_limit(store: &str) {
    let limit = 5_000;
    let cluster = Cluster::of(store, limit, LAME_DUCK_SHORT_S).await;
    let writing = cluster.keep_writing(limit);
    for policy in ["strict", "leased"].map(|name| format!("{name}-{}", cluster.mark)) {
        let crowd = Crowd::asking(&policy, cluster.ports, 40);
        let (allowed, denied, lost) = crowd.finish().await;
        println!("{policy}: {allowed} allowed, {denied} denied, {lost} lost");
        assert_eq!(allowed + denied, (CLIENTS * 40) as u64);
        // An instance whose clients have finished may still hold a leased unit that the others were denied.
        let (held, _, lost_later) = Crowd::asking(&policy, cluster.ports, 4).finish().await;
        let lost = lost + lost_later;
        assert_eq!((allowed + held, lost), (limit, 0), "{policy}: no lost budget, no fresh one, no error");
    }
    writing.abort();
}

/// Instances that are stopped in order, one after another, while everyone asks: no unit is lost. An ask that got no answer
/// was on a connection that closed, and was not counted either: else the sum would be less.
async fn nothing_is_lost_by_stopping(store: &str) {
    let limit = 6_000;
    let mut cluster = Cluster::of(store, limit, LAME_DUCK_SHORT_S).await;
    for policy in ["strict", "leased"].map(|name| format!("{name}-{}", cluster.mark)) {
        let crowd = Crowd::asking(&policy, cluster.ports, usize::MAX);
        for place in 0..INSTANCES {
            sleep(Duration::from_millis(200)).await;
            cluster.restart(place, "-TERM").await;
        }
        let (allowed, denied, lost) = crowd.end().await;
        let (more, _, lost_later) =
            Crowd::asking(&policy, cluster.ports, limit as usize / CLIENTS).finish().await;
        println!("{policy}: {allowed} and {more} allowed, {denied} denied, {lost} without an answer");
        assert_eq!((allowed + more, lost_later), (limit, 0), "{policy}");
    }
}

/// Instances that are killed: what was counted and not told is lost, and what was lent to them; never is there more.
async fn never_more_while_instances_are_killed(store: &str) {
    let limit = 6_000;
    let mut cluster = Cluster::of(store, limit, LAME_DUCK_SHORT_S).await;
    let writing = cluster.keep_writing(limit);
    for policy in ["strict", "leased"].map(|name| format!("{name}-{}", cluster.mark)) {
        let crowd = Crowd::asking(&policy, cluster.ports, usize::MAX);
        for place in 0..INSTANCES {
            sleep(Duration::from_millis(200)).await;
            cluster.restart(place, "-KILL").await;
        }
        let (allowed, denied, lost) = crowd.end().await;
        let (more, _, lost_later) =
            Crowd::asking(&policy, cluster.ports, limit as usize / CLIENTS).finish().await;
        println!("{policy}: {allowed} and {more} allowed, {denied} denied, {lost} lost");
        assert!(allowed + more <= limit, "{policy}: {allowed} + {more} of {limit}");
        // A batch in hand and one under way, at each that was killed.
        let lent = if policy.starts_with("leased") { 2 * BATCH * INSTANCES as u64 } else { 0 };
        assert!(
            allowed + more + lost + lost_later + lent >= limit,
            "{policy}: {allowed} + {more} + {lost} of {limit}"
        );
    }
    writing.abort();
}

/// Whether an instance says that it is ready.
async fn is_ready(http: u16) -> bool {
    let look = async {
        let mut tcp = tokio::net::TcpStream::connect(("127.0.0.1", http)).await?;
        tcp.write_all(b"GET /readyz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).await.map(|_| answer)
    };
    let answer: std::io::Result<String> = look.await;
    answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// Clients that ask instances which are ready, each over a connection to every one of them, and never twice.
async fn watching(
    policy: String,
    places: [(u16, u16); INSTANCES],
    stop: Arc<AtomicBool>,
) -> (u64, Vec<String>) {
    let ready: Arc<[AtomicBool; INSTANCES]> = Arc::default();
    let mut tasks = tokio::task::JoinSet::new();
    for (place, (_, http)) in places.into_iter().enumerate() {
        let (ready, stop) = (ready.clone(), stop.clone());
        tasks.spawn(async move {
            while !stop.load(Relaxed) {
                ready[place].store(is_ready(http).await, Relaxed);
                sleep(LOOK_EVERY).await;
            }
            (0, Vec::new())
        });
    }
    for client in 0..20_usize {
        let (ready, stop, policy) = (ready.clone(), stop.clone(), policy.clone());
        tasks.spawn(async move {
            let channels = places.map(|(port, _)| channel(port));
            let (mut answered, mut failed) = (0, Vec::new());
            for turn in client.. {
                if stop.load(Relaxed) {
                    break;
                }
                sleep(Duration::from_millis(2)).await;
                let place = turn % INSTANCES;
                if !ready[place].load(Relaxed) {
                    continue;
                }
                let request =
                    CheckRequest { policy: policy.clone(), key: "all".into(), ..Default::default() };
                match RateLimiterClient::new(channels[place].clone()).check(request).await {
                    Ok(_) => answered += 1,
                    Err(status) => failed.push(format!("{status:?}")),
                }
            }
            (answered, failed)
        });
    }
    let each = tasks.join_all().await;
    each.into_iter().fold((0, Vec::new()), |(answered, mut all), (more, failed)| {
        all.extend(failed);
        (answered + more, all)
    })
}

/// Instances are replaced one after another while everyone asks: whoever watches readiness never fails, and whoever
/// sends again what GOAWAY said was not taken does not either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_of_three_fails_no_call() {
    let mut cluster = Cluster::of(&env("THROTTLEKIT_REDIS"), 1_000_000, LAME_DUCK_S).await;
    let policy = format!("strict-{}", cluster.mark);
    let places =
        [0, 1, 2].map(|place| (cluster.ports[place], cluster.instances[place].as_ref().unwrap().ports[1]));
    let stop = Arc::new(AtomicBool::new(false));
    let watching = tokio::spawn(watching(policy.clone(), places, stop.clone()));
    let crowd = Crowd::asking(&policy, cluster.ports, usize::MAX);
    for (place, (_, http)) in places.into_iter().enumerate() {
        cluster.restart(place, "-TERM").await;
        let deadline = Instant::now() + PATIENCE;
        while !is_ready(http).await {
            assert!(Instant::now() < deadline, "it is not ready again");
            sleep(LOOK_EVERY).await;
        }
        // As a rollout does: the next one when clients have noticed.
        sleep(LOOK_EVERY * 5).await;
    }
    stop.store(true, Relaxed);
    let (answered, failed) = watching.await.unwrap();
    let (allowed, denied, lost) = crowd.end().await;
    println!(
        "watching: {answered} answered, {} failed; reconnecting: {} answered, {lost} failed",
        failed.len(),
        allowed + denied
    );
    assert!(failed.is_empty(), "{} failed: {:?}", failed.len(), failed.first());
    assert_eq!(lost, 0, "who sends again what was not taken");
    assert!(answered > 100 && allowed > 100, "{answered} and {allowed} were answered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_on_redis_admit_exactly_the_limit_while_the_file_changes() {
    exactly_the_limit(&env("THROTTLEKIT_REDIS")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_on_redis_never_admit_more_while_they_are_killed() {
    never_more_while_instances_are_killed(&env("THROTTLEKIT_REDIS")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_on_redis_lose_nothing_when_they_are_stopped() {
    nothing_is_lost_by_stopping(&env("THROTTLEKIT_REDIS")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_on_postgres_admit_exactly_the_limit_while_the_file_changes() {
    exactly_the_limit(&env("THROTTLEKIT_POSTGRES")).await;
}
