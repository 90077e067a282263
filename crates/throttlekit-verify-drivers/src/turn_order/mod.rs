//! The order of callers that wait: schedules of the queue, and clients of a running server that are killed while they
//! wait.

mod callers;
mod judge;
mod starvation;
mod waiting;

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use throttlekit_conformance::{Dice, bugs};

use crate::invariants;
use crate::runner::{Options, Run, block_on, names, search};
use crate::serving::{policy_file, program};
use callers::{Caller, Order};
use judge::{Joined, judge};
use waiting::Served;

const PARTS: [&str; 2] = ["schedules", "server"];
const ROUNDS: u64 = 100;
const ROUNDS_SMALL: u64 = 8;
/// Rounds in which a seeded bug is searched for; the search stops at the first that shows it.
const ROUNDS_SEEDED: u64 = 10;
const PROGRESS_EVERY: u64 = 20;
const CALLERS: usize = 12;
const CLASSES: u64 = 3;
/// Longer than the whole queue takes to be served on a busy machine. Nobody waits longer than the policy allows, 5 s.
const SERVED_WITHIN: Duration = Duration::from_secs(20);

/// One slot, and units that only admitted calls are charged. The lease of `raced` is so short that the slot of a client
/// that was killed with it comes back within the round.
const POLICIES: &str = "version: 1
policies:
  ordered:
    concurrency: {limit: 1, lease_for: 60s}
    rate: {algorithm: fixed_window, limit: 1000000, per: 365d}
    wait: {max: 5s, queue: 100}
  raced:
    concurrency: {limit: 1, lease_for: 1s}
    wait: {max: 5s, queue: 100}
";
const ORDERED: &str = "ordered";
const RACED: &str = "raced";

bugs! {
    /// Clients that behave as if the server broke its guarantee.
    pub(crate) enum Bug {
        KilledStays: "The connection of a killed client stays open.",
        SlotKept: "A client keeps the slot that it got.",
        ClassesIgnored: "All calls have the same priority.",
        NewestFirst: "Each call is more urgent than the one before it.",
        PositionLost: "The call that waits longest is sent again at each turn.",
        ChargedTwice: "A call that was admitted is sent again.",
    }
}

/// Returns the names of the seeded bugs.
pub(crate) fn seeded() -> Vec<&'static str> {
    names(Bug::ALL)
}

/// Runs the named parts, or all.
pub(crate) fn run(options: &Options<'_>, run: &mut Run) -> Result<Value> {
    let named = options.words();
    let known = named.iter().all(|part| PARTS.contains(part));
    ensure!(known, "unknown part: expected some of {}", PARTS.join(", "));
    let runs = |part: &str| named.is_empty() || named.contains(&part);
    let mut figure = if runs(PARTS[0]) { invariants::turn_order(options, run)? } else { json!({}) };
    if runs(PARTS[1]) {
        let default = if options.has("--small") { ROUNDS_SMALL } else { ROUNDS };
        figure["server"] = verify(options.number("--rounds", default)?, options.number("--seed", 0)?, run)?;
    }
    Ok(figure)
}

/// Runs rounds on one server, and searches for each seeded bug on a server of its own.
fn verify(rounds: u64, seed: u64, run: &mut Run) -> Result<Value> {
    let (program, policies) = (program()?, policy_file("turn-order", POLICIES)?);
    let setup = Setup { program: &program, policies: &policies };
    let mut totals = Totals::default();
    run.violated(block_on(setup.play(rounds, seed, &mut totals))?);
    let Totals { joined, killed, admitted } = totals;
    println!(
        "{rounds} rounds: {joined} calls waited, {killed} of their clients were killed, {admitted} were admitted"
    );
    let mut failed = None;
    let found = search("rounds", Bug::ALL, |bug| {
        block_on(setup.find(bug)).unwrap_or_else(|error| {
            failed.get_or_insert(error);
            None
        })
    });
    run.seeded(found);
    std::fs::remove_file(policies)?;
    failed.map_or(Ok(()), Err)?;
    Ok(json!({ "rounds": rounds, "joined": joined, "killed": killed, "admitted": admitted }))
}

/// The program and its policy file.
struct Setup<'a> {
    program: &'a Path,
    policies: &'a Path,
}

impl Setup<'_> {
    fn start(&self) -> Result<Served> {
        tokio::task::block_in_place(|| Served::start(self.program, self.policies))
    }

    /// Plays rounds on one server, and returns what was violated.
    async fn play(&self, rounds: u64, seed: u64, totals: &mut Totals) -> Result<Vec<String>> {
        let (served, mut violations) = (self.start()?, Vec::new());
        for round in 0..rounds {
            let violated = play(&served, seed + round, None, totals).await?;
            violations.extend(violated.into_iter().map(|what| format!("round {}: {what}", seed + round)));
            if (round + 1).is_multiple_of(PROGRESS_EVERY) {
                eprintln!("{} of {rounds} rounds", round + 1);
            }
        }
        Ok(violations)
    }

    /// Returns the number of rounds until one showed the bug.
    async fn find(&self, bug: Bug) -> Result<Option<u64>> {
        for round in 0..ROUNDS_SEEDED {
            // What a bug leaves behind must not be found in its place.
            let served = self.start()?;
            if !play(&served, round, Some(bug), &mut Totals::default()).await?.is_empty() {
                return Ok(Some(round + 1));
            }
        }
        Ok(None)
    }
}

