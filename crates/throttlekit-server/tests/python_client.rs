//! The client for Python from PyPI, as it is, against the server: what it sees is what everyone's code sees.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tempfile::NamedTempFile;
use throttlekit::clock::ManualClock;
use throttlekit::rate::Timestamp;
use throttlekit_conformance::{golden, vectors};
use throttlekit_server::internals::engine::Backend;
use throttlekit_server::{Server, ServerOptions};
use throttlekit_verify::python::{interpreter, limited, run};

const CLIENT: &str = "throttlekit-py==0.5.1";

const POLICIES: &str = "
version: 1
policies:
  api: {rate: {limit: 5, per: 1m}}
  leased: {rate: {algorithm: fixed_window, limit: 20, per: 1d, lease: {mode: leased, batch: 8}}}
  tokens: {cost: {budget: 100, per: 1d}}
  jobs: {concurrency: {limit: 2}}
  both: {concurrency: {limit: 2}, rate: {limit: 3, per: 1h}}
  priced: {concurrency: {limit: 2}, price: {rate: 5}}
  shared: {fair: {limit: 100, per: 1d, weights: {acme: 3}}}
  lent: {rate: {algorithm: fixed_window, limit: 10, per: 1d}, fleet: {}}
";

async fn serve(policies: &str, backend: Backend) -> (Server, NamedTempFile) {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(policies.as_bytes()).unwrap();
    let mut options = ServerOptions::new(file.path().into(), backend);
    options.secrets.trust_loopback = true;
    let server = Server::start(options).await.unwrap();
    (server, file)
}

fn scene(name: &str, server: &Server) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/scenes.py");
    let mut command = limited(&interpreter(CLIENT));
    command.arg(script).arg(name).env("TARGET", server.grpc().to_string());
    command
}

async fn play(name: &'static str) {
    let (server, _file) = serve(POLICIES, Backend::memory()).await;
    let command = scene(name, &server);
    let said = tokio::task::spawn_blocking(move || run(command)).await.unwrap();
    assert_eq!(said.trim(), format!("{name}: as it should be"));
    server.stop().await;
}

macro_rules! scenes {
    ($($name:ident)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            play(stringify!($name)).await;
        }
    )*};
}

scenes!(rate budget admit crash heartbeats fleet monitor errors);

/// Returns the policy file of a suite of the vectors.
fn policy(suite: &Value) -> String {
    let number =
        |options: &Value, name: &str| options[name].as_u64().unwrap_or_else(|| panic!("{name} of {suite}"));
    if suite["primitive"] == "tokenBudget" {
        let options = &suite["options"];
        return format!(
            "{{cost: {{budget: {}, per: {}ms}}}}",
            number(options, "budget"),
            number(options, "windowMs")
        );
    }
    let options = &suite["strategy"]["options"];
    let rate = match suite["strategy"]["kind"].as_str().unwrap() {
        "gcra" => format!(
            "limit: {}, per: {}ms, burst: {}",
            number(options, "limit"),
            number(options, "periodMs"),
            number(options, "burst")
        ),
        "tokenBucket" => format!(
            "algorithm: token_bucket, limit: {}, per: 1s, burst: {}",
            number(options, "refillPerSec"),
            number(options, "capacity")
        ),
        kind => {
            let (limit, window) = (number(options, "limit"), number(options, "windowMs"));
            let rest = match kind {
                "fixedWindow" => "algorithm: fixed_window".to_owned(),
                "slidingWindow" => {
                    format!(
                        "algorithm: sliding_window, early_retry: true, buckets: {}",
                        number(options, "buckets")
                    )
                }
                "slidingWindowLog" => "algorithm: sliding_log".to_owned(),
                other => panic!("no policy for {other}"),
            };
            format!("limit: {limit}, per: {window}ms, {rest}")
        }
    };
    format!("{{rate: {{{rate}}}}}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_decisions_come_over_the_wire_as_they_were() {
    let recorded: Value = serde_json::from_str(golden::TEXT).unwrap();
    let mut policies = "version: 1\npolicies:\n".to_owned();
    for (place, suite) in recorded["suites"].as_array().unwrap().iter().enumerate() {
        if suite["primitive"] != "lease" {
            policies += &format!("  p{place}: {}\n", policy(suite));
        }
    }
    let clock = Arc::new(ManualClock::at(Timestamp::EPOCH));
    let (server, _file) = serve(&policies, Backend::memory_with_clock(clock.clone())).await;
    let mut command = scene("golden", &server);
    command
        .env("VECTORS", vectors::folder().join("golden.json"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let last = tokio::task::spawn_blocking(move || {
        let mut python = command.spawn().unwrap();
        let (mut tell, said) = (python.stdin.take().unwrap(), BufReader::new(python.stdout.take().unwrap()));
        let mut last = String::new();
        for line in said.lines() {
            last = line.unwrap();
            if let Some(now) = last.strip_prefix("clock ") {
                clock.set(Timestamp::EPOCH + Duration::from_millis(now.parse().unwrap()));
                writeln!(tell, "set").unwrap();
            }
        }
        assert!(python.wait().unwrap().success());
        last
    });
    assert_eq!(last.await.unwrap(), "golden: as it should be");
    server.stop().await;
}
