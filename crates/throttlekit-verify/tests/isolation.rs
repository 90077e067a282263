//! Guarantee `isolated-callers` over memory at a small size. `cargo xtask verify isolated-callers` runs it at
//! its full size, over real engines, and searches for every seeded bug.

#![cfg(not(loom))]

use std::thread;

use throttlekit_verify::isolation::{Bench, Bug, Engine, Kind, MemoryBench, Schedule, examine, find};

const AT_ONCE: usize = 16;

fn memory(schedule: &Schedule) -> Result<Box<dyn Bench>, String> {
    Ok(Box::new(MemoryBench::new(schedule, None)))
}

#[test]
fn isolated_callers_over_memory() {
    let examined = examine(Engine::Memory, &Kind::ON_STORES, 0..48, AT_ONCE, &memory, &|| {});
    let found: Vec<_> = examined.confirmed.iter().chain(&examined.unchecked).collect();
    assert!(found.is_empty(), "{found:#?}");
    assert!(examined.tally.answered > 48 * 8, "nothing was examined: {:?}", examined.tally);
}

/// One of each sort: a hang, an outage that no other caller has, work that is fenced, a leak. The others take
/// longer to find.
const QUICKLY_FOUND: [Bug; 4] = [
    Bug::NoDeadline,
    Bug::ImpatienceOpensTheBreaker,
    Bug::HeartbeatNeverAnswered,
    Bug::ConnectionPerAbandonedCall,
];

#[test]
fn seeded_bugs_are_found() {
    // A schedule is mostly a wait, so the searches run concurrently.
    thread::scope(|scope| {
        let search = |bug| move || find(bug, 64, AT_ONCE / QUICKLY_FOUND.len());
        let searches = QUICKLY_FOUND.map(|bug| (bug, scope.spawn(search(bug))));
        for (bug, search) in searches {
            assert!(search.join().unwrap().is_some(), "blind to {bug:?}");
        }
    });
}
