//! One run of a verification, from its begin to its verdict.

use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Map, Value};
use throttlekit::{Clock, PreciseClock, Timestamp};
use throttlekit_conformance::bugs::{Found, SeededBug};

const THREADS: usize = 2;

/// A verification that runs: how long, what it found wrong, and which seeded bugs it found.
pub(crate) struct Run {
    name: &'static str,
    clock: PreciseClock,
    begun: Timestamp,
    violations: Vec<String>,
    seeded: Found,
}

impl Run {
    /// Begins the verification of this name.
    pub(crate) fn begin(name: &'static str) -> Self {
        let clock = PreciseClock::new();
        let begun = clock.now();
        Self { name, clock, begun, violations: Vec::new(), seeded: Found::default() }
    }

    /// Adds what does not hold.
    pub(crate) fn violated(&mut self, violations: impl IntoIterator<Item = String>) {
        self.violations.extend(violations);
    }

    /// Adds the outcome of looking for seeded bugs.
    pub(crate) fn seeded(&mut self, outcome: Found) {
        self.seeded = std::mem::take(&mut self.seeded).merge(outcome);
    }

    /// Prints the seeded bugs that were found and the `figure:` line. Fails on any violation and on any bug that was not
    /// found.
    pub(crate) fn end(self, numbers: Value) -> Result<()> {
        let seconds = self.clock.now().since(self.begun).as_secs_f64();
        println!("\n{}", self.seeded.line());
        let mut figure = Map::new();
        figure.insert("name".into(), format!("prove-{}", self.name).into());
        if let Value::Object(numbers) = numbers {
            figure.extend(numbers);
        }
        figure.insert("violations".into(), self.violations.len().into());
        figure.insert("seeded".into(), self.seeded.total().into());
        figure.insert("seeded_found".into(), self.seeded.found.len().into());
        figure.insert("seconds".into(), rounded(seconds, 1).into());
        println!("figure: {}", Value::from(figure));
        ensure!(self.violations.is_empty(), "{}: violated:\n  {}", self.name, self.violations.join("\n  "));
        self.seeded.check().map_err(|missed| anyhow::anyhow!("{}: {missed}", self.name))
    }
}

/// Looks for each of these bugs and prints how many `units` it took.
pub(crate) fn search<B: SeededBug>(units: &str, bugs: &[B], mut find: impl FnMut(B) -> Option<u64>) -> Found {
    println!("\n{:<34}{units:>10}", "seeded bug");
    Found::of(bugs, |bug| {
        let found = find(bug);
        let took = found.map_or("not found".into(), |took| took.to_string());
        println!("{:<34}{took:>10}", bug.name());
        found.is_some()
    })
}

/// Runs `work` on every thread, and prints how far it is if a terminal shows it.
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

/// Rounds to so many decimal places.
pub(crate) fn rounded(value: f64, places: i32) -> f64 {
    let scale = 10_f64.powi(places);
    (value * scale).round() / scale
}
