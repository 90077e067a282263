//! One run of a verification, from its start to its verdict.

use std::io::{self, BufRead, BufReader, IsTerminal};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};
use throttlekit::clock::{Clock, PreciseClock};
use throttlekit::rate::Timestamp;
use throttlekit_conformance::bugs::{Found, SeededBug};

use super::Services;

const THREADS: usize = 2;
/// Cases between two lines of progress.
const PROGRESS_EVERY: u64 = 10_000;
/// The longest list of violations that is printed.
const VIOLATIONS_SHOWN: usize = 20;

/// A running verification: its start, its violations, and the seeded bugs that it found.
pub(crate) struct Run {
    name: &'static str,
    services: Services,
    clock: PreciseClock,
    begun: Timestamp,
    violations: Vec<String>,
    seeded: Found,
}

impl Run {
    /// Starts the verification of this name.
    pub(crate) fn begin(name: &'static str, services: Services) -> Self {
        let clock = PreciseClock::new();
        let begun = clock.now();
        Self { name, services, clock, begun, violations: Vec::new(), seeded: Found::default() }
    }

    /// Returns the engines that it may start.
    pub(crate) fn services(&self) -> Services {
        self.services
    }

    /// Adds violations.
    pub(crate) fn violated(&mut self, violations: impl IntoIterator<Item = String>) {
        self.violations.extend(violations);
    }

    /// Adds a violation if `holds` is false.
    pub(crate) fn must(&mut self, holds: bool, violation: impl FnOnce() -> String) {
        self.violated((!holds).then(violation));
    }

    /// Adds the outcome of a search for seeded bugs.
    pub(crate) fn seeded(&mut self, outcome: Found) {
        self.seeded = std::mem::take(&mut self.seeded).merge(outcome);
    }

    /// Prints the seeded bugs that were found and the `figure:` line. Fails on any violation and on any bug that was not
    /// found.
    pub(crate) fn end(self, numbers: Value) -> Result<()> {
        let seconds = self.clock.now().since(self.begun).as_secs_f64();
        let mut figure = Map::new();
        figure.insert("name".into(), format!("verify-{}", self.name).into());
        if let Value::Object(numbers) = numbers {
            figure.extend(numbers);
        }
        figure.insert("violations".into(), self.violations.len().into());
        if self.seeded.total() > 0 {
            println!("\n{}", self.seeded.line());
            figure.insert("seeded".into(), self.seeded.total().into());
            figure.insert("seeded_found".into(), self.seeded.found.len().into());
        }
        figure.insert("seconds".into(), rounded(seconds, 1).into());
        println!("figure: {}", Value::from(figure));
        self.verdict()
    }

    /// Fails on any violation and on any bug that was not found.
    pub(crate) fn verdict(self) -> Result<()> {
        let shown = &self.violations[..self.violations.len().min(VIOLATIONS_SHOWN)];
        let count = self.violations.len();
        ensure!(count == 0, "{}: {count} violations:\n  {}", self.name, shown.join("\n  "));
        self.seeded.check().map_err(|missed| anyhow::anyhow!("{}: {missed}", self.name))
    }
}

/// Searches for each of these bugs and prints the number of `units` until it was found.
pub(crate) fn search<B: SeededBug>(units: &str, bugs: &[B], mut find: impl FnMut(B) -> Option<u64>) -> Found {
    println!("\n{:<34}{units:>10}", "seeded bug");
    Found::of(bugs, |bug| {
        let found = find(bug);
        let took = found.map_or("not found".into(), |took| took.to_string());
        println!("{:<34}{took:>10}", bug.name());
        found.is_some()
    })
}

