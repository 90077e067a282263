//! Every world of the lease models explored in full, and a story for each assumption that is removed.

use std::io::{self, IsTerminal};

use anyhow::{Result, bail, ensure};
use serde_json::json;
use throttlekit::{Clock, PreciseClock};
use throttlekit_sim::models::catalogue::{self, Entry};
use throttlekit_sim::models::check::Findings;
use throttlekit_sim::models::counter_examples::{self, CounterExample};

use crate::prove::run_released;

const THREADS: usize = 2;
/// Fewer states than this would not be the search that is promised.
const STATES_MIN: usize = 10_000_000;

struct Explored {
    entry: Entry,
    found: Findings,
    seconds: f64,
}

/// Explores all worlds, or the small ones, and fails on whatever is not as it should be.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    let small = match args {
        [] => false,
        ["--small"] => true,
        _ => bail!("prove lease-model takes --small and nothing else, not {}", args.join(" ")),
    };
    if cfg!(debug_assertions) && !small {
        return run_released("lease-model", args);
    }
    let large = if small { Vec::new() } else { catalogue::large() };
    println!(
        "{:<16}{:<44}{:>10}{:>7}{:>9}{:>10}  reached",
        "law", "world", "states", "depth", "seconds", "bound"
    );
    let explored: Vec<_> = catalogue::small().into_iter().chain(large).map(explore).collect();
    let stories = counter_examples::find_all();
    stories.iter().for_each(tell_story);
    let states = explored.iter().map(|one| one.found.states).sum::<usize>();
    println!("figure: {}", figure(&explored, &stories, states));

    let wrong: Vec<_> = explored.iter().filter_map(Explored::wrong).collect();
    ensure!(wrong.is_empty(), "not proved:\n  {}", wrong.join("\n  "));
    let untold: Vec<_> = stories.iter().filter(|one| one.story.is_none()).map(|one| one.removed).collect();
    ensure!(untold.is_empty(), "nothing breaks without: {}", untold.join(", "));
    ensure!(small || states >= STATES_MIN, "{states} states were explored, and {STATES_MIN} are promised");
    Ok(())
}

fn explore(entry: Entry) -> Explored {
    if io::stderr().is_terminal() {
        eprint!("\r{}, {}\r", entry.law, entry.name);
    }
    let clock = PreciseClock::new();
    let begun = clock.now();
    let found = entry.explore(THREADS);
    let explored = Explored { seconds: clock.now().since(begun).as_secs_f64(), entry, found };
    explored.tell();
    explored
}

impl Explored {
    fn tell(&self) {
        let Self { entry, found, seconds } = self;
        let reached = if found.missing.is_empty() { "yes" } else { "no" };
        println!(
            "{:<16}{:<44}{:>10}{:>7}{seconds:>9.1}{:>10}  {reached}",
            entry.law, entry.name, found.states, found.depth, entry.bound
        );
    }

    /// What is not as it should be, if anything.
    fn wrong(&self) -> Option<String> {
        let Self { entry, found, .. } = self;
        let what = if !found.violated.is_empty() {
            format!("not so: {}", found.violated.join(", "))
        } else if !found.missing.is_empty() {
            format!("never: {}", found.missing.join(", "))
        } else if found.states != entry.states {
            format!("{} states where there were {}", found.states, entry.states)
        } else {
            return None;
        };
        Some(format!("{}, {}: {what}", entry.law, entry.name))
    }
}

fn tell_story(one: &CounterExample) {
    println!("\nWithout \"{}\", {} breaks:", one.removed, one.law);
    match &one.story {
        Some(steps) => steps.iter().for_each(|step| println!("  {step}")),
        None => println!("  no, no story was found"),
    }
}

fn figure(explored: &[Explored], stories: &[CounterExample], states: usize) -> serde_json::Value {
    json!({
        "name": "prove-lease-model",
        "worlds": explored.len(),
        "states": states,
        "steps": explored.iter().map(|one| one.found.steps).sum::<usize>(),
        "wrong": explored.iter().filter(|one| one.wrong().is_some()).count(),
        "counter_examples": stories.len(),
        "counter_examples_found": stories.iter().filter(|one| one.story.is_some()).count(),
        "seconds": (explored.iter().map(|one| one.seconds).sum::<f64>() * 10.0).round() / 10.0,
    })
}
