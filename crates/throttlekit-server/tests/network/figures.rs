//! What an attack costs everyone else: a server in a process of its own, one honest client, one attacker, by turns.
//!
//! `cargo xtask prove abuse` runs it with optimisation. It is left out of ordinary test runs, which share their
//! processors with others and so can say nothing about the time that requests take.

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Map, Value, json};
use throttlekit_proto::v1::{CheckManyRequest, CheckManyResponse};
use throttlekit_server::listen::{Limits, ListenOptions, Speaks};
use tokio::time::{Instant, interval, sleep, timeout};

use crate::attack;
use crate::client::{CHECK, Client, framed};
use crate::target::Target;

/// How much slower an attack may make the slowest in a hundred honest requests.
const P99_TIMES_MAX: f64 = 2.0;
/// Below this a time says more about the machine than about the server.
const P99_FLOOR: Duration = Duration::from_millis(1);
const GROWTH_MIB_MAX: f64 = 64.0;
const HONEST_EVERY: Duration = Duration::from_millis(2);

/// Attacks until it is told to stop.
type Attack = fn(SocketAddr, Arc<AtomicBool>, Arc<AtomicU64>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// Repeats an attack on one connection after the other, and counts them.
macro_rules! attacks {
    ($(($name:literal, |$address:ident| $once:expr)),* $(,)?) => {
        &[$(($name, |$address, stop, count| Box::pin(async move {
            while !stop.load(Ordering::Relaxed) {
                let _ = timeout(Duration::from_secs(2), $once).await;
                count.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_millis(10)).await;
            }
        }))),*]
    };
}

const ATTACKS: &[(&str, Attack)] = attacks![
    ("rapid_reset", |address| attack::rapid_reset(address, 100_000)),
    ("made_reset", |address| attack::made_reset(address, 100_000)),
    ("continuation_flood", |address| attack::continuation_flood(address, 1 << 24)),
    ("header_bomb", |address| attack::header_bomb(address, 20)),
    ("slow", |address| slow(address)),
    ("zero_window", |address| attack::zero_window(address, 200, Duration::from_secs(1))),
    ("huge_message", |address| huge(address)),
    ("random_keys", |address| random_keys(address)),
];

async fn slow(address: SocketAddr) {
    let (pause, time) = (Duration::from_millis(50), Duration::from_secs(1));
    let one = |number: usize| async move {
        let bytes = [attack::SLOW_PREFACE, attack::SLOW_HEADERS, &[]][number % 3];
        let _ = attack::drip(address, bytes, pause, time).await;
    };
    futures_util::future::join_all((0..300).map(one)).await;
}

async fn huge(address: SocketAddr) {
    let Ok(client) = Client::connect(address).await else { return };
    let body = framed(&vec![0; 5 << 20]);
    for _ in 0..4 {
        let _ = client.raw(CHECK, &[], body.clone()).await;
    }
}

/// A thousand asks of a hundred keys each that nobody asked for before.
async fn random_keys(address: SocketAddr) {
    use std::hash::{BuildHasher, RandomState};
    let (Ok(client), random) = (Client::connect(address).await, RandomState::new()) else { return };
    for ask in 0..1_000_u32 {
        let keys = (0..100_u32).map(|n| format!("{:016x}", random.hash_one((ask, n)))).collect();
        let ask = CheckManyRequest { policy: "api".into(), keys, ..CheckManyRequest::default() };
        let path = "/throttlekit.v1.RateLimiter/CheckMany";
        if client.call::<CheckManyResponse>(path, &[], &ask).await.is_err() {
            return;
        }
        KEYS.fetch_add(100, Ordering::Relaxed);
    }
}

static KEYS: AtomicU64 = AtomicU64::new(0);

/// The server under attack: this test binary again, which serves until its input ends.
struct Besieged {
    child: Child,
    address: SocketAddr,
}

const SERVE: &str = "ABUSE_SERVE";

