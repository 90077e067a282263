//! The processes of a measurement: the server under attack, attackers, and those who only burn the same time.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::str::FromStr;
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;

use futures_util::future::join_all;
use throttlekit_server::internals::engine::Backend;
use throttlekit_server::{Server, ServerOptions, StoreOptions, StoreUrl};
use tokio::time::{Instant, sleep};

use crate::assault::{Attack, Listeners};
use crate::attack::Listener;
use crate::burn;
use crate::client::Client;
use crate::fuzz;
use crate::fuzz::seeded::{self, Bug};

const POLICIES: &str = "
version: 1
policies:
  api: {rate: {limit: 1000000000, per: 1s}}
  chat: {rate: {limit: 1000000000, per: 1s}}
  tight: {rate: {algorithm: fixed_window, limit: 1, per: 1d}}
  counted: {rate: {algorithm: fixed_window, limit: 30, per: 1d}}
  jobs: {concurrency: {limit: 100}}
access:
  principals:
";
/// Principals that mean well, and what each weighs.
pub(crate) const HONEST: [(&str, u32); 3] = [("gold", 4), ("silver", 2), ("bronze", 1)];
/// Principals that do not, each of weight 1.
pub(crate) const HOSTILE: [&str; 10] = [
    "mallory0", "mallory1", "mallory2", "mallory3", "mallory4", "mallory5", "mallory6", "mallory7",
    "mallory8", "mallory9",
];
/// Where the shipped program is; without it this test binary serves.
const BINARY: &str = "THROTTLEKIT_BINARY";
/// Ten times as often as the server that is shipped, so that bad files hurt ten times as often.
const RELOAD_EVERY: Duration = Duration::from_millis(100);
/// Time that a process may take beyond its own before it is killed: it has to start, and to stop.
const SLACK: Duration = Duration::from_secs(10);

/// Role of a process of this test binary: `serve FILE STORE`, `fuzzed FILE [BUG]`, `attack MIX GRPC HTTP METRICS FILE MILLISECONDS`, or
/// `burn MILLISECONDS-OF-PROCESSOR MILLISECONDS`. A mix is `PRINCIPAL:ATTACK+ATTACK,PRINCIPAL:ATTACK`.
const ROLE: &str = "ABUSE_ROLE";

/// Where a process runs, and how far it steps back for others.
///
/// As if each had a machine of its own, the server has half of the processor cores, and whoever asks it the other half,
/// with the store. Otherwise what is measured is how the kernel shares one core between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nice {
    /// Beside the honest clients and the store, with what they leave: so it is the server's work that slows them down
    /// and not the attacker's.
    Lowest,
    /// Beside the server, as anything else on its machine.
    Same,
}

impl Nice {
    /// A command that runs what follows there.
    fn command(self) -> Command {
        // In a session of its own: the kernel may share time between sessions first, whatever their processes are worth.
        let level = match self {
            Self::Lowest => "echo 19 2>/dev/null >/proc/self/autogroup; exec chrt --idle 0",
            Self::Same => "exec nice -n 0",
        };
        let cores = match (cores(), self) {
            (Some((_, theirs)), Self::Lowest) => format!("taskset -c {theirs}"),
            (Some((servers, _)), Self::Same) => format!("taskset -c {servers}"),
            (None, _) => String::new(),
        };
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", &format!("{level} {cores} \"$@\""), "sh"]);
        command
    }
}

/// The cores of the server and those of everyone else; nothing where there is one.
fn cores() -> Option<(String, String)> {
    let status = std::fs::read_to_string("/proc/1/status").expect("a kernel that says");
    let allowed: String = after(&status, "Cpus_allowed_list:")?;
    let range = |part: &str| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        low.parse::<u32>().expect("a core")..=high.parse().expect("a core")
    };
    let all: Vec<_> = allowed.split(',').flat_map(range).map(|core| core.to_string()).collect();
    let (servers, theirs) = all.split_at(all.len() / 2);
    (!servers.is_empty()).then(|| (servers.join(","), theirs.join(",")))
}

