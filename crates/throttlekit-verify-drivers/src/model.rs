//! Exhaustive exploration: every state of small models of production code, and a counterexample for each assumption that is
//! removed.

use std::io::{self, IsTerminal};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use throttlekit::clock::{Clock, PreciseClock};
use throttlekit_sim::models::case::Case;
use throttlekit_sim::models::check::Findings;
use throttlekit_sim::models::counter_examples::{self, Assumption};
use throttlekit_sim::models::{catalogue, ceiling, rebalance, table};

use crate::runner::{Options, Run, StartServices, Unoptimized, Verification, Verify};

const THREADS: usize = 2;
/// The minimum number of states in all.
const STATES_MIN: usize = 10_000_000;
/// The maximum number of states of a small published scenario.
const SMALL_STATES_MAX: usize = 100_000;

/// Scenarios that show the same guarantees.
pub(crate) struct Model {
    /// Scenarios that are explored within seconds, and those that take longer.
    small: fn() -> Vec<Case>,
    large: fn() -> Vec<Case>,
    assumptions: fn() -> Vec<Assumption>,
    /// The least number of states in all scenarios.
    states_min: usize,
}

/// Clusters that lease.
const LEASE: Model = Model {
    small: catalogue::small,
    large: catalogue::large,
    assumptions: counter_examples::assumptions,
    states_min: STATES_MIN,
};

/// One concurrency limit for a cluster, as it was published.
pub(crate) const CEILING: Model = Model {
    small: || ceiling::cases().into_iter().filter(|case| case.states < SMALL_STATES_MAX).collect(),
    large: || ceiling::cases().into_iter().filter(|case| case.states >= SMALL_STATES_MAX).collect(),
    assumptions: ceiling::assumptions,
    states_min: 0,
};

/// One concurrency limit for a cluster, and slots that are held, as production code has them.
pub(crate) const SLOTS: Model = Model {
    small: || rebalance::small().into_iter().chain(table::small()).collect(),
    large: || rebalance::large().into_iter().chain(table::large()).collect(),
    assumptions: || rebalance::assumptions().into_iter().chain(table::assumptions()).collect(),
    states_min: STATES_MIN,
};

/// Every model as a verification.
pub(crate) const ALL: [Verification; 3] = [
    verification("lease-model", |options, run| verify(&LEASE, options, run)),
    verification("ceiling-model", |options, run| verify(&CEILING, options, run)),
    verification("slots-model", |options, run| verify(&SLOTS, options, run)),
];

const fn verification(name: &'static str, run: Verify) -> Verification {
    let about = "every state of small models, and a counterexample for each assumption that is removed";
    Verification { name, about, takes: &["--small"], unoptimized: Unoptimized::Small, run }
}

/// Explores the model of this name, or all of them.
pub fn run(name: &str, args: &[&str], start: StartServices) -> Result<()> {
    if name == "all" {
        return ALL.iter().try_for_each(|model| model.run(args, start));
    }
    let known = || ALL.map(|model| model.name.trim_end_matches("-model")).join(", ");
    let of_name = ALL.iter().find(|model| model.name.strip_suffix("-model") == Some(name));
    of_name.with_context(|| format!("unknown model {name}: expected all, {}", known()))?.run(args, start)
}

fn verify(model: &Model, options: &Options<'_>, run: &mut Run) -> Result<Value> {
    let (figure, violations) = explore(model, options.has("--small"));
    run.violated(violations);
    Ok(figure)
}

/// Explores every scenario of a model and searches for every counterexample. Returns its numbers and the
/// violations.
pub(crate) fn explore(model: &Model, small: bool) -> (Value, Vec<String>) {
    let mut cases = (model.small)();
    if !small {
        cases.extend((model.large)());
    }
    println!(
        "{:<16}{:<52}{:>10}{:>7}{:>9}{:>10}",
        "guarantee", "world", "states", "depth", "seconds", "bound"
    );
    let (mut states, mut steps, mut violations) = (0, 0, Vec::new());
    for case in &cases {
        let found = explored(case);
        states += found.states;
        steps += found.steps;
        violations.extend(case.wrong(&found));
    }
    if !small && states < model.states_min {
        violations.push(format!("{states} states were explored of at least {}", model.states_min));
    }
    let assumptions = (model.assumptions)();
    let needed = assumptions.iter().filter(|assumption| is_needed(assumption, &mut violations)).count();
    let figure = json!({
        "worlds": cases.len(),
        "states": states,
        "steps": steps,
        "counterexamples": assumptions.len(),
        "counterexamples_found": needed,
    });
    (figure, violations)
}

fn explored(case: &Case) -> Findings {
    if io::stderr().is_terminal() {
        eprint!("\r{}, {}\r", case.invariant, case.name);
    }
    let clock = PreciseClock::new();
    let begun = clock.now();
    let found = case.explore(THREADS);
    let seconds = clock.now().since(begun).as_secs_f64();
    println!(
        "{:<16}{:<52}{:>10}{:>7}{seconds:>9.1}{:>10}",
        case.invariant, case.name, found.states, found.depth, case.bound
    );
    found
}

/// Prints the counterexample without the assumption. It is a violation if there is none.
fn is_needed(assumption: &Assumption, violations: &mut Vec<String>) -> bool {
    println!("\nWithout \"{}\", {} breaks:", assumption.text, assumption.invariant);
    let found = assumption.counterexample();
    match &found {
        Some(steps) => steps.iter().for_each(|step| println!("  {step}")),
        None => {
            println!("  no counterexample was found");
            violations.push(format!("nothing breaks without: {}", assumption.text));
        }
    }
    found.is_some()
}

/// Returns every scenario with its pinned number of states, and every assumption: none may be lost.
pub(crate) fn pinned() -> Vec<String> {
    let mut lines = Vec::new();
    for (name, model) in [("lease", LEASE), ("ceiling", CEILING), ("slots", SLOTS)] {
        let cases = (model.small)().into_iter().chain((model.large)());
        lines.extend(
            cases.map(|case| {
                format!("model {name}: {}, {}: {} states", case.invariant, case.name, case.states)
            }),
        );
        let assumptions = (model.assumptions)().into_iter();
        lines.extend(assumptions.map(|one| format!("model {name}: {} assumes: {}", one.invariant, one.text)));
    }
    lines
}
