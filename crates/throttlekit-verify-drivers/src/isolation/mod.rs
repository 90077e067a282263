//! Isolation of callers: every shared type over several runtimes of which one misbehaves, on every store.
//!
//! Schedules mostly wait; their computation in a debug build still makes a machine late at the full size.

mod engines;
mod remote;
mod seeded;
mod threads;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::runner::{Options, Run, Services};
use engines::Engines;
use throttlekit_verify::isolation::{Engine, Examined, Kind, Schedule, examine, one};

/// The number of schedules on each engine, and the number at a time: they mostly wait.
struct Size {
    memory: u64,
    redis: u64,
    postgres: u64,
    /// Over a real server, by the client's own test.
    server: u64,
    /// The maximum number of schedules that could expose a seeded bug in which it is searched for.
    seeded_max: u64,
}

const FULL: Size = Size { memory: 9_000, redis: 700, postgres: 500, server: 400, seeded_max: 400 };
/// The client's test runs at its own size with all other tests.
const SMALL: Size = Size { memory: 64, redis: 20, postgres: 16, server: 0, seeded_max: 96 };
const AT_ONCE: [usize; 3] = [32, 10, 8];
/// The maximum number of findings that did not repeat: the first number, or one in the second number of
/// schedules. With more, the machine is too busy for reliable results.
const UNCONFIRMED_MAX: [u64; 2] = [4, 50];
const SHOWN_MAX: usize = 12;

/// Runs all schedules, or replays one.
pub(crate) fn run(options: &Options<'_>, run: &mut Run) -> Result<Value> {
    if let Some(which) = options.value("--replay") {
        return replay(which, run.services()).map(|()| Value::Null);
    }
    let mut size = match options.has("--small") {
        true => SMALL,
        false => of_cases(options.number("--cases", FULL.total())?),
    };
    if options.has("--no-server") {
        size.server = 0;
    }
    verify(&size, run)
}

impl Size {
    const fn total(&self) -> u64 {
        self.memory + self.redis + self.postgres + self.server
    }
}

/// Returns a size of this many schedules in all, in the proportions of the full size.
fn of_cases(cases: u64) -> Size {
    let part = |of: u64| (cases * of).div_ceil(FULL.total());
    Size {
        memory: part(FULL.memory),
        redis: part(FULL.redis),
        postgres: part(FULL.postgres),
        server: part(FULL.server),
        seeded_max: FULL.seeded_max,
    }
}

fn verify(size: &Size, run: &mut Run) -> Result<Value> {
    let engines = Engines::up(run.services())?;
    let before = threads::count()?;
    println!(
        "{:<12}{:>11}{:>10}{:>10}{:>10}{:>10}{:>8}{:>12}{:>13}",
        "store", "schedules", "calls", "answered", "outages", "breakers", "3 s", "violations", "unconfirmed"
    );
    let parts = on_engines(&engines, size);
    let server = remote::run(size.server)?;
    let left_open = engines.left_open()?;
    let after = threads::settled(before)?;
    let (seeded, control) = seeded::run(size.seeded_max);
    run.seeded(seeded);
    run.violated(control);
    run.violated(broken(&parts, before, after, &left_open));
    let mut figure = figure(&parts);
    if let Some(server) = server {
        run.violated(server.broken());
        figure["schedules"] = json!(figure["schedules"].as_u64().unwrap_or(0) + server.schedules());
        figure["server"] = server.figure;
    }
    figure["threads_left"] = json!(after.saturating_sub(before));
    figure["connections_left"] = left_open.iter().map(|(_, open)| open).sum::<i64>().into();
    Ok(figure)
}

