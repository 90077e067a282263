//! Every seeded bug, each looked for until it is found twice by one seed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use serde_json::{Value, json};
use throttlekit_conformance::isolation::{Bug, find};

/// Bugs that are looked for at once, and schedules of each.
const BUGS_AT_ONCE: usize = 6;
const AT_ONCE: usize = 8;

/// What was found of each, and which were not; the control counts as not found if anything was.
pub(super) fn run(schedules_max: u64) -> (Vec<Value>, Vec<String>) {
    println!("\n{:<32}{:>10}  found by", "seeded bug", "schedules");
    let (next, found) = (AtomicUsize::new(0), Mutex::new((Vec::new(), Vec::new())));
    let work = || {
        while let Some(bug) = Bug::SEEDED.get(next.fetch_add(1, Relaxed)) {
            let came = find(*bug, schedules_max, AT_ONCE);
            let mut found = found.lock().expect("nobody panics with it");
            match came {
                Some((schedules, violation)) => {
                    println!("{:<32}{schedules:>10}  {violation}", bug.name());
                    found.0.push(json!({ "bug": bug.name(), "schedules": schedules }));
                }
                None => {
                    println!("{:<32}{schedules_max:>10}  NOT FOUND", bug.name());
                    found.1.push(bug.name().to_owned());
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..BUGS_AT_ONCE {
            scope.spawn(work);
        }
    });
    let (seeded, mut missed) = found.into_inner().expect("nobody panicked");
    match find(Bug::Control, AT_ONCE as u64 * 4, AT_ONCE * 2) {
        None => println!("{:<32}{:>10}  nothing, as it must be", "Control", AT_ONCE * 4),
        Some((_, violation)) => {
            println!("{:<32}  {violation}", "Control");
            missed.push("none at all: the control failed".into());
        }
    }
    (seeded, missed)
}
