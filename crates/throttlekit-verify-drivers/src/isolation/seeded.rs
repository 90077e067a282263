//! A search for every seeded bug, until it is found twice by one seed.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use throttlekit::internals::Mutex;
use throttlekit_conformance::bugs::Found;

use throttlekit_verify::isolation::{Bug, find};

/// Concurrent searches, and concurrent schedules of each.
const BUGS_AT_ONCE: usize = 6;
const AT_ONCE: usize = 8;

/// Returns the findings, and the finding in the control, which has no bug.
pub(super) fn run(schedules_max: u64) -> (Found, Option<String>) {
    println!("\n{:<32}{:>10}  found by", "seeded bug", "schedules");
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Found::default()));
    let work = || {
        while let Some(bug) = Bug::SEEDED.get(next.fetch_add(1, Relaxed)) {
            let came = find(*bug, schedules_max, AT_ONCE);
            let mut found = found.lock();
            found.note(bug.name(), came.is_some());
            match came {
                Some((schedules, violation)) => println!("{:<32}{schedules:>10}  {violation}", bug.name()),
                None => println!("{:<32}{schedules_max:>10}  NOT FOUND", bug.name()),
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..BUGS_AT_ONCE {
            scope.spawn(work);
        }
    });
    let control = find(Bug::Control, AT_ONCE as u64 * 4, AT_ONCE * 2);
    let control = control.map(|(_, violation)| format!("found without a seeded bug: {violation}"));
    println!(
        "{:<32}{:>10}  {}",
        "control",
        AT_ONCE * 4,
        control.as_deref().unwrap_or("nothing, as it must be")
    );
    (std::mem::take(&mut *found.lock()), control)
}