/// Moves a process to the cores of those who are not the server.
pub(crate) fn move_aside(process: u32) {
    if let Some((_, theirs)) = cores() {
        let moved = Command::new("taskset").args(["-apc", &theirs, &process.to_string()]).output();
        assert!(moved.is_ok_and(|output| output.status.success()), "taskset moves process {process}");
    }
}

/// Has this process run before all others on its cores, or as others again; its children run as ever. The store is busy
/// for milliseconds at a time, and a client that waits for its core would measure that. Returns `false` where the kernel
/// does not permit it.
pub(crate) fn go_first(first: bool) -> bool {
    let policy = if first { ["--rr", "--pid", "1"] } else { ["--other", "--pid", "0"] };
    let process = std::process::id().to_string();
    let changed =
        Command::new("chrt").args(["--all-tasks", "--reset-on-fork"]).args(policy).arg(process).output();
    changed.is_ok_and(|output| output.status.success())
}

/// The program that people run.
fn shipped(binary: &OsStr, policies: &Path, store: &str, reload_every: Duration) -> Command {
    let mut command = Nice::Same.command();
    command.arg(binary).arg("serve").arg(policies).args(["--store", store, "--log-json", "--fresh-start"]);
    for listener in ["--listen", "--http", "--metrics"] {
        command.args([listener, "127.0.0.1:0"]);
    }
    // What keys take is bounded by this; what is looked for is whatever else grows.
    command.args(["--memory-budget-mib", "32"]);
    command.args(["--reload-every-ms", &reload_every.as_millis().to_string()]);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    command
}

