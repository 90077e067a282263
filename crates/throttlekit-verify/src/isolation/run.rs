//! Runs one schedule, and checks the observations of all callers except the one that misbehaves.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use throttlekit::clock::{BootClock, Clock};
use throttlekit::rate::Timestamp;

use super::actor::{Actor, Call, Script, let_go, misbehave, play};
use super::judge;
use super::lateness::{driver_stood_still, slack_between};
use super::schedule::{Caller, Schedule, work_of};
use super::shared::{Bench, Found, Shared};

/// The time limit of building, including a connection to a busy engine.
const BUILD_MAX: Duration = Duration::from_secs(20);
/// The time for which tasks and connections may live after the last handle is gone: a probe takes at most two
/// seconds.
const LINGER_MAX: Duration = Duration::from_secs(3);
/// The polling interval.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Counts of one schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Calls of callers that did not misbehave.
    pub calls: u64,
    /// Calls with a response.
    pub answered: u64,
    /// Calls with a correctly reported outage.
    pub outages: u64,
    /// Schedules in which a circuit breaker was open when the store recovered.
    pub breakers: u64,
    /// Outages and fences that no fault explains, at a time when the machine woke threads later than half a
    /// deadline.
    pub excused: u64,
    /// Schedules in which the misbehaving runtime was blocked for three seconds.
    pub full_blocks: u64,
}

impl Tally {
    /// Returns the sum of both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            answered: self.answered + other.answered,
            outages: self.outages + other.outages,
            breakers: self.breakers + other.breakers,
            excused: self.excused + other.excused,
            full_blocks: self.full_blocks + other.full_blocks,
        }
    }
}

/// Runs a schedule. Returns an error with every broken promise.
pub fn run(schedule: &Schedule, bench: &dyn Bench) -> Result<Tally, String> {
    let found = Found::default();
    let actors: Vec<Actor> = schedule.runtimes.iter().map(|kind| Actor::start(*kind)).collect();
    let builder = if schedule.rogue_builds { &actors[0] } else { &actors[1] };
    let built = builder.run(bench.build(schedule.clone())).recv_timeout(BUILD_MAX);
    let shared = built.map_err(|_| "building has not ended".to_owned())??;
    let begun = BootClock.now();
    let scripts = scripts(schedule, begun, &found);
    let rogue = start_rogue(schedule, &actors[0], &scripts[0], &shared);
    let healthy: Vec<_> = actors[1..]
        .iter()
        .zip(&scripts[1..])
        .map(|(actor, script)| {
            let (script, shared) = (script.clone(), shared.clone());
            actor.tell(move |held| play(held, script, shared))
        })
        .collect();
    let breaker = fault(schedule, bench, begun, &found);
    let calls: Vec<Vec<Call>> = healthy
        .into_iter()
        .map(|calls| calls.recv().map_err(|_| "a caller panicked".to_owned()))
        .collect::<Result<_, _>>()?;
    judge::judge(schedule, begun, &calls, &found);
    // The misbehaving caller drops its handle; its runtime stays as it is.
    let _ = rogue.recv();
    actors[0].tell(let_go).recv().map_err(|_| "the rogue panicked".to_owned())?;
    settled(&*shared, &found);
    drop(shared);
    gone(bench, &found);
    if let Some(stood) = driver_stood_still(begun, BootClock.now()) {
        found.note(format!("the driver thread stood still for {stood:?}"));
    }
    drop(actors);
    verdict(&found)?;
    Ok(judge::tally(schedule, &calls, breaker, found.excused()))
}

fn verdict(found: &Found) -> Result<(), String> {
    let all = found.all();
    if all.is_empty() { Ok(()) } else { Err(all.join("; ")) }
}

fn scripts(schedule: &Schedule, begun: Timestamp, found: &Found) -> Vec<Script> {
    let one = |(number, caller): (usize, &Caller)| Script {
        caller: *caller,
        begun,
        until: schedule.ends,
        // One works for longer than a lease lives, the others come and go.
        first_work: if number == 1 { work_of(schedule.timing) } else { Duration::ZERO },
        leases_survive: schedule.leases_survive(),
        timing: schedule.timing,
        // The observations of the misbehaving caller do not count.
        found: if number == 0 { Found::default() } else { found.clone() },
    };
    schedule.callers.iter().enumerate().map(one).collect()
}

fn start_rogue(
    schedule: &Schedule,
    actor: &Actor,
    script: &Script,
    shared: &Arc<dyn Shared>,
) -> std::sync::mpsc::Receiver<()> {
    let (script, shared) = (script.clone(), shared.clone());
    let (how, at) = (schedule.misbehaviour, schedule.at);
    actor.tell(move |held| misbehave(held, &script, shared, how, at))
}

/// Breaks the store and heals it. Returns `true` if a breaker was open at that time, and records one that
/// stays open.
fn fault(schedule: &Schedule, bench: &dyn Bench, begun: Timestamp, found: &Found) -> bool {
    let Some(fault) = schedule.fault else { return false };
    sleep_until(begun + fault.from);
    bench.trouble(fault.trouble);
    sleep_until(begun + fault.until);
    bench.heal();
    sleep_until(begun + schedule.recovered());
    let was_open = bench.breaker_open() == Some(true);
    let bound = schedule.timing.probe_every * 2;
    let (healed, mut closed) = (BootClock.now(), false);
    while !closed {
        closed = bench.breaker_open() != Some(true);
        let now = BootClock.now();
        if !closed && now.since(healed) > bound + slack_between(healed, now) {
            let after = now.since(healed);
            found.note(format!("the circuit breaker is open {after:?} after recovery, promised: {bound:?}"));
            return was_open;
        }
        thread::sleep(LOOK_EVERY);
    }
    was_open
}

fn sleep_until(at: Timestamp) {
    thread::sleep(at.since(BootClock.now()));
}

/// Waits until everything that a handle tracks has ended.
fn settled(shared: &dyn Shared, found: &Found) {
    if let Some(left) = wait_for(|| shared.left_behind()) {
        found.note(left);
    }
}

/// Waits until nothing holds the store any more, and every connection is closed.
fn gone(bench: &dyn Bench, found: &Found) {
    let left = wait_for(|| {
        let (open, _) = bench.connections();
        let held = if bench.is_held() { Some("a task still holds the store".to_owned()) } else { None };
        held.or_else(|| (open > 0).then(|| format!("{open} connections are still open")))
    });
    if let Some(left) = left {
        found.note(format!("{left}, {LINGER_MAX:?} after the last handle was dropped"));
    }
}

fn wait_for(mut wrong: impl FnMut() -> Option<String>) -> Option<String> {
    let begun = BootClock.now();
    loop {
        let still = wrong()?;
        let now = BootClock.now();
        if now.since(begun) > LINGER_MAX + slack_between(begun, now) {
            return Some(still);
        }
        thread::sleep(LOOK_EVERY);
    }
}
