//! The processes of a measurement: the server under attack, attackers, and those who only burn the same time.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::str::FromStr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use throttlekit_server::engine::Backend;
use throttlekit_server::{Server, ServerOptions};
use tokio::time::{Instant, sleep};

use crate::assault::{Attack, Doors};
use crate::burn;
use crate::fuzz;
use crate::fuzz::seeded::{self, Bug};

const POLICIES: &str = "
version: 1
policies:
  api: {rate: {limit: 1000000000, per: 1s}}
  chat: {rate: {limit: 1000000000, per: 1s}}
  tight: {rate: {algorithm: fixed_window, limit: 1, per: 1d}}
  jobs: {concurrency: {limit: 100}}
";
/// Ten times as often as the server that is shipped, so that bad files hurt ten times as often.
const RELOAD_EVERY: Duration = Duration::from_millis(100);
/// What a process may take beyond its time before it is ended: it has to start, and to stop.
const SLACK: Duration = Duration::from_secs(10);

/// What a process of this test binary is to be: `serve FILE`, `fuzzed FILE [BUG]`, `attack NAME GRPC HTTP METRICS FILE MILLISECONDS`, or
/// `burn MILLISECONDS-OF-PROCESSOR MILLISECONDS`.
const ROLE: &str = "ABUSE_ROLE";

/// How far a process steps back for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nice {
    /// As an attacker that has a machine of its own: here it gets what the others leave, so that it is the server's
    /// work that slows them down and not the attacker's.
    Lowest,
    Same,
}