/// Runs on all engines at once.
fn on_engines(engines: &Engines, size: &Size) -> Vec<(&'static str, Examined)> {
    let done = AtomicU64::new(0);
    let all = size.memory + size.redis + size.postgres;
    let progress = || {
        let done = 1 + done.fetch_add(1, Relaxed);
        if done.is_multiple_of((all / 20).max(1)) {
            eprintln!("{done} of {all} schedules");
        }
    };
    let on = |(name, engine, schedules, at_once)| {
        let benches = |schedule: &Schedule| engines.bench(schedule);
        let examined = examine(engine, &Kind::ON_STORES, 0..schedules, at_once, &benches, &progress);
        tell(name, &examined);
        (name, examined)
    };
    let each = [
        ("memory", Engine::Memory, size.memory, AT_ONCE[0]),
        ("redis", Engine::Redis, size.redis, AT_ONCE[1]),
        ("postgres", Engine::Postgres, size.postgres, AT_ONCE[2]),
    ];
    thread::scope(|scope| {
        let running: Vec<_> = each.map(|part| scope.spawn(move || on(part))).into();
        running.into_iter().map(|part| part.join().expect("a schedule does not panic")).collect()
    })
}

fn tell(name: &str, examined: &Examined) {
    let tally = &examined.tally;
    println!(
        "{name:<12}{:>11}{:>10}{:>10}{:>10}{:>10}{:>8}{:>12}{:>13}",
        examined.schedules,
        tally.calls,
        tally.answered,
        tally.outages,
        tally.breakers,
        tally.full_blocks,
        examined.confirmed.len() + examined.unchecked.len(),
        examined.unconfirmed.len(),
    );
    let shown = |what: &str, all: &[throttlekit_conformance::invariants::Violation]| {
        all.iter().take(SHOWN_MAX).for_each(|violation| println!("  {what} {name}:{violation}"));
    };
    shown("violation", &examined.confirmed);
    shown("not run again", &examined.unchecked);
    shown("did not repeat", &examined.unconfirmed);
}

fn broken(
    parts: &[(&'static str, Examined)],
    before: usize,
    after: usize,
    left_open: &[(&str, i64)],
) -> Vec<String> {
    let mut broken = Vec::new();
    for (name, examined) in parts {
        let violations = examined.confirmed.len() + examined.unchecked.len();
        if violations > 0 {
            broken.push(format!("{violations} violations on {name}"));
        }
        let unconfirmed = examined.unconfirmed.len() as u64;
        if unconfirmed > UNCONFIRMED_MAX[0].max(examined.schedules / UNCONFIRMED_MAX[1]) {
            broken.push(format!(
                "{unconfirmed} findings on {name} did not repeat: run it on a quieter machine"
            ));
        }
    }
    if after > before {
        broken.push(format!("{} threads are left", after - before));
    }
    let left = left_open.iter().filter(|(_, open)| *open > 0);
    broken.extend(left.map(|(name, open)| format!("{open} connections are left at {name}")));
    broken
}

fn figure(parts: &[(&'static str, Examined)]) -> Value {
    let sum = |of: fn(&Examined) -> u64| parts.iter().map(|(_, part)| of(part)).sum::<u64>();
    let mut figure = json!({
        "schedules": sum(|part| part.schedules),
        "unconfirmed": sum(|part| part.unconfirmed.len() as u64),
    });
    for (name, examined) in parts {
        figure[name] = examined.figure();
    }
    figure
}

/// Replays one schedule, such as `redis:17`.
fn replay(which: &str, services: Services) -> Result<()> {
    let (engine, seed) = which.split_once(':').context("--replay takes ENGINE:SEED, such as redis:17")?;
    let engine = match engine {
        "memory" => Engine::Memory,
        "redis" => Engine::Redis,
        "postgres" => Engine::Postgres,
        _ => bail!("--replay {which}: expected memory, redis or postgres before the seed"),
    };
    let seed =
        seed.parse().with_context(|| format!("--replay {which}: expected an integer after the colon"))?;
    let schedule = Schedule::of(seed, engine, &Kind::ON_STORES);
    println!("{schedule}\n{schedule:#?}");
    let engines = Engines::up(services)?;
    let came = one(&schedule, &|schedule| engines.bench(schedule));
    thread::sleep(Duration::from_millis(10));
    match came {
        Ok(tally) => println!("nothing found: {tally:?}"),
        Err(violation) => bail!("{violation}"),
    }
    Ok(())
}
