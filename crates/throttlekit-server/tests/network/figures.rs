//! What an attack costs everyone else: a server in a process of its own, one honest client, one attacker, by turns.
//!
//! `cargo xtask prove abuse` runs it with optimisation. It is left out of ordinary test runs, which share their
//! processors with others and so can say nothing about the time that requests take.

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Map, Value, json};
use throttlekit_proto::v1::{CheckManyRequest, CheckManyResponse};
use throttlekit_server::listen::{Limits, ListenOptions, Speaks};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, interval, sleep, timeout_at};

use crate::attack;
use crate::client::{CHECK, Client, framed};
use crate::target::Target;

/// How much slower an attack may make the slowest in a hundred honest requests.
const P99_TIMES_MAX: f64 = 2.0;
/// Below this a time says more about the machine than about the server.
const P99_FLOOR: Duration = Duration::from_millis(1);
const GROWTH_MIB_MAX: f64 = 64.0;
const HONEST_EVERY: Duration = Duration::from_millis(5);

/// One round of an attack, on one connection or a few hundred.
type Attack = fn(SocketAddr) -> Pin<Box<dyn Future<Output = ()> + Send>>;

macro_rules! attacks {
    ($(($name:literal, |$address:ident| $once:expr)),* $(,)?) => {
        &[$(($name, |$address| Box::pin(async move {
            let _ = $once.await;
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

/// Asks of a hundred keys each that nobody asked for before.
async fn random_keys(address: SocketAddr) {
    use std::hash::{BuildHasher, RandomState};
    let (Ok(client), random) = (Client::connect(address).await, RandomState::new()) else { return };
    for ask in 0..KEYS_A_ROUND / 100 {
        let keys = (0..100_u32).map(|n| format!("{:016x}", random.hash_one((ask, n)))).collect();
        let ask = CheckManyRequest { policy: "api".into(), keys, ..CheckManyRequest::default() };
        let path = "/throttlekit.v1.RateLimiter/CheckMany";
        let answer = client.call::<CheckManyResponse>(path, &[], &ask).await;
        assert!(answer.is_ok(), "{answer:?}");
    }
}

const KEYS_A_ROUND: u64 = 5_000;

/// What a process of this test binary is to be: `serve`, or `attack NAME ADDRESS MILLISECONDS`.
const ROLE: &str = "ABUSE_ROLE";

/// How far the attacker steps back, unless `ABUSE_NICE` says otherwise. It goes into the figure, since an attacker that
/// gets little of the processors does little harm.
fn attacker_nice() -> String {
    std::env::var("ABUSE_NICE").unwrap_or_else(|_| "19".into())
}

/// This test binary again, in another role.
fn other(role: &str) -> Child {
    // An attacker has a machine of its own. Here it gets what the others leave, so that it is the server's work that
    // slows them down and not the attacker's.
    let niceness = if role == "serve" { "0".into() } else { attacker_nice() };
    Command::new("nice")
        .args(["-n", &niceness])
        .arg(std::env::current_exe().expect("this binary"))
        .args(["--ignored", "--exact", "figures::other_role", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child")
}

/// What a line says after this word.
fn after<T: FromStr>(line: &str, word: &str) -> Option<T> {
    line.split_once(word)?.1.trim().parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the other processes of `figures`"]
async fn other_role() {
    let role = std::env::var(ROLE).unwrap_or_default();
    match role.split(' ').collect::<Vec<_>>()[..] {
        ["serve"] => serve().await,
        ["attack", name, address, millis] => {
            let (_, once) = ATTACKS.iter().find(|(known, _)| *known == name).expect("an attack");
            let (address, millis) = (address.parse().expect("an address"), millis.parse().expect("a time"));
            println!("rounds {}", attack_for(*once, address, Duration::from_millis(millis)).await);
        }
        _ => panic!("this is for `figures`, which sets {ROLE}"),
    }
}

async fn attack_for(once: Attack, address: SocketAddr, time: Duration) -> u64 {
    let (mut rounds, end) = (0, Instant::now() + time);
    while timeout_at(end, once(address)).await.is_ok() {
        rounds += 1;
        sleep(Duration::from_millis(5)).await;
    }
    rounds
}

async fn serve() {
    let limits = Limits { stall_max: Duration::from_secs(2), ..Limits::default() };
    let options = ListenOptions { limits, speaks: Speaks::Http, ..ListenOptions::default() };
    let target = Target::open(options).await;
    println!("listening {}", target.address);
    let mut nothing = String::new();
    let waiting = tokio::task::spawn_blocking(move || std::io::stdin().read_line(&mut nothing));
    assert!(waiting.await.is_ok());
    target.stop().await;
}

/// The server under attack.
struct Besieged {
    child: Child,
    address: SocketAddr,
}

impl Besieged {
    fn start() -> Self {
        let mut child = other("serve");
        let mut lines =
            BufReader::new(child.stdout.take().expect("its output")).lines().map_while(Result::ok);
        let address = lines.find_map(|line| after(&line, "listening")).expect("its address");
        Self { child, address }
    }

    /// Has it attacked for so long. How often, in the end.
    fn attacked(&self, name: &str, time: Duration) -> JoinHandle<u64> {
        let role = format!("attack {name} {} {}", self.address, time.as_millis());
        tokio::task::spawn_blocking(move || {
            let ended = other(&role).wait_with_output().expect("an attacker");
            assert!(ended.status.success(), "an attacker failed");
            let text = String::from_utf8_lossy(&ended.stdout);
            text.lines().find_map(|line| after(line, "rounds")).expect("its rounds")
        })
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

/// Honest requests at a steady pace, whether or not those before were answered.
async fn honest(client: &Client, time: Duration, times: &mut Vec<Duration>) {
    let (mut due, end) = (interval(HONEST_EVERY), Instant::now() + time);
    let mut asking = JoinSet::new();
    loop {
        let at = due.tick().await;
        if at >= end {
            break;
        }
        let client = client.clone();
        asking.spawn(async move {
            let answer = client.check("chat", "honest").await;
            assert!(answer.is_ok(), "an honest request failed: {answer:?}");
            at.elapsed()
        });
    }
    times.extend(asking.join_all().await);
}

fn p99(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

struct Size {
    turns: u32,
    turn: Duration,
    keys: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures, so it wants the machine: cargo xtask prove abuse"]
async fn figures() {
    let size = match std::env::var_os("ABUSE_SMALL") {
        Some(_) => Size { turns: 3, turn: Duration::from_secs(1), keys: 1_000_000 },
        None => Size { turns: 5, turn: Duration::from_secs(2), keys: 10_000_000 },
    };
    let server = Besieged::start();
    let client = Client::connect(server.address).await.expect("a connection");
    honest(&client, Duration::from_secs(1), &mut Vec::new()).await;
    let before = server.resident_mib();
    let (mut figure, mut broken) = (Map::new(), Vec::new());
    println!("{:<20}{:>12}{:>12}{:>8}{:>10}{:>10}", "attack", "quiet p99", "p99", "times", "rounds", "MiB");
    let mut keys = 0;
    for (name, _) in ATTACKS {
        let (mut quiet, mut attacked) = (Vec::new(), Vec::new());
        let (mut rounds, small) = (0, server.resident_mib());
        for _ in 0..size.turns {
            honest(&client, size.turn, &mut quiet).await;
            let attacking = server.attacked(name, size.turn);
            // Until the attacker's process is there.
            sleep(Duration::from_millis(100)).await;
            honest(&client, size.turn - Duration::from_millis(200), &mut attacked).await;
            rounds += attacking.await.expect("an attacker");
        }
        let (quiet, attacked) = (p99(&mut quiet), p99(&mut attacked));
        let times = attacked.as_secs_f64() / quiet.max(P99_FLOOR).as_secs_f64();
        let grown = server.resident_mib() - small;
        println!("{name:<20}{quiet:>12.1?}{attacked:>12.1?}{times:>8.2}{rounds:>10}{grown:>10.1}");
        if times > P99_TIMES_MAX {
            broken.push(format!("{name}: the slowest in a hundred took {times:.2} times as long"));
        }
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let values = json!({"quiet_p99_us": micros(quiet), "p99_us": micros(attacked), "times": round(times),
            "rounds": rounds, "grown_mib": round(grown)});
        figure.insert((*name).into(), values);
        keys = rounds * KEYS_A_ROUND;
    }
    // The last attack was by keys: it goes on until there were as many as were promised.
    while keys < size.keys {
        keys += server.attacked("random_keys", size.turn).await.expect("an attacker") * KEYS_A_ROUND;
    }
    let grown = server.resident_mib() - before;
    println!("after {keys} keys that nobody asked for before, {grown:.1} MiB larger than at first");
    if grown > GROWTH_MIB_MAX {
        broken.push(format!("the server grew by {grown:.1} MiB"));
    }
    figure.insert("name".into(), "prove-abuse".into());
    figure.insert("attacker_nice".into(), attacker_nice().into());
    figure.insert("optimised".into(), (!cfg!(debug_assertions)).into());
    figure.insert("grown_mib".into(), round(grown).into());
    figure.insert("keys".into(), keys.into());
    println!("figure: {}", Value::from(figure));
    assert!(broken.is_empty(), "not proved:\n  {}", broken.join("\n  "));
}

fn round(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}