/// This test binary again, in another role.
fn other(role: &str, nice: Nice) -> Command {
    let mut command = Command::new("nice");
    command
        .args(["-n", if nice == Nice::Lowest { "19" } else { "0" }])
        .arg(std::env::current_exe().expect("this binary"))
        .args(["--ignored", "--exact", "siege::other_role", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

/// What a line says after this word.
fn after<T: FromStr>(text: &str, word: &str) -> Option<T> {
    text.lines().find_map(|line| line.split_once(word)?.1.split_whitespace().next()?.parse().ok())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the other processes of `figures`"]
async fn other_role() {
    let role = std::env::var(ROLE).unwrap_or_default();
    let millis = |text: &str| Duration::from_millis(text.parse().expect("a time"));
    match role.split(' ').collect::<Vec<_>>()[..] {
        ["serve", file] => serve(file.into()).await,
        ["fuzzed", file] => serve_fuzzed(file.into(), None).await,
        ["fuzzed", file, bug] => serve_fuzzed(file.into(), Some(Bug::named(bug).expect("a bug"))).await,
        ["attack", name, grpc, http, metrics, policies, time] => {
            let at = |text: &str| text.parse().expect("an address");
            let doors =
                Doors { grpc: at(grpc), http: at(http), metrics: at(metrics), policies: policies.into() };
            let tally = Attack::named(name).expect("an attack").run(&doors, millis(time)).await;
            println!("done {}\nwrong {}\nburnt {}", tally.done(), tally.wrong(), burn::spent().as_millis());
        }
        ["burn", processor, time] => {
            burn::burn(millis(processor), millis(time));
            println!("done 1\nwrong 0\nburnt {}", burn::spent().as_millis());
        }
        _ => panic!("this is for `figures`, which sets {ROLE}"),
    }
}

/// The server as it is shipped, in memory, with all its doors on loopback.
async fn serve(policies: PathBuf) {
    let mut options = options(policies);
    options.reload_every = RELOAD_EVERY;
    let server = Server::start(options).await.expect("a server");
    until_parent_ends(server, None).await;
}

/// The same for the fuzzer: with short deadlines, with reflection, and with a seeded bug in its HTTP API, if any.
async fn serve_fuzzed(policies: PathBuf, bug: Option<Bug>) {
    let mut options = options(policies);
    (options.limits, options.reflection) = (fuzz::limits(), true);
    let server = Server::start(options).await.expect("a server");
    let http = match bug {
        Some(bug) => Some(seeded::http(&server, bug, fuzz::limits()).await),
        None => None,
    };
    until_parent_ends(server, http).await;
}

fn options(policies: PathBuf) -> ServerOptions {
    let any = Some(([127, 0, 0, 1], 0).into());
    let mut options = ServerOptions::new(policies, Backend::memory());
    (options.http, options.metrics) = (any, any);
    // Attackers of the monitor are let in.
    options.secrets.trust_loopback = true;
    options
}

/// Prints the addresses and serves until the parent process ends. `http` replaces the address of the HTTP API.
async fn until_parent_ends(server: Server, http: Option<SocketAddr>) {
    let (http, metrics) = (http.or(server.http()).expect("a door"), server.metrics().expect("a door"));
    println!("grpc {}\nhttp {http}\nmetrics {metrics}\nready now", server.grpc());
    let mut nothing = String::new();
    let waiting = tokio::task::spawn_blocking(move || std::io::stdin().read_line(&mut nothing));
    assert!(waiting.await.is_ok());
    server.stop().await;
}

/// What an attacker, or who burns in its place, came to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) done: u64,
    pub(crate) wrong: u64,
    /// Processor time that it took itself.
    pub(crate) burnt: Duration,
}

/// A process that ends when it is no longer looked after.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The server under attack.
pub(crate) struct Besieged {
    child: Mutex<Ended>,
    process: u32,
    /// The first panic on its standard error.
    panic: Arc<OnceLock<String>>,
    pub(crate) doors: Doors,
    _folder: tempfile::TempDir,
}

impl Besieged {
    pub(crate) fn start() -> Self {
        Self::with("serve", POLICIES, "")
    }

    /// The server for the fuzzer, with the policies that its messages name.
    pub(crate) fn fuzzed(bug: Option<Bug>) -> Self {
        let bug = bug.map(|bug| format!(" {bug:?}")).unwrap_or_default();
        Self::with("fuzzed", throttlekit_fuzz::POLICIES, &bug)
    }

    fn with(role: &str, text: &str, rest: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let policies = folder.path().join("policies.yaml");
        std::fs::write(&policies, text).expect("a file");
        let mut command = other(&format!("{role} {}{rest}", policies.display()), Nice::Same);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("a child");
        let panic = first_panic(child.stderr.take().expect("its errors"));
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let mut text = String::new();
        while !text.contains("ready now") {
            let line = lines.next().expect("a server that starts").expect("its output");
            text = text + &line + "\n";
        }
        // What it says later is of no interest, and must not fill its pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let at = |word: &str| after(&text, word).expect("an address");
        let doors = Doors { grpc: at("grpc "), http: at("http "), metrics: at("metrics "), policies };
        Self { process: child.id(), child: Mutex::new(Ended(child)), panic, doors, _folder: folder }
    }

    /// Puts the good policies back.
    pub(crate) fn mend(&self) {
        std::fs::write(&self.doors.policies, POLICIES).expect("a file");
    }

    /// Has it attacked for so long.
    pub(crate) async fn attacked(&self, name: &str, nice: Nice, time: Duration) -> Outcome {
        let Doors { grpc, http, metrics, policies } = &self.doors;
        let (policies, time_ms) = (policies.display(), time.as_millis());
        run(&format!("attack {name} {grpc} {http} {metrics} {policies} {time_ms}"), nice, time).await
    }

    pub(crate) fn resident_mib(&self) -> f64 {
        resident_mib(self.process)
    }

    pub(crate) fn process(&self) -> u32 {
        self.process
    }

    /// The number of open files and sockets.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.process)).map_or(0, Iterator::count)
    }

    /// The crash, if there was one. A panic in a task counts, though the process goes on.
    pub(crate) fn crash(&self) -> Option<String> {
        let ended = self.child.lock().expect("a child").0.try_wait().expect("a child");
        let ended = ended.map(|status| format!("the process ended: {status}"));
        self.panic.get().cloned().or(ended)
    }
}

/// Forwards the standard error of a process and keeps the first line of its first panic.
fn first_panic(errors: ChildStderr) -> Arc<OnceLock<String>> {
    let seen = Arc::<OnceLock<String>>::default();
    let noted = seen.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(errors).lines().map_while(Result::ok) {
            eprintln!("{line}");
            if line.contains("panicked at") {
                noted.get_or_init(|| line);
            }
        }
    });
    seen
}

pub(crate) fn resident_mib(process: u32) -> f64 {
    let status = Path::new("/proc").join(process.to_string()).join("status");
    let status = std::fs::read_to_string(status).expect("its status");
    after::<f64>(&status, "VmRSS:").expect("its size") / 1024.0
}

/// Burns as much processor time as an attacker did, and touches nothing else.
pub(crate) async fn burnt(processor: Duration, time: Duration) -> Outcome {
    run(&format!("burn {} {}", processor.as_millis(), time.as_millis()), Nice::Same, time).await
}

/// Never waits for long: a process that does not end in its time is ended.
async fn run(role: &str, nice: Nice, time: Duration) -> Outcome {
    let (mut child, end) =
        (Ended(other(role, nice).spawn().expect("a child")), Instant::now() + time + SLACK);
    let status = loop {
        if let Some(status) = child.0.try_wait().expect("a child") {
            break status;
        }
        assert!(
            Instant::now() < end,
            "`{role}` did not end in its time: the machine has too much else to do"
        );
        sleep(Duration::from_millis(5)).await;
    };
    let mut text = String::new();
    // A few lines, which its pipe has room for.
    let output = child.0.stdout.as_mut().expect("its output").read_to_string(&mut text);
    assert!(status.success() && output.is_ok(), "`{role}` failed:\n{text}");
    let count = |word: &str| after(&text, word).expect("a count");
    Outcome { done: count("done "), wrong: count("wrong "), burnt: Duration::from_millis(count("burnt ")) }
}
