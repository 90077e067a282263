//! A server as operators treat it: signals, a log that nobody reads, files that change.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::common;
use serde_json::json;
use tempfile::TempDir;
use tokio::time::Instant;

/// Tests share two cores with whatever else runs.
const PATIENCE: Duration = Duration::from_secs(60);
/// A process that ends "at once" does so within this.
const AT_ONCE: Duration = Duration::from_secs(10);

struct Serving {
    child: Child,
    folder: TempDir,
    http: u16,
    metrics: u16,
}

impl Serving {
    /// Serves these policies. Nobody reads its log until someone does.
    fn start(policies: &str, args: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("policies.yaml");
        fs::write(&file, policies).unwrap();
        let [http, metrics] =
            [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port());
        let child = Command::new(env!("CARGO_BIN_EXE_throttlekit"))
            .arg("serve")
            .arg(&file)
            .args(["--listen", "127.0.0.1:0", "--http", &format!("127.0.0.1:{http}")])
            .args(["--metrics", &format!("127.0.0.1:{metrics}"), "--log-json"])
            .args(args)
            .env_remove("THROTTLEKIT_STORE")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let serving = Self { child, folder, http, metrics };
        eventually("it serves", || serving.get(serving.metrics, "/healthz").is_some());
        serving
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("policies.yaml")
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(
            Command::new("sh")
                .args(["-c", &format!("kill {signal} \"$0\""), &id])
                .status()
                .unwrap()
                .success()
        );
    }

    /// The status and the body of a page. None if nobody answers.
    fn get(&self, port: u16, path: &str) -> Option<(u16, String)> {
        ask(port, &format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"))
    }

    fn post(&self, path: &str, body: &str) -> Option<(u16, String)> {
        let head = "host: a\r\nconnection: close\r\ncontent-type: application/json";
        let length = body.len();
        ask(self.http, &format!("POST {path} HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}"))
    }

    fn check(&self, policy: &str) -> Option<(u16, String)> {
        self.post("/v1/check", &json!({"policy": policy, "key": "k"}).to_string())
    }

    fn log(&mut self) -> BufReader<ChildStderr> {
        BufReader::new(self.child.stderr.take().unwrap())
    }

    fn ends_within(&mut self, limit: Duration) -> ExitStatus {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it has not ended within {limit:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn ask(port: u16, request: &str) -> Option<(u16, String)> {
    let mut tcp = TcpStream::connect(("127.0.0.1", port)).ok()?;
    tcp.set_read_timeout(Some(PATIENCE)).ok()?;
    tcp.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn policies(names: &[&str]) -> String {
    let each = names.iter().map(|name| format!("  {name}: {{rate: {{limit: 1, per: 1d}}}}\n"));
    format!("version: 1\npolicies:\n{}", each.collect::<String>())
}

#[test]
fn sighup_reads_the_policy_file_now_and_says_so() {
    let mut serving =
        Serving::start(&policies(&["a"]), &["--reload-every-ms", "3600000", "--lame-duck-s", "0"]);
    assert_eq!(serving.check("b").unwrap().0, 404);
    fs::write(serving.file(), policies(&["a", "b"])).unwrap();
    serving.signal("-HUP");
    eventually("the new policy is there", || serving.check("b").unwrap().0 == 200);
    serving.signal("-HUP");
    serving.signal("-TERM");
    assert!(serving.ends_within(PATIENCE).success(), "it drains as ever");
    let mut said = String::new();
    serving.log().read_to_string(&mut said).unwrap();
    for words in
        ["SIGHUP: reloading the policy file, tokens and certificates", "policies reloaded", "listener closed"]
    {
        assert!(said.contains(words), "no `{words}` in {said}");
    }
}

#[test]
fn readiness_fails_first_while_requests_are_still_served_and_a_second_signal_ends_it_at_once() {
    let mut serving = Serving::start(&policies(&["a"]), &["--lame-duck-s", "600"]);
    assert_eq!(serving.get(serving.http, "/readyz").unwrap().0, 200);
    serving.signal("-TERM");
    for port in [serving.http, serving.metrics] {
        eventually("it is not ready", || serving.get(port, "/readyz").unwrap().0 == 503);
        assert_eq!(serving.get(port, "/healthz").unwrap().0, 200, "no reason to restart it");
    }
    assert_eq!(serving.check("a").unwrap().0, 200, "new connections are taken, and answered");
    serving.signal("-TERM");
    assert_eq!(serving.ends_within(AT_ONCE).code(), Some(143));
}

#[test]
fn an_interrupt_does_not_wait_for_balancers() {
    let mut serving = Serving::start(&policies(&["a"]), &["--lame-duck-s", "600"]);
    serving.signal("-INT");
    assert!(serving.ends_within(AT_ONCE).success());
}

/// Logs far more than a pipe and the queue before it take.
fn fill_the_log(serving: &Serving) -> u64 {
    let keys: Vec<_> = (0..1_000).map(|_| "k").collect();
    let body = json!({"policy": "a", "keys": keys}).to_string();
    eventually("lines are dropped", || {
        assert_eq!(serving.post("/v1/check_many", &body).unwrap().0, 200, "it serves");
        dropped(serving) > 0
    });
    dropped(serving)
}

fn dropped(serving: &Serving) -> u64 {
    let page = serving.get(serving.metrics, "/metrics").unwrap().1;
    let line = page.lines().find_map(|line| line.strip_prefix("throttlekit_log_lines_dropped_total "));
    line.unwrap_or_else(|| panic!("no such metric in {page}")).parse().unwrap()
}

#[test]
fn a_log_that_nobody_reads_holds_up_neither_requests_nor_sigterm() {
    let debug = ["--log", "debug", "--lame-duck-s", "0", "--grace-s", "5"];
    let mut serving = Serving::start(&policies(&["a"]), &debug);
    fill_the_log(&serving);
    assert_eq!(serving.check("a").unwrap().0, 200);
    serving.signal("-TERM");
    assert!(serving.ends_within(Duration::from_secs(5) + AT_ONCE).success());
}

#[test]
fn a_log_that_is_read_again_says_how_many_lines_are_missing() {
    let mut serving = Serving::start(&policies(&["a"]), &["--log", "debug"]);
    fill_the_log(&serving);
    let missing = serving.log().lines().map_while(Result::ok).find_map(|line| {
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        line["message"].as_str()?.contains("log lines dropped").then(|| line["lines"].as_u64())?
    });
    assert!(missing.is_some_and(|lines| lines > 0), "{missing:?}");
}

#[test]
fn a_bench_of_a_policy_with_slots_shows_the_servers_message_and_what_to_do() {
    let serving = common::Serving::start("version: 1\npolicies:\n  s: {concurrency: {limit: 5}}\n", &[]);
    let bench = Command::new(env!("CARGO_BIN_EXE_throttlekit"))
        .args(["bench", "--policy", "s", "--duration", "200ms", "--target", serving.at("grpc")])
        .output()
        .unwrap();
    let said = String::from_utf8(bench.stdout).unwrap();
    for words in ["Unimplemented: this policy holds a slot while work runs: use Admit", "--rpc admit"] {
        assert!(said.contains(words), "no `{words}` in {said}");
    }
}
