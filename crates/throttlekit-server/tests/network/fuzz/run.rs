//! Runs sessions against a server and reports the outcomes and the faults.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde_json::{Value, json};
use throttlekit::internals::{Mutex, MutexGuard};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::generator::Generator;
use super::seeded::Bug;
use super::session::{Kind, Outcome, Port, Session};
use super::watch;
use crate::siege::Besieged;

/// Connections at a time.
const CONNECTIONS: usize = 256;
/// Inputs between two honest checks.
const HONEST_EVERY: u64 = 1_000;
/// Inputs between two lines of progress.
const PROGRESS_EVERY: u64 = 50_000;
/// Bytes shown of a session that hangs.
const BYTES_SHOWN: usize = 2_000;
/// Time from a crash to the end of the process, which may write a core dump.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// The size of a run, its seed and its deadlines.
pub(super) struct Plan {
    pub(super) inputs: u64,
    pub(super) seed: u64,
    /// The number of the first session.
    pub(super) from: u64,
    /// Deadline for a connection to be answered or closed. Those of the server come to less than 2 s.
    pub(super) patience: Duration,
    pub(super) honest_within: Duration,
    /// Deadline for the server to release everything after the last input.
    pub(super) released_within: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            inputs: 0,
            seed: 1,
            from: 0,
            patience: Duration::from_secs(20),
            honest_within: Duration::from_secs(5),
            released_within: Duration::from_secs(20),
        }
    }
}

const KINDS: usize = Kind::ALL.len();
const OUTCOMES: usize = 5;

/// The result of a run.
#[derive(Debug, Default)]
pub(super) struct Report {
    table: [[u64; OUTCOMES]; KINDS],
    sessions: u64,
    honest_checks: u64,
    honest_max: Duration,
    /// The longest that a connection lasted.
    longest: Duration,
    took: Duration,
    grown_mib: f64,
    pub(super) crashes: Vec<String>,
    pub(super) hangs: Vec<String>,
    pub(super) leaks: Vec<String>,
}

/// Sends inputs until the planned number or the first fault.
pub(super) async fn run(plan: Plan, bug: Option<Bug>) -> Report {
    let server = Besieged::fuzzed(bug);
    let (descriptors, begun) = (server.descriptors(), Instant::now());
    let generator = Generator::new(plan.seed);
    let (next, done, report) = (AtomicU64::new(plan.from), AtomicU64::new(0), Mutex::default());
    let run = Arc::new(Run { server, generator, plan, next, done, report });
    run.check().await;
    let mib = run.server.resident_mib();
    let workers: JoinSet<()> = (0..CONNECTIONS).map(|_| run.clone().work()).collect();
    workers.join_all().await;
    run.check().await;
    let has_faults = run.report().has_faults();
    if has_faults {
        // A process that crashed answers nobody some time before the system says that it ended.
        sleep(ENDS_WITHIN).await;
    }
    run.look_for_crashes();
    let leaks = watch::leaks(&run.server, descriptors, run.plan.released_within).await;
    let mut report = std::mem::take(&mut *run.report());
    if report.crashes.is_empty() {
        (report.leaks, report.grown_mib) = (leaks, run.server.resident_mib() - mib);
    }
    Report { took: begun.elapsed(), ..report }
}

struct Run {
    server: Besieged,
    generator: Generator,
    plan: Plan,
    /// The next session.
    next: AtomicU64,
    /// Inputs that were sent.
    done: AtomicU64,
    report: Mutex<Report>,
}

impl Run {
    async fn work(self: Arc<Self>) {
        while self.done.load(Relaxed) < self.plan.inputs && !self.report().has_faults() {
            let number = self.next.fetch_add(1, Relaxed);
            let session = self.generator.session(number);
            self.send(number, &session).await;
            self.look_for_crashes();
            let before = self.done.fetch_add(session.inputs as u64, Relaxed);
            let passes = |every: u64| before / every != (before + session.inputs as u64) / every;
            if passes(HONEST_EVERY) {
                self.check().await;
            }
            if passes(PROGRESS_EVERY) {
                eprintln!("{} inputs of {}", before + session.inputs as u64, self.plan.inputs);
            }
        }
    }

