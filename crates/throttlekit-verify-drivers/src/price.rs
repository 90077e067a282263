//! The earnings of prices compared with the limits alone, and the correctness of the prices: tables, and one
//! `figure:` line.

use std::hint::black_box;
use std::thread;

use anyhow::Result;
use serde_json::{Value, json};
use throttlekit::clock::{Clock, PreciseClock};
use throttlekit::price::{Bid, Refiner, RefinerOptions, solve_fluid_lp};
use throttlekit::rate::Timestamp;

use crate::runner::{Options, Run};
use throttlekit_verify::price::three_axes::{self, AMPLE, HOG, RATIONED, Wrong};
use throttlekit_verify::price::two_axes::{self, CORRELATIONS, LONG_RUNS, PUBLISHED_SEEDS};
use throttlekit_verify::price::{self, Family, Findings, Problem, Size};

const SIZE: Size = Size { problems: 40_000, refiners: 2_000, streams: 20_000 };
const SEEDED_SIZE: Size = Size { problems: 2_000, refiners: 200, streams: 2_000 };
const SEEDS: u32 = 2_000;
/// For numbers that take long to compute.
const SEEDS_FEW: u32 = 500;
/// The number of instances that are timed.
const INSTANCES: usize = 201;
/// The number of requests after which a wrong belief is repriced.
const SAMPLE: usize = 25;

/// Runs the invariant and every experiment. Fails if a threshold is missed or a seeded bug is not found.
pub(crate) fn run(_: &Options<'_>, run: &mut Run) -> Result<Value> {
    let (tables, found, seeded) = thread::scope(|scope| {
        let invariant = scope.spawn(|| (price::examine(SIZE), price::find_seeded(SEEDED_SIZE)));
        let tables = Tables::run();
        let (found, seeded) = invariant.join().expect("a check does not panic");
        (tables, found, seeded)
    });
    let cost = Cost::measure(&PreciseClock::new());
    println!(
        "\na solution of 64 kinds takes {:.0} µs, {:.0} µs if budgets are filled to the last unit; a look at the prices {:.0} µs",
        cost.solve_us, cost.ties_us, cost.look_us
    );
    println!(
        "{} problems judged: duals equal in {}, in the rest one of several; worst certificate {:.1e}; {} prices adopted",
        found.problems, found.same_duals, found.certificate, found.adopted
    );
    let figure = tables.figure(&found);
    run.seeded(seeded);
    run.violated(found.violations);
    run.violated(tables.check().err());
    Ok(figure)
}

/// The cost of pricing, each the median over some instances.
struct Cost {
    solve_us: f64,
    ties_us: f64,
    look_us: f64,
}

impl Cost {
    fn measure(clock: &PreciseClock) -> Self {
        let median = |run: &dyn Fn(usize)| {
            let mut micros: Vec<f64> = (0..INSTANCES)
                .map(|at| {
                    let begun = clock.now();
                    run(at);
                    clock.now().since(begun).as_secs_f64() * 1e6
                })
                .collect();
            micros.sort_by(f64::total_cmp);
            micros[INSTANCES / 2]
        };
        let problems =
            |family| (0..INSTANCES as u64).map(|seed| Problem::largest(family, seed)).collect::<Vec<_>>();
        let solve = |problem: &Problem| drop(black_box(solve_fluid_lp(&problem.kinds, &problem.budgets)));
        let (scales, filled) = (problems(Family::Scales), problems(Family::Filled));
        let refiner = busy_refiner();
        Self {
            solve_us: median(&|at| solve(&scales[at])),
            ties_us: median(&|at| solve(&filled[at])),
            look_us: median(&|_| {
                black_box(refiner.clone().reprice(None));
            }),
        }
    }
}

/// Returns a refiner with eight full samples of requests that all differ, with slots.
fn busy_refiner() -> Refiner {
    let Problem { kinds, budgets, .. } = Problem::largest(Family::Scales, 0);
    let options = RefinerOptions { slots: Some(100), ..RefinerOptions::default() };
    let mut refiner = Refiner::new(&kinds, &budgets, options).expect("the problem is sound");
    for ask in 0..800u64 {
        let [value, cost, hold] = [37, 101, 89].map(|step| ask * step % 797);
        let bid = Bid::new(value as f64, cost).hold(hold as f64);
        refiner.observe(&bid, Timestamp::from_millis(ask * 1_000));
    }
    refiner
}

struct Tables {
    published: Vec<two_axes::Row>,
    ours: Vec<two_axes::Row>,
    long_runs: Vec<two_axes::Row>,
    rejecting: Vec<(f64, f64, f64)>,
    scenarios: [three_axes::Row; 3],
    wrong: Vec<Wrong>,
}

