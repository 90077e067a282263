//! Runs many schedules concurrently, since they mostly wait, and confirms findings.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use super::memory::MemoryBench;
use super::run::{Tally, run};
use super::schedule::{Engine, Kind, Schedule};
use super::seeded::Bug;
use super::shared::Bench;
use throttlekit::internals::Mutex;
use throttlekit_conformance::invariants::Violation;

/// The number of reruns before a finding is attributed to the machine.
const AGAIN_MAX: u32 = 2;
/// The number of schedules that are rerun, and the number at a time: fewer than before, so that the machine
/// is less busy.
const CONFIRMED_MAX: usize = 48;
const CONFIRMED_AT_ONCE: usize = 4;

/// Creates the bench of each schedule.
pub type Benches<'a> = &'a (dyn Fn(&Schedule) -> Result<Box<dyn Bench>, String> + Sync);

/// The results of many schedules.
#[derive(Debug, Default)]
pub struct Examined {
    /// The number of schedules.
    pub schedules: u64,
    /// The sum over schedules without findings.
    pub tally: Tally,
    /// Findings that were confirmed by the same seed.
    pub confirmed: Vec<Violation>,
    /// Findings that were not confirmed in two reruns.
    pub unconfirmed: Vec<Violation>,
    /// Findings that were not rerun because there were too many.
    pub unchecked: Vec<Violation>,
}

impl Examined {
    /// Returns the figures as JSON.
    pub fn figure(&self) -> serde_json::Value {
        let Tally { calls, answered, outages, breakers, excused, full_blocks } = self.tally;
        serde_json::json!({
            "schedules": self.schedules,
            "calls": calls,
            "answered": answered,
            "outages_explained": outages,
            "breakers_closed": breakers,
            "excused": excused,
            "blocked_3s": full_blocks,
            "violations": self.confirmed.len() + self.unchecked.len(),
            "unconfirmed": self.unconfirmed.len(),
        })
    }

    /// Returns the number of findings.
    pub fn found(&self) -> usize {
        self.confirmed.len() + self.unconfirmed.len() + self.unchecked.len()
    }
}

/// Runs the schedules of these seeds on one engine, with limited concurrency. `progress` is called after
/// each.
pub fn examine(
    engine: Engine,
    kinds: &[Kind],
    seeds: std::ops::Range<u64>,
    at_once: usize,
    benches: Benches<'_>,
    progress: &(dyn Fn() + Sync),
) -> Examined {
    let all: Vec<Schedule> = seeds.map(|seed| Schedule::of(seed, engine, kinds)).collect();
    let (tally, mut found) = run_all(&all, at_once, benches, progress);
    let unchecked = found.split_off(found.len().min(CONFIRMED_MAX));
    let (confirmed, unconfirmed) = confirm(&found, benches);
    Examined {
        schedules: all.len() as u64,
        tally,
        confirmed,
        unconfirmed,
        unchecked: unchecked.into_iter().map(|(_, violation)| violation).collect(),
    }
}

type Found = Vec<(Schedule, Violation)>;

fn run_all(
    all: &[Schedule],
    at_once: usize,
    benches: Benches<'_>,
    progress: &(dyn Fn() + Sync),
) -> (Tally, Found) {
    let (next, done) = (AtomicU64::new(0), Mutex::new((Tally::default(), Found::new())));
    let work = || {
        while let Some(schedule) = all.get(next.fetch_add(1, Relaxed) as usize) {
            let came = one(schedule, benches);
            let mut done = done.lock();
            match came {
                Ok(tally) => done.0 = done.0.plus(tally),
                Err(violation) => done.1.push((schedule.clone(), violation)),
            }
            drop(done);
            progress();
        }
    };
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(work);
        }
    });
    std::mem::take(&mut *done.lock())
}

/// Runs one schedule.
pub fn one(schedule: &Schedule, benches: Benches<'_>) -> Result<Tally, Violation> {
    let came = benches(schedule).and_then(|bench| run(schedule, &*bench));
    came.map_err(|wrong| Violation {
        seed: schedule.seed,
        counterexample: format!("{schedule}\n    {wrong}"),
    })
}

/// Confirms findings: a real bug repeats; a thread that a busy machine woke late does not.
fn confirm(found: &[(Schedule, Violation)], benches: Benches<'_>) -> (Vec<Violation>, Vec<Violation>) {
    let mut split = (Vec::new(), Vec::new());
    for part in found.chunks(CONFIRMED_AT_ONCE) {
        let again = |schedule: &Schedule| (0..AGAIN_MAX).any(|_| one(schedule, benches).is_err());
        let repeats: Vec<bool> = thread::scope(|scope| {
            let runs: Vec<_> = part.iter().map(|(schedule, _)| scope.spawn(|| again(schedule))).collect();
            runs.into_iter().map(|run| run.join().unwrap_or(true)).collect()
        });
        for ((_, violation), repeats) in part.iter().zip(repeats) {
            (if repeats { &mut split.0 } else { &mut split.1 }).push(violation.clone());
        }
    }
    split
}

/// Searches for a seeded bug in schedules that could expose it. Returns the number of schedules until a
/// finding that was confirmed by its seed and is absent without the bug.
pub fn find(bug: Bug, schedules_max: u64, at_once: usize) -> Option<(u64, Violation)> {
    let benches = |schedule: &Schedule| seeded(schedule, Some(bug));
    let of = |seed| Schedule::of(seed, Engine::Memory, &Kind::ON_STORES);
    let mut suited = (0..).map(of).filter(|schedule| bug.could_show_in(schedule));
    let mut tried = 0;
    while tried < schedules_max {
        let part: Vec<Schedule> = suited.by_ref().take(at_once).collect();
        tried += part.len() as u64;
        let (_, found) = run_all(&part, at_once, &benches, &|| {});
        for violation in confirm(&found, &benches).0 {
            let without = |schedule: &Schedule| seeded(schedule, None);
            if bug == Bug::Control || one(&of(violation.seed), &without).is_ok() {
                return Some((tried, violation));
            }
        }
    }
    None
}

fn seeded(schedule: &Schedule, bug: Option<Bug>) -> Result<Box<dyn Bench>, String> {
    Ok(Box::new(MemoryBench::new(schedule, bug)))
}