    async fn send(&self, number: u64, session: &Session) {
        let begun = Instant::now();
        let ran = timeout(self.plan.patience, session.run(self.address(session.port))).await;
        let mut report = self.report();
        report.longest = report.longest.max(begun.elapsed());
        match ran {
            Ok(Ok(outcomes)) => report.count(session.kind, &outcomes),
            Ok(Err(error)) => report.hangs.push(format!("no connection for session {number}: {error}")),
            Err(_) => {
                let waited = self.plan.patience;
                let shown = session.bytes.get(..BYTES_SHOWN).unwrap_or(&session.bytes).escape_ascii();
                report.hangs.push(format!(
                    "the connection of session {number} ({}, {:?}) did not end within {waited:?}: {shown}",
                    session.kind.name(),
                    session.ending
                ));
            }
        }
    }

    async fn check(&self) {
        let checked = watch::honest(&self.server, self.plan.honest_within).await;
        let mut report = self.report();
        match checked {
            Ok(took) => {
                report.honest_checks += 1;
                report.honest_max = report.honest_max.max(took);
            }
            Err(why) => report.hangs.push(why),
        }
    }

    /// Records the first crash, with the number of the next session: one of the sessions before it is the cause.
    fn look_for_crashes(&self) {
        let Some(crash) = self.server.crash() else { return };
        let mut report = self.report();
        if report.crashes.is_empty() {
            let next = self.next.load(Relaxed);
            report.crashes.push(format!("{crash}, before session {next} of seed {}", self.plan.seed));
        }
    }

    fn address(&self, port: Port) -> SocketAddr {
        let listeners = &self.server.listeners;
        match port {
            Port::Grpc => listeners.grpc,
            Port::Http => listeners.http,
            Port::Metrics => listeners.metrics,
        }
    }

    fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock()
    }
}

impl Report {
    fn count(&mut self, kind: Kind, outcomes: &[Outcome]) {
        self.sessions += 1;
        for outcome in outcomes {
            self.table[kind as usize][*outcome as usize] += 1;
        }
    }

    fn has_faults(&self) -> bool {
        !self.crashes.is_empty() || !self.hangs.is_empty()
    }

    /// All faults.
    pub(super) fn faults(&self) -> Vec<&str> {
        [&self.crashes, &self.hangs, &self.leaks].into_iter().flatten().map(String::as_str).collect()
    }

    /// Returns true if every kind has inputs after which the connection was served, and inputs that closed it.
    pub(super) fn is_broad(&self) -> bool {
        self.table
            .iter()
            .all(|[answered, refused, ignored, closed, _]| answered + refused + ignored > 0 && *closed > 0)
    }

    pub(super) fn print(&self) {
        let columns = ["inputs", "answered", "refused", "ignored", "closed", "left"];
        println!("{:<19}{}", "kind", columns.map(|name| format!("{name:>10}")).concat());
        let names = Kind::ALL.iter().map(|kind| kind.name()).chain(["all"]);
        for (name, row) in names.zip(self.table.iter().chain([&self.total()])) {
            let cells: String = row.iter().map(|count| format!("{count:>10}")).collect();
            println!("{name:<19}{:>10}{cells}", row.iter().sum::<u64>());
        }
    }

    fn total(&self) -> [u64; OUTCOMES] {
        std::array::from_fn(|outcome| self.table.iter().map(|row| row[outcome]).sum())
    }

    pub(super) fn figure(&self, seed: u64) -> Value {
        let total = self.total();
        let [answered, refused, ignored, closed, left] = total;
        let tenths = |number: f64| (number * 10.0).round() / 10.0;
        let millis = |time: Duration| tenths(time.as_secs_f64() * 1e3);
        json!({
            "name": "verify-wire-fuzz", "optimised": !cfg!(debug_assertions), "seed": seed,
            "inputs": total.iter().sum::<u64>(), "connections": self.sessions,
            "answered": answered, "refused": refused, "ignored": ignored, "closed": closed, "left": left,
            "crashes": self.crashes.len(), "hangs": self.hangs.len(), "leaks": self.leaks.len(),
            "honest_checks": self.honest_checks, "honest_max_ms": millis(self.honest_max),
            "longest_connection_ms": millis(self.longest),
            "grown_mib": tenths(self.grown_mib), "seconds": tenths(self.took.as_secs_f64()),
        })
    }
}
