//! A short fault schedule over a few nodes, for everyday runs.

use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use throttlekit::clock::{BootClock, Clock};

use super::{Bug, Crew, Limit, Order, Tally, tally};

/// The ceiling of the short fault schedule.
pub const SHORT_CEILING: u32 = 12;
/// The number of fault schedules in which a test may look for a fault that one of them may miss on a busy
/// machine.
pub const SCHEDULES_MAX: usize = 3;
const LIVES: Duration = Duration::from_millis(900);
/// In thousandths of the ceiling.
const DEMANDS: [u64; 3] = [1_500, 700, 300];

/// Runs three nodes: one is stopped for longer than a grant lives, one is killed, one leaves. Returns the
/// measurements from the first request on.
///
/// `test` is the test that calls this, which must call [`post`](super::post) first: each process runs that
/// test again.
pub fn short_schedule(test: &'static str, bug: Option<Bug>) -> Tally {
    let program = std::env::current_exe().expect("this program has a path");
    let again = move || {
        let mut command = Command::new(&program);
        command.args(["--exact", test, "--nocapture"]);
        command
    };
    let begun = BootClock.now();
    let folder = std::env::temp_dir().join(format!("throttlekit-{test}-{}", begun.as_nanos()));
    std::fs::create_dir_all(&folder).expect("a folder for the logs");
    let mut crew = Crew::start(again, folder.clone(), 0);
    for demand in DEMANDS {
        crew.join(order(format!("{test} {}", begun.as_nanos()), demand, bug));
    }
    sleep(LIVES * 2);
    crew.stop(0, LIVES * 3 / 2);
    sleep(LIVES / 2);
    crew.kill(1);
    crew.replace(2);
    sleep(LIVES);
    let seen = tally(&crew, begun, BootClock.now());
    drop(crew);
    let _ = std::fs::remove_dir_all(folder);
    seen
}

/// Runs short fault schedules until one of them has reached the ceiling, and panics if none does. The ceiling
/// must hold in each.
pub fn ceiling_holds(test: &'static str) {
    let tries_it = |_| {
        let seen = short_schedule(test, None);
        println!("{seen:?}");
        assert!(seen.most.max(seen.decided) <= SHORT_CEILING.into(), "above the ceiling of {SHORT_CEILING}");
        seen.most * 4 >= u64::from(SHORT_CEILING) * 3 && seen.fences > 0
    };
    assert!(
        (0..SCHEDULES_MAX).any(tries_it),
        "the ceiling was not reached in {SCHEDULES_MAX} fault schedules"
    );
}

fn order(name: String, demand: u64, bug: Option<Bug>) -> Order {
    Order {
        port: 0,
        name,
        log: PathBuf::new(),
        limit: Limit::Fixed(SHORT_CEILING),
        equal: false,
        lives: LIVES,
        demand_milli: demand * u64::from(SHORT_CEILING),
        work: [Duration::from_millis(5), Duration::from_millis(50)],
        bug,
    }
}