impl Tables {
    /// Runs the experiments. Each table is printed as soon as it is complete.
    fn run() -> Self {
        let published = two_axes::regret_by_correlation(&CORRELATIONS, PUBLISHED_SEEDS);
        tell_regret(PUBLISHED_SEEDS, &published);
        let ours = two_axes::regret_by_correlation(&CORRELATIONS, SEEDS);
        tell_regret(SEEDS, &ours);
        let long_runs = two_axes::regret_by_correlation(&LONG_RUNS, SEEDS_FEW);
        tell_regret(SEEDS_FEW, &long_runs);
        let rejecting = two_axes::regret_of_a_wrong_belief(SAMPLE, SEEDS_FEW);
        tell_belief(
            "a belief that rejects all",
            rejecting.iter().map(|row| (row.0.to_string(), row.1, row.2)),
        );
        let scenarios = [HOG, AMPLE, RATIONED].map(|scenario| scenario.row(SEEDS_FEW));
        tell_scenarios(&scenarios);
        let wrong = three_axes::wrong_beliefs(SAMPLE, SEEDS_FEW);
        tell_belief(
            "a wrong belief in scenario A",
            wrong.iter().map(|row| (row.belief.into(), row.fixed, row.refined)),
        );
        Self { published, ours, long_runs, rejecting, scenarios, wrong }
    }

    fn check(&self) -> Result<(), String> {
        two_axes::check_published(&self.published)
            .and_then(|()| two_axes::check_refined(&self.published))
            .and_then(|()| two_axes::check_refined(&self.ours))
            .and_then(|()| three_axes::check_scenarios(&self.scenarios))
            .and_then(|()| three_axes::check_recovery(&self.wrong))
            .map_err(|counterexample| format!("below its threshold: {counterexample}"))
    }

    fn figure(&self, found: &Findings) -> Value {
        let all = |rows: &[two_axes::Row], of: fn(&two_axes::Row) -> f64| -> Vec<f64> {
            rows.iter().map(|row| points(of(row))).collect()
        };
        let regret = |rows: &[two_axes::Row]| {
            json!({
                "rho": rows.iter().map(|row| row.correlation).collect::<Vec<_>>(),
                "marginal": all(rows, |row| row.marginal),
                "joint": all(rows, |row| row.joint),
                "refined": all(rows, |row| row.refined),
                "refined_told": all(rows, |row| row.told),
            })
        };
        let scenario = |row: &three_axes::Row| {
            json!([points(row.marginal), points(row.three_axes), points(row.refined)])
        };
        json!({
            "problems": found.problems,
            "same_duals": found.same_duals,
            "certificate_max": found.certificate,
            "regret_20_seeds": regret(&self.published),
            "regret_2000_seeds": regret(&self.ours),
            "regret_long_runs": regret(&self.long_runs),
            "rejecting_belief_refined": self.rejecting.iter().map(|row| points(row.2)).collect::<Vec<_>>(),
            "world_a": scenario(&self.scenarios[0]),
            "world_b": scenario(&self.scenarios[1]),
            "world_c": scenario(&self.scenarios[2]),
            "world_a_wrong_belief": self.wrong.iter().map(|row| points(row.refined)).collect::<Vec<_>>(),
        })
    }
}

fn tell_regret(seeds: u32, rows: &[two_axes::Row]) {
    let title = format!("regret, {seeds} seeds, ρ");
    println!("\n{title:<26}{:>10}{:>12}{:>12}{:>16}", "marginal", "joint", "refined", "refined, told");
    for row in rows {
        let [marginal, joint, refined, told] = [row.marginal, row.joint, row.refined, row.told].map(percent);
        println!("{:<26}{marginal:>10}{joint:>12}{refined:>12}{told:>16}", row.correlation);
    }
}

fn tell_scenarios(rows: &[three_axes::Row]) {
    let title = format!("three axes, {SEEDS_FEW} seeds");
    println!(
        "\n{title:<26}{:>10}{:>12}{:>12}{:>12}{:>9}",
        "marginal", "two axes", "three axes", "refined", "p_K"
    );
    for row in rows {
        let [marginal, two, three, refined] =
            [row.marginal, row.two_axes, row.three_axes, row.refined].map(percent);
        println!("{:<26}{marginal:>10}{two:>12}{three:>12}{refined:>12}{:>9.3}", row.name, row.hold_price);
    }
}

fn tell_belief(title: &str, rows: impl Iterator<Item = (String, f64, f64)>) {
    println!("\n{title:<26}{:>10}{:>12}", "fixed", "refined");
    for (name, fixed, refined) in rows {
        println!("{name:<26}{:>10}{:>12}", percent(fixed), percent(refined));
    }
}

fn percent(part: f64) -> String {
    format!("{:.2} %", part * 100.0)
}

/// Returns percent to two places, without a negative zero.
fn points(part: f64) -> f64 {
    (part * 10_000.0).round() / 100.0 + 0.0
}