/// This test binary again, in another role.
fn other(role: &str, nice: Nice) -> Command {
    let mut command = nice.command();
    command
        .arg(std::env::current_exe().expect("this binary"))
        .args(["--ignored", "--exact", "siege::other_role", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

/// Returns the address of a listener in a line of JSON.
fn address(said: &str, listener: &str) -> Option<SocketAddr> {
    said.split_once(&format!("{listener}\":\""))?.1.split('"').next()?.parse().ok()
}

/// Returns the value after this word in a line.
fn after<T: FromStr>(text: &str, word: &str) -> Option<T> {
    text.lines().find_map(|line| line.split_once(word)?.1.split_whitespace().next()?.parse().ok())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the other processes of `figures`"]
async fn other_role() {
    let role = std::env::var(ROLE).unwrap_or_default();
    let millis = |text: &str| Duration::from_millis(text.parse().expect("a time"));
    match role.split(' ').collect::<Vec<_>>()[..] {
        ["serve", file, store] => {
            let (file, store) = (file.into(), store.to_owned());
            tokio::task::spawn_blocking(move || serve_as_shipped(file, &store)).await.expect("a server");
        }
        ["fuzzed", file] => serve_fuzzed(file.into(), None).await,
        ["fuzzed", file, bug] => serve_fuzzed(file.into(), Some(Bug::named(bug).expect("a bug"))).await,
        ["attack", mix, grpc, http, metrics, policies, time] => {
            let at = |text: &str| text.parse().expect("an address");
            let (policies, token) = (policies.into(), None);
            let listeners =
                Listeners { grpc: at(grpc), http: at(http), metrics: at(metrics), policies, token };
            attack_all(mix, &listeners, millis(time)).await;
            println!("burnt {}", burn::spent().as_millis());
        }
        ["burn", processor, time] => {
            burn::burn(millis(processor), millis(time));
            println!("burnt {}", burn::spent().as_millis());
        }
        _ => panic!("this is for `figures`, which sets {ROLE}"),
    }
}

/// All attacks of a mix at a time, each in the name of its principal.
async fn attack_all(mix: &str, listeners: &Listeners, time: Duration) {
    let each = mix.split(',').flat_map(|one| {
        let (principal, attacks) = one.split_once(':').expect("a principal");
        attacks.split('+').map(move |name| (principal, Attack::named(name).expect("an attack")))
    });
    let running = each.map(|(principal, attack)| {
        let listeners = Listeners { token: Some(token(principal)), ..listeners.clone() };
        async move { (attack.name, attack.run(&listeners, time).await) }
    });
    let all = join_all(running).await;
    // The name of this test stands in the same line before.
    println!();
    for (name, tally) in all {
        println!("did {name} {} {}", tally.done(), tally.wrong());
    }
}

/// The token of a principal.
pub(crate) fn token(principal: &str) -> String {
    format!("the-long-token-of-{principal}")
}

/// Those who mean well, and those who do not.
pub(crate) fn everybody() -> Vec<(String, u32)> {
    HONEST
        .into_iter()
        .chain(HOSTILE.map(|name| (name, 1)))
        .map(|(name, weight)| (name.to_owned(), weight))
        .collect()
}

/// The policies, and who may use them.
fn policies(principals: &[(String, u32)]) -> String {
    let principals = principals.iter().map(|(name, weight)| {
        let endpoints = "check, peek, debit, admit, monitor";
        format!("    {name}: {{token_env: TOKEN_{name}, weight: {weight}, allow: [{{endpoints: [{endpoints}]}}]}}\n")
    });
    principals.fold(POLICIES.to_owned(), |text, principal| text + &principal)
}

/// Serves on a runtime as the program's.
fn serve_as_shipped(policies: PathBuf, store: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().event_interval(1).build();
    runtime.expect("a runtime").block_on(serve(policies, store));
}

/// Serves with all its listeners on loopback.
async fn serve(policies: PathBuf, store: &str) {
    let store =
        StoreUrl::parse(store).expect("a store").connect(&StoreOptions::default()).await.expect("a store");
    let mut options = options(policies, store);
    options.reload_every = RELOAD_EVERY;
    let server = Server::start(options).await.expect("a server");
    until_parent_ends(server, None).await;
}

/// The same for the fuzzer: in memory, with short deadlines, with reflection, and with a seeded bug in its HTTP API, if any.
async fn serve_fuzzed(policies: PathBuf, bug: Option<Bug>) {
    let mut options = options(policies, Backend::memory());
    (options.limits, options.reflection) = (fuzz::limits(), true);
    options.secrets.trust_loopback = true;
    let server = Server::start(options).await.expect("a server");
    let http = match bug {
        Some(bug) => Some(seeded::http(&server, bug, fuzz::limits()).await),
        None => None,
    };
    until_parent_ends(server, http).await;
}

fn options(policies: PathBuf, store: Backend) -> ServerOptions {
    let any = Some(([127, 0, 0, 1], 0).into());
    let mut options = ServerOptions::new(policies, store);
    (options.http, options.metrics) = (any, any);
    options
}

/// Prints the addresses and serves until the parent process ends. `http` replaces the address of the HTTP API.
async fn until_parent_ends(server: Server, http: Option<SocketAddr>) {
    let (http, metrics) =
        (http.or(server.http()).expect("a listener"), server.metrics().expect("a listener"));
    println!("grpc\":\"{}\",\"http\":\"{http}\",\"metrics\":\"{metrics}\"", server.grpc());
    let mut nothing = String::new();
    let waiting = tokio::task::spawn_blocking(move || std::io::stdin().read_line(&mut nothing));
    assert!(waiting.await.is_ok());
    server.stop().await;
}

/// Result of attackers, or of processes that burn processor time in their place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Number of attempts, and of those that were not fended off, by the name of the attack.
    pub(crate) deeds: BTreeMap<String, (u64, u64)>,
    /// Processor time that it took itself.
    pub(crate) burnt: Duration,
}

impl Outcome {
    pub(crate) fn add(&mut self, other: Self) {
        self.burnt += other.burnt;
        for (name, (done, wrong)) in other.deeds {
            let deeds = self.deeds.entry(name).or_default();
            *deeds = (deeds.0 + done, deeds.1 + wrong);
        }
    }

    /// Of all attacks.
    pub(crate) fn done(&self) -> u64 {
        self.deeds.values().map(|(done, _)| done).sum()
    }

    /// Of all attacks.
    pub(crate) fn wrong(&self) -> u64 {
        self.deeds.values().map(|(_, wrong)| wrong).sum()
    }
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
    pub(crate) listeners: Listeners,
    /// Of its policies.
    text: String,
    _folder: tempfile::TempDir,
}

impl Besieged {
    /// The shipped program over this store, or else this test binary, for these principals and what they weigh.
    pub(crate) fn start(store: &str, principals: &[(String, u32)]) -> Self {
        Self::reloading(store, principals, RELOAD_EVERY)
    }

    /// The same, looking at its files as often as this.
    pub(crate) fn reloading(store: &str, principals: &[(String, u32)], every: Duration) -> Self {
        Self::with(policies(principals), |file| {
            let mut command = match std::env::var_os(BINARY) {
                Some(binary) => shipped(&binary, file, store, every),
                None => other(&format!("serve {} {store}", file.display()), Nice::Same),
            };
            command.envs(principals.iter().map(|(name, _)| (format!("TOKEN_{name}"), token(name))));
            command
        })
    }

    /// The server for the fuzzer, with the policies that its messages name.
    pub(crate) fn fuzzed(bug: Option<Bug>) -> Self {
        let bug = bug.map(|bug| format!(" {bug:?}")).unwrap_or_default();
        let role = |file: &Path| other(&format!("fuzzed {}{bug}", file.display()), Nice::Same);
        Self::with(throttlekit_fuzz::POLICIES.to_owned(), role)
    }

    fn with(text: String, command: impl FnOnce(&Path) -> Command) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("policies.yaml");
        std::fs::write(&file, &text).expect("a file");
        let mut child =
            command(&file).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a child");
        let (told, heard) = mpsc::channel();
        let panic = first_panic(child.stderr.take().expect("its errors"), told.clone());
        let output = BufReader::new(child.stdout.take().expect("its output")).lines().map_while(Result::ok);
        // What it says later is of no interest, and must not fill its pipe.
        std::thread::spawn(move || output.for_each(|line| drop(told.send(line))));
        let mut lines = heard.into_iter();
        let said = lines.find(|line| line.contains("metrics\":\"")).expect("a server that starts");
        let at = |listener: &str| address(&said, listener).expect("an address");
        let (grpc, http, metrics) = (at("grpc"), at("http"), at("metrics"));
        let listeners = Listeners { grpc, http, metrics, policies: file, token: None };
        let process = child.id();
        Self { child: Mutex::new(Ended(child)), process, panic, listeners, text, _folder: folder }
    }

    /// Puts the good policies back.
    pub(crate) fn mend(&self) {
        std::fs::write(&self.listeners.policies, &self.text).expect("a file");
    }

    /// Has it attacked by a mix for so long.
    pub(crate) async fn attacked(&self, mix: &str, nice: Nice, time: Duration) -> Outcome {
        let Listeners { grpc, http, metrics, policies, .. } = &self.listeners;
        let (policies, time_ms) = (policies.display(), time.as_millis());
        run(&format!("attack {mix} {grpc} {http} {metrics} {policies} {time_ms}"), nice, time).await
    }

    /// A client of a principal.
    pub(crate) async fn client(&self, principal: &str) -> Client {
        let listener = Listener { address: self.listeners.grpc, token: Some(token(principal)) };
        Client::connect_as(&listener).await.expect("a connection")
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

/// Passes on the standard error of a process and keeps the first line of its first panic.
fn first_panic(errors: ChildStderr, told: mpsc::Sender<String>) -> Arc<OnceLock<String>> {
    let seen = Arc::<OnceLock<String>>::default();
    let noted = seen.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(errors).lines().map_while(Result::ok) {
            if line.contains("panicked at") {
                eprintln!("{line}");
                noted.get_or_init(|| line.clone());
            }
            let _ = told.send(line);
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
    let mut outcome = Outcome {
        burnt: Duration::from_millis(after(&text, "burnt ").expect("a time")),
        ..Outcome::default()
    };
    for line in text.lines() {
        if let ["did", name, done, wrong] = line.split(' ').collect::<Vec<_>>()[..] {
            let count = |text: &str| text.parse().expect("a count");
            let deeds = BTreeMap::from([(name.to_owned(), (count(done), count(wrong)))]);
            outcome.add(Outcome { deeds, ..Outcome::default() });
        }
    }
    outcome
}