/// Sums over all rounds.
#[derive(Default)]
struct Totals {
    joined: u64,
    killed: u64,
    admitted: u64,
}

/// Plays one round of each kind, and returns what was violated.
async fn play(served: &Served, seed: u64, bug: Option<Bug>, totals: &mut Totals) -> Result<Vec<String>> {
    let mut dice = Dice::new(seed);
    let mut violations = kill_while_they_wait(served, &mut dice, bug, totals).await?;
    if violations.is_empty() {
        violations.extend(starvation::play(served, &mut dice, bug, totals).await?);
    }
    if violations.is_empty() {
        violations.extend(kill_while_they_are_served(served, &mut dice, totals).await?);
    }
    Ok(violations)
}

/// Callers of several classes wait for the slot; some are killed; the others are served in order.
async fn kill_while_they_wait(
    served: &Served,
    dice: &mut Dice,
    bug: Option<Bug>,
    totals: &mut Totals,
) -> Result<Vec<String>> {
    let used = served.used(ORDERED).await?;
    let Some(holder) = served.take_slot(ORDERED).await? else { return Ok(vec!["the slot is in use".into()]) };
    let order = Order::default();
    let (mut callers, mut joined) = (Vec::new(), Vec::new());
    for number in 0..CALLERS {
        let class = dice.below(CLASSES) as u32;
        let priority = match bug {
            Some(Bug::ClassesIgnored) => 0,
            Some(Bug::NewestFirst) => (CALLERS - number) as u32,
            _ => class,
        };
        callers.push(Caller::start(served, ORDERED, number, priority, &order, bug)?);
        served.until_waiting(ORDERED, number as u64 + 1).await?;
        joined.push(Joined { number, class });
    }
    totals.joined += CALLERS as u64;
    let mut survivors = Vec::new();
    let mut alive = Vec::new();
    for (caller, joined) in callers.into_iter().zip(joined) {
        // The first has its turn, and the next one gets it: both cases matter.
        let dies = dice.below(3) == 0;
        if !dies || bug == Some(Bug::KilledStays) {
            alive.push(caller);
        } else {
            caller.kill();
        }
        if dies {
            totals.killed += 1;
        } else {
            survivors.push(joined);
        }
    }
    let left = survivors.len() as u64;
    if let Err(error) = served.until_waiting(ORDERED, left).await {
        return Ok(vec![format!("after {} clients were killed: {error}", CALLERS as u64 - left)]);
    }
    served.release(holder).await?;
    let all_served = order.until(SERVED_WITHIN, |admitted| admitted.len() == survivors.len()).await;
    let admitted = order.admitted();
    totals.admitted += admitted.len() as u64;
    let mut violations = judge(&survivors, &admitted);
    if !all_served {
        violations.push(format!("{} of {left} callers were served: {}", admitted.len(), order.failures()));
    }
    violations.extend(served.nothing_is_left(ORDERED).await?);
    // One unit for the holder, and one for the call that found the slot free.
    let (charged, expected) = (served.used(ORDERED).await? - used, admitted.len() as u64 + 2);
    if charged != expected {
        violations.push(format!("{charged} units were charged for {expected} admissions"));
    }
    drop(alive);
    Ok(violations)
}

/// Clients are killed at any time while all are served: some with the slot, which comes back with its lease.
async fn kill_while_they_are_served(
    served: &Served,
    dice: &mut Dice,
    totals: &mut Totals,
) -> Result<Vec<String>> {
    let Some(holder) = served.take_slot(RACED).await? else { return Ok(vec!["the slot is in use".into()]) };
    let order = Order::default();
    let mut callers = Vec::new();
    for number in 0..CALLERS {
        callers.push(Caller::start(served, RACED, number, dice.below(CLASSES) as u32, &order, None)?);
    }
    served.until_waiting(RACED, CALLERS as u64).await?;
    totals.joined += CALLERS as u64;
    served.release(holder).await?;
    let mut alive = Vec::new();
    for (number, caller) in callers.into_iter().enumerate() {
        tokio::time::sleep(Duration::from_micros(dice.below(4_000))).await;
        if dice.below(2) == 0 {
            caller.kill();
            totals.killed += 1;
        } else {
            alive.push((number, caller));
        }
    }
    let have_been = |admitted: &[usize]| alive.iter().all(|(number, _)| admitted.contains(number));
    let all_served = order.until(SERVED_WITHIN, have_been).await;
    totals.admitted += order.admitted().len() as u64;
    let mut violations = served.nothing_is_left(RACED).await?;
    if !all_served {
        violations.push(format!("a caller that lives was not served: {}", order.failures()));
    }
    Ok(violations)
}
