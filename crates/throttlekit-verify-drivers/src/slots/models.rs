//! Models of slots and of a shared ceiling explored in full, a counterexample for each removed assumption,
//! and very many simulated clusters.

use anyhow::Result;
use serde_json::{Value, json};
use throttlekit_sim::slots::{self, Fault, Fired, SlotBug};

use super::{Part, Setup};
use crate::model;
use crate::runner::{hunt, in_parallel};

const SEEDS: u64 = 2_400;
const SEEDS_SMALL: u64 = 60;
/// The number of seeds in which a seeded bug has to be found.
const HUNT_SEEDS_MAX: u64 = 600;
/// The minimum number of times each fault must fire in a full run.
const FIRINGS_MIN: u64 = 500;
const VIOLATIONS_SHOWN: usize = 5;

pub(super) fn run(setup: Setup) -> Result<Part> {
    let small = setup.small;
    let (published, mut broken) = model::explore(&model::CEILING, small);
    let (production, wrong) = model::explore(&model::SLOTS, small);
    broken.extend(wrong);
    let simulated = simulate(small, &mut broken);
    let seeds_max = if small { HUNT_SEEDS_MAX / 2 } else { HUNT_SEEDS_MAX };
    let (seeded, mut took) = hunt("seeds", |bug: SlotBug| slots::hunt(bug, seeds_max));
    took.sort_unstable();
    let figure = json!({
        "published": published,
        "production": production,
        "simulated": simulated,
        "seeded_median_seeds": took.get(seeded.total() / 2),
    });
    Ok(Part { figure, broken, seeded })
}

/// The sum over the seeds.
#[derive(Default)]
struct Sum {
    decisions: u64,
    admitted: u64,
    fired: Fired,
    violations: Vec<String>,
}

fn simulate(small: bool, broken: &mut Vec<String>) -> Value {
    let seeds = if small { SEEDS_SMALL } else { SEEDS };
    let mut sum = Sum::default();
    let reports = in_parallel(seeds, "seeds", |seed| slots::run(seed, None, &mut |_| ()));
    for (seed, report) in (0..seeds).zip(reports) {
        sum.decisions += report.decisions;
        sum.admitted += report.admitted;
        sum.fired.add(&report.fired);
        let broken = report.broken.map(|(invariant, how)| format!("seed {seed}, {invariant}: {how}"));
        sum.violations.extend(broken);
    }
    println!("\n{:<22}{:>9}  what it is", "fault", "fired");
    for &fault in Fault::ALL {
        println!("{:<22}{:>9}  {}", fault.name(), sum.fired.of(fault), fault.description());
    }
    let (Sum { decisions, admitted, .. }, violations) = (&sum, sum.violations.len());
    println!(
        "\n{seeds} seeds, {decisions} asks of which {admitted} were admitted, {violations} violations\n"
    );
    broken.extend(sum.violations.iter().take(VIOLATIONS_SHOWN).cloned());
    let fired = Fault::ALL.iter().map(|&fault| (sum.fired.of(fault), fault.name()));
    let (least, fault) = fired.min().expect("there are faults");
    if least < if small { 1 } else { FIRINGS_MIN } {
        broken.push(format!("{fault} fired {least} times in {seeds} seeds"));
    }
    json!({
        "seeds": seeds,
        "asks": decisions,
        "violations": violations,
        "fault_kinds": Fault::ALL.len(),
        "least_fired": least,
    })
}