impl Besieged {
    fn start() -> Self {
        let exe = std::env::current_exe().expect("this binary");
        let mut child = Command::new(exe)
            .args(["--ignored", "--exact", "figures::besieged", "--nocapture", "--test-threads=1"])
            .env(SERVE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let found =
            lines.map_while(Result::ok).find_map(|line| line.split("listening ").nth(1)?.parse().ok());
        Self { child, address: found.expect("its address") }
    }

    fn resident_mib(&self) -> f64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("its status");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("its size");
        let kib: f64 = line.split_whitespace().nth(1).expect("a number").parse().expect("a number");
        kib / 1024.0
    }
}

impl Drop for Besieged {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the other process of `figures`"]
async fn besieged() {
    if std::env::var_os(SERVE).is_none() {
        return;
    }
    let limits = Limits { stall_max: Duration::from_secs(2), ..Limits::default() };
    let options = ListenOptions { limits, speaks: Speaks::Http, ..ListenOptions::default() };
    let target = Target::open(options).await;
    println!("listening {}", target.address);
    let mut nothing = String::new();
    let waiting = tokio::task::spawn_blocking(move || std::io::stdin().read_line(&mut nothing));
    assert!(waiting.await.is_ok());
    target.stop().await;
}

/// Honest requests at a steady pace, measured from when each was due.
async fn honest(client: &Client, time: Duration, times: &mut Vec<Duration>) {
    let (mut due, end) = (interval(HONEST_EVERY), Instant::now() + time);
    loop {
        let at = due.tick().await;
        if at >= end {
            return;
        }
        let answer = client.check("chat", "honest").await;
        assert!(answer.is_ok(), "an honest request failed: {answer:?}");
        times.push(at.elapsed());
    }
}

fn p99(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures, so it wants the machine: cargo xtask prove abuse"]
async fn figures() {
    let small = std::env::var_os("ABUSE_SMALL").is_some();
    let (turns, turn) = if small { (2, Duration::from_secs(1)) } else { (5, Duration::from_secs(2)) };
    let server = Besieged::start();
    let client = Client::connect(server.address).await.expect("a connection");
    honest(&client, Duration::from_secs(1), &mut Vec::new()).await;
    let before = server.resident_mib();
    let (mut figure, mut broken) = (Map::new(), Vec::new());
    println!("{:<20}{:>12}{:>12}{:>8}{:>10}{:>10}", "attack", "quiet p99", "p99", "times", "rounds", "MiB");
    for (name, attack) in ATTACKS {
        let (mut quiet, mut attacked) = (Vec::new(), Vec::new());
        let (count, size) = (Arc::<AtomicU64>::default(), server.resident_mib());
        for _ in 0..turns {
            honest(&client, turn, &mut quiet).await;
            let stop = Arc::<AtomicBool>::default();
            let attacking = tokio::spawn(attack(server.address, stop.clone(), count.clone()));
            honest(&client, turn, &mut attacked).await;
            stop.store(true, Ordering::Relaxed);
            attacking.await.expect("an attacker does not panic");
        }
        let (quiet, attacked) = (p99(&mut quiet), p99(&mut attacked));
        let times = attacked.as_secs_f64() / quiet.max(P99_FLOOR).as_secs_f64();
        let (rounds, grown) = (count.load(Ordering::Relaxed), server.resident_mib() - size);
        println!("{name:<20}{quiet:>12.1?}{attacked:>12.1?}{times:>8.2}{rounds:>10}{grown:>10.1}");
        if times > P99_TIMES_MAX {
            broken.push(format!("{name}: the slowest in a hundred took {times:.2} times as long"));
        }
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let values = json!({"quiet_p99_us": micros(quiet), "p99_us": micros(attacked), "times": round(times),
            "rounds": rounds, "grown_mib": round(grown)});
        figure.insert((*name).into(), values);
    }
    let grown = server.resident_mib() - before;
    if grown > GROWTH_MIB_MAX {
        broken.push(format!("the server grew by {grown:.1} MiB"));
    }
    figure.insert("name".into(), "prove-abuse".into());
    figure.insert("grown_mib".into(), round(grown).into());
    figure.insert("keys".into(), KEYS.load(Ordering::Relaxed).into());
    println!("figure: {}", Value::from(figure));
    assert!(broken.is_empty(), "not proved:\n  {}", broken.join("\n  "));
}

fn round(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}
