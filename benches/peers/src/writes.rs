//! Writes to sockets for each response, where a connection carries eight requests at once. `strace` counts them.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{self, Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::Bench;
use crate::apis::{Api, CRAB_GRPC, OURS_GRPC, RLS};
use crate::keys::key;
use crate::load::{self, Load};
use crate::process::output;
use crate::servers::{CRAB, FREE, LIMITADOR, OURS, Server, Store};

/// Callers of the one connection. When the responses come together, so do the next requests.
const TOGETHER: usize = 8;
const REQUESTS: usize = 8_000;
const WRITES_MAX: f64 = 0.2;
/// How sockets are written to. `write` is left out: the servers write to sockets by `send`, and wake threads by `write`.
const CALLS: &str = "writev,sendto,sendmsg";
const ATTACH_MAX: Duration = Duration::from_secs(5);

const APIS: [(&str, &str, Api); 4] = [
    (OURS, "Envoy RLS", RLS),
    (LIMITADOR, "Envoy RLS", RLS),
    (OURS, "native gRPC", OURS_GRPC),
    (CRAB, "native gRPC", CRAB_GRPC),
];

pub fn run(bench: &mut Bench) -> Result<()> {
    println!("\n### writes to sockets per response, {TOGETHER} requests in flight on one connection");
    if output(Command::new("strace").arg("-V")).is_err() {
        let title = format!("writes per response: {OURS}, strace is missing, install it (Debian: strace)");
        bench.report.at_most(&title, f64::NAN, WRITES_MAX);
        return Ok(());
    }
    let running = bench.programs.start_all(Store::Memory)?;
    for (name, protocol, api) in APIS {
        let title = format!("writes per response: {name}, {protocol}");
        let (Some(server), None) = (running.get(name), running.absence(name, api)) else {
            bench.report.text(&title, &running.absence(name, api).unwrap_or_default());
            continue;
        };
        let writes = writes(bench, server, api).with_context(|| title.clone())?;
        match name {
            OURS => bench.report.at_most(&title, writes, WRITES_MAX),
            _ => bench.report.note(&title, writes),
        }
    }
    Ok(())
}

fn writes(bench: &Bench, server: &Server, api: Api) -> Result<f64> {
    let requests = Arc::new(load::encode(api, FREE, [key(0)].into_iter()));
    let load = Arc::new(Load { requests, order: Arc::new(vec![0; REQUESTS]), pace: None });
    let callers = bench.runtime.block_on(load::connect(server, api, TOGETHER))?;
    let counter = Counter::attach(server.process.id())?;
    let (_, outcome) = bench.runtime.block_on(load::drive(callers, &load))?;
    ensure!(outcome.decided == REQUESTS, "{} of {REQUESTS} were decided", outcome.decided);
    Ok(counter.finish()? as f64 / REQUESTS as f64)
}

/// A running `strace` that counts.
struct Counter {
    strace: Child,
    file: PathBuf,
}

impl Counter {
    /// Returns once all threads of the process are traced.
    fn attach(pid: u32) -> Result<Self> {
        let file = env::temp_dir().join(format!("throttlekit-peers-strace-{}", process::id()));
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-c", "-e", &format!("trace={CALLS}"), "-o"]).arg(&file);
        command.args(["-p", &pid.to_string()]).stdin(Stdio::null());
        let strace = command.spawn().context("cannot start strace")?;
        let begun = Instant::now();
        while !is_traced(pid)? {
            ensure!(
                begun.elapsed() < ATTACH_MAX,
                "strace could not attach to the server: run as its user or as root"
            );
            sleep(Duration::from_millis(10));
        }
        Ok(Self { strace, file })
    }

    /// Returns the number of calls.
    fn finish(mut self) -> Result<u64> {
        output(Command::new("kill").args(["-INT", &self.strace.id().to_string()]))?;
        self.strace.wait()?;
        let table = fs::read_to_string(&self.file).context("strace has written nothing")?;
        // `% time     seconds  usecs/call     calls    errors syscall`, and the errors may be left out.
        let calls = table.lines().filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let counted = CALLS.split(',').any(|call| words.last() == Some(&call));
            counted.then(|| words.get(3)?.parse::<u64>().ok()).flatten()
        });
        Ok(calls.sum())
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        let _ = self.strace.kill();
        let _ = self.strace.wait();
        let _ = fs::remove_file(&self.file);
    }
}

fn is_traced(pid: u32) -> Result<bool> {
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = fs::read_to_string(thread?.path().join("status"))?;
        if status.lines().any(|line| line.split_whitespace().eq(["TracerPid:", "0"])) {
            return Ok(false);
        }
    }
    Ok(true)
}
