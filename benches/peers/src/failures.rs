//! Correctness beside speed: a server is killed, and its Redis is killed or hangs, while Envoy's API is called.

use std::env;
use std::fs;
use std::iter::once;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

use crate::Bench;
use crate::apis::RLS;
use crate::exactness::admitted;
use crate::keys::key;
use crate::load::{self, CALLERS, Caller, Load};
use crate::process::{Process, free_address, output};
use crate::servers::{FREE, HUNDRED, LIMITADOR, OURS, Server, Store, absent};

/// Requests per second while Redis fails.
const PACE: f64 = 200.0;
const REQUESTS: usize = 1_200;
/// The last requests of a load, which are sent when Redis has been back for 2 seconds.
const LAST: usize = 300;
const FAILS_AFTER: Duration = Duration::from_secs(1);
const FAILS_FOR: Duration = Duration::from_millis(1_500);
/// The longest a caller waits for a response.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest that a response of ours may take: our server waits 100 ms for its store, and the machine is shared.
const LONGEST_MS: f64 = 500.0;
/// The only key: each Redis of this part is new.
const KEY: usize = 0;

pub fn run(bench: &mut Bench) -> Result<()> {
    println!("\n### failures, on a Redis of their own, {PACE} requests per second");
    println!("| contender | failure | allowed | denied | errors | longest ms | allowed of the last {LAST} |");
    println!("|---|---|---|---|---|---|---|");
    for name in [OURS, LIMITADOR] {
        if name == LIMITADOR && !bench.programs.has_limitador() {
            bench.report.text("failures: Limitador", &absent(name));
            continue;
        }
        for failure in [Failure::Killed, Failure::Hung] {
            redis_fails(bench, name, failure)?;
        }
    }
    println!("\n### limit {}: spent, the server is killed and started again", HUNDRED.units);
    for name in [OURS, LIMITADOR] {
        if name == OURS || bench.programs.has_limitador() {
            server_is_killed(bench, name)?;
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Failure {
    Killed,
    Hung,
}

/// A Redis of our own, which may fail.
struct Redis {
    address: SocketAddr,
    folder: PathBuf,
    process: Option<Process>,
}

/// What callers got.
#[derive(Default)]
struct Tally {
    allowed: usize,
    denied: usize,
    errors: usize,
    longest: Duration,
    /// Allowed of the last requests.
    at_end: usize,
}

fn redis_fails(bench: &mut Bench, name: &'static str, failure: Failure) -> Result<()> {
    let mut redis = Redis::start()?;
    let running = bench.programs.start_all(Store::Redis(&redis.url()))?;
    let server = running.get(name).context("it was started")?;
    let requests = Arc::new(load::encode(RLS, FREE, once(key(KEY))));
    let load = Arc::new(Load { requests, order: Arc::new(vec![0; REQUESTS]), pace: Some(PACE) });
    let word = failure.word();
    eprintln!("… failures, {name}: Redis {word}");
    let tally = bench.runtime.block_on(async {
        let walks = begin(server, &load).await?;
        sleep(FAILS_AFTER).await;
        redis.fail(failure)?;
        sleep(FAILS_FOR).await;
        redis.come_back(failure).await?;
        let mut tally = Tally::default();
        walks.join_all().await.iter().for_each(|part| tally.add(part));
        anyhow::Ok(tally)
    })?;
    let longest_ms = (tally.longest.as_secs_f64() * 1e3).round();
    let Tally { allowed, denied, errors, at_end, .. } = tally;
    println!("| {name} | Redis {word} | {allowed} | {denied} | {errors} | {longest_ms} | {at_end} |");
    let title = |what: &str| format!("Redis {word}: {what} of {name}");
    if name == OURS {
        bench.report.exactly(&title("errors"), errors, 0);
        bench.report.exactly(&title("allowed at the end"), at_end, LAST);
        bench.report.at_most(&title("longest ms"), longest_ms, LONGEST_MS);
    } else {
        let counts =
            [("errors", errors as f64), ("longest ms", longest_ms), ("allowed at the end", at_end as f64)];
        counts.iter().for_each(|(what, count)| bench.report.record(&title(what), *count));
    }
    Ok(())
}

/// Redis keeps what was spent, so nothing is allowed after the restart.
fn server_is_killed(bench: &mut Bench, name: &'static str) -> Result<()> {
    let redis = Redis::start()?;
    let mut allowed = Vec::new();
    for _ in 0..2 {
        let running = bench.programs.start_all(Store::Redis(&redis.url()))?;
        let server = running.get(name).context("it was started")?;
        // Dropping a server kills it.
        allowed.push(admitted(bench, &[server], RLS, KEY)?);
    }
    let title = |when| format!("server killed: admitted of {} {when}, {name}", HUNDRED.units);
    if name == OURS {
        bench.report.exactly(&title("before"), allowed[0], HUNDRED.units as usize);
        bench.report.exactly(&title("after"), allowed[1], 0);
    } else {
        bench.report.note(&title("before"), allowed[0] as f64);
        bench.report.note(&title("after"), allowed[1] as f64);
    }
    Ok(())
}

/// Begins to send the whole load at its pace.
async fn begin(server: &Server, load: &Arc<Load>) -> Result<JoinSet<Tally>> {
    let callers = load::connect(server, RLS, CALLERS).await?;
    let (next, begun) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let mut walks = JoinSet::new();
    for caller in callers {
        walks.spawn(walk(caller, load.clone(), next.clone(), begun));
    }
    Ok(walks)
}

/// Takes the next requests in order until none is left. An error is counted, and ends nothing.
async fn walk(mut caller: Caller, load: Arc<Load>, next: Arc<AtomicUsize>, begun: Instant) -> Tally {
    let mut tally = Tally::default();
    loop {
        let request = next.fetch_add(1, Relaxed);
        if request >= load.order.len() {
            return tally;
        }
        let due = load.due(begun, request).await;
        let response = timeout(PATIENCE, caller.call(&load.requests, &[0])).await;
        tally.longest = tally.longest.max(due.elapsed());
        match response {
            Ok(Ok(0)) => tally.denied += 1,
            Ok(Ok(_)) => {
                tally.allowed += 1;
                tally.at_end += usize::from(request >= load.order.len() - LAST);
            }
            Ok(Err(_)) | Err(_) => tally.errors += 1,
        }
    }
}

impl Failure {
    const fn word(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Hung => "hung",
        }
    }
}

impl Tally {
    fn add(&mut self, part: &Self) {
        self.allowed += part.allowed;
        self.denied += part.denied;
        self.errors += part.errors;
        self.longest = self.longest.max(part.longest);
        self.at_end += part.at_end;
    }
}

impl Redis {
    fn start() -> Result<Self> {
        let folder = env::temp_dir().join(format!("throttlekit-peers-redis-{}", process::id()));
        fs::create_dir_all(&folder)?;
        let address = free_address()?;
        let process = Some(start(address, &folder)?);
        Ok(Self { address, folder, process })
    }

    fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    fn fail(&mut self, failure: Failure) -> Result<()> {
        match failure {
            Failure::Killed => self.process = None,
            Failure::Hung => self.signal("-STOP")?,
        }
        Ok(())
    }

    async fn come_back(&mut self, failure: Failure) -> Result<()> {
        match failure {
            Failure::Killed => {
                let (address, folder) = (self.address, self.folder.clone());
                self.process = Some(spawn_blocking(move || start(address, &folder)).await??);
            }
            Failure::Hung => self.signal("-CONT")?,
        }
        Ok(())
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let process = self.process.as_ref().context("Redis runs")?;
        output(Command::new("kill").arg(signal).arg(process.id().to_string())).map(drop)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.process = None;
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Starts a Redis that keeps nothing on disk.
fn start(address: SocketAddr, folder: &Path) -> Result<Process> {
    let mut command = Command::new("redis-server");
    command.args(["--bind", &address.ip().to_string(), "--port", &address.port().to_string()]);
    command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(folder);
    Process::start(command, &[address])
}