/// Searches for every bug of one subject on all threads, and prints the number of seeds, the guarantee that
/// found it, and a description. Returns the outcome, and the number of seeds of each.
pub(crate) fn hunt<B: SeededBug + Sync>(
    units: &str,
    find: impl Fn(B) -> Option<(u64, &'static str)> + Sync,
) -> (Found, Vec<u64>) {
    let found = in_parallel(B::ALL.len() as u64, "seeded bugs", |at| (at, find(B::ALL[at as usize])));
    println!("{:<28}{units:>6}  {:<16}description", "seeded bug", "found by");
    let (mut outcome, mut took) = (Found::default(), Vec::new());
    for (bug, (_, found)) in B::ALL.iter().zip(found) {
        let (cases, invariant) =
            found.map_or(("-".into(), "nothing"), |(cases, invariant)| (cases.to_string(), invariant));
        println!("{:<28}{cases:>6}  {invariant:<16}{}", bug.name(), bug.description());
        outcome.note(bug.name(), found.is_some());
        took.extend(found.map(|(cases, _)| cases));
    }
    (outcome, took)
}

/// Runs `one` for each of `cases` cases, on all threads, and returns the results in order. Prints its
/// progress on a terminal.
pub(crate) fn in_parallel<T: Send>(cases: u64, what: &str, one: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let next = std::sync::atomic::AtomicU64::new(0);
    let take = || next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let work = || {
        let mine = std::iter::from_fn(|| Some(take()).filter(|at| *at < cases));
        mine.map(|at| (at, one(at))).collect::<Vec<_>>()
    };
    let progress =
        || format!("{what}: {} of {cases}", next.load(std::sync::atomic::Ordering::Relaxed).min(cases));
    let mut all: Vec<_> = in_threads(&work, progress).into_iter().flatten().collect();
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, came)| came).collect()
}

/// Runs `work` on every thread. Prints its progress on a terminal.
pub(crate) fn in_threads<T: Send>(work: &(impl Fn() -> T + Sync), progress: impl Fn() -> String) -> Vec<T> {
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            if io::stderr().is_terminal() {
                eprint!("\r{:<78}\r", progress());
            }
            thread::sleep(Duration::from_millis(20));
        }
        workers.into_iter().map(|worker| worker.join().expect("a check does not panic")).collect()
    })
}

/// Runs each piece of work on a thread of its own, because servers are started by commands that block.
pub(crate) async fn beside_each_other<T: Send + 'static>(
    works: impl IntoIterator<Item = impl FnOnce() -> Result<T> + Send + 'static>,
) -> Result<Vec<T>> {
    let mut done = Vec::new();
    let tasks: Vec<_> = works.into_iter().map(tokio::task::spawn_blocking).collect();
    for task in tasks {
        done.push(task.await??);
    }
    Ok(done)
}

/// Runs a future on a runtime of its own.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build()?.block_on(work)
}

/// Prints the number of finished cases: over the same line on a terminal, and a few lines elsewhere.
pub(crate) fn progress(name: &str, done: u64, cases: u64) {
    if io::stderr().is_terminal() {
        eprint!("\r{name:<12}{done:>10}\r");
    } else if done.is_multiple_of(PROGRESS_EVERY) || done == cases {
        eprintln!("{name}: {done} of {cases}");
    }
}

/// Runs one of our commands again in an optimized build.
pub(crate) fn optimized(words: &[&str]) -> Result<()> {
    let mut command = Command::new("cargo");
    command.args(["run", "--profile", "proof", "--quiet", "--package", "xtask", "--"]).args(words);
    ensure!(
        command.status()?.success(),
        "rerun with\n  cargo run --profile proof -p xtask -- {}",
        words.join(" ")
    );
    Ok(())
}

/// Runs a program, prints its lines, and returns the numbers of its `figure:` line, and `true` if it
/// succeeded.
pub fn figure_of(command: &mut Command) -> Result<(Value, bool)> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start")?;
    let mut figure = None;
    for line in BufReader::new(child.stdout.take().context("its output is piped")?).lines() {
        let line = line?;
        match line.strip_prefix("figure: ") {
            Some(found) => figure = Some(serde_json::from_str(found)?),
            None => println!("{line}"),
        }
    }
    let ended = child.wait()?;
    let figure =
        figure.context("no figure line: the program did not run to its end; rerun it on a quiet machine")?;
    Ok((figure, ended.success()))
}

/// Rounds to `places` decimal places.
pub(crate) fn rounded(value: f64, places: i32) -> f64 {
    let scale = 10_f64.powi(places);
    (value * scale).round() / scale
}
