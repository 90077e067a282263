//! Two axes, two kinds of requests, and runs of one kind: regret by correlation.

use throttlekit_core::price::{Bid, Budgets, Prices, Refiner, RefinerOptions, RequestKind, solve_fluid_lp};

use super::policy::{Policy, Refined, Stock, play};
use super::{Check, Mulberry, ensure};

/// The correlations of the published table.
pub const CORRELATIONS: [f64; 5] = [-1.0, -0.5, 0.0, 0.5, 1.0];
/// Correlations in between, where runs of one kind get long.
pub const LONG_RUNS: [f64; 4] = [0.8, 0.9, 0.95, 0.99];
/// The losses of marginal and joint admission with the published seeds.
pub const PUBLISHED: [(f64, f64); 5] =
    [(0.4, 0.0), (0.4, 0.007), (0.405, 0.0101), (0.415, 0.0116), (0.325, 0.65)];
/// The number of published seeds.
pub const PUBLISHED_SEEDS: u32 = 20;

const ASKS: usize = 1_000;
const STOCK: Stock = Stock { rate: 1_000, cost: 50_000, slots: None };
const SMALL: Bid = Bid { value: 1.0, cost: 100, hold: None };
const LARGE: Bid = Bid { value: 50.0, cost: 10_000, hold: None };
/// The earnings of the fluid optimum.
const OPTIMUM: f64 = 500.0;

/// The loss at one correlation, on average over seeds; 1 is everything.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The correlation of one request with the next.
    pub correlation: f64,
    /// With the limits alone.
    pub marginal: f64,
    /// With the prices of the long-run workload.
    pub joint: f64,
    /// With the same at the start, repriced every hundred requests.
    pub refined: f64,
    /// The same, with the remaining budgets.
    pub told: f64,
}

/// Returns regret by correlation, over the published streams of this many seeds: the rows of a table or a
/// plot.
pub fn regret_by_correlation(correlations: &[f64], seeds: u32) -> Vec<Row> {
    let (kinds, budgets) = workload();
    let joint = solve_fluid_lp(&kinds, &budgets).expect("the workload is sound").duals;
    let refined = |told| Refined { refiner: refiner(&kinds, RefinerOptions::default().sample), told };
    let row = |correlation: &f64| Row {
        correlation: *correlation,
        marginal: regret(seeds, *correlation, || Prices::FREE),
        joint: regret(seeds, *correlation, || joint),
        refined: regret(seeds, *correlation, || refined(false)),
        told: regret(seeds, *correlation, || refined(true)),
    };
    correlations.iter().map(row).collect()
}

/// Returns the loss at each correlation if everything is believed to have twenty times its value, so that
/// nothing meets its price: at those prices, and with repricing after every `sample` requests.
pub fn regret_of_a_wrong_belief(sample: usize, seeds: u32) -> Vec<(f64, f64, f64)> {
    let (kinds, budgets) = workload();
    let believed = kinds.map(|kind| RequestKind { value: kind.value * 20.0, ..kind });
    let fixed = solve_fluid_lp(&believed, &budgets).expect("the workload is sound").duals;
    let refined = || Refined { refiner: refiner(&believed, sample), told: true };
    let row = |rho| (rho, regret(seeds, rho, || fixed), regret(seeds, rho, refined));
    CORRELATIONS.map(row).into()
}

/// Checks that the rows over the published seeds are the published ones, to a tenth of a point.
pub fn check_published(rows: &[Row]) -> Check {
    for (row, (marginal, joint)) in rows.iter().zip(PUBLISHED) {
        let same = (row.marginal - marginal).abs() <= 0.001 && (row.joint - joint).abs() <= 0.001;
        ensure(same, || format!("{row:?} is not the published {marginal}, {joint}"))?;
    }
    ensure(rows.len() == PUBLISHED.len(), || "not every correlation".into())
}

/// Checks that repricing loses at most 5 points on the limits alone where one kind comes forever, and
/// elsewhere at most one point on constant prices.
pub fn check_refined(rows: &[Row]) -> Check {
    for row in rows {
        let bar = if row.correlation == 1.0 { row.marginal + 0.05 } else { row.joint + 0.01 };
        ensure(row.refined <= bar && row.told <= bar, || format!("{row:?} is above {bar}"))?;
    }
    Ok(())
}

/// Returns the mean loss of a policy.
fn regret<P: Policy>(seeds: u32, correlation: f64, policy: impl Fn() -> P) -> f64 {
    let earned = |seed| play(&mut policy(), &stream(correlation, seed), STOCK).value;
    1.0 - (0..seeds).map(earned).sum::<f64>() / (OPTIMUM * f64::from(seeds))
}

/// Returns the actual workload: both kinds equally often.
fn workload() -> ([RequestKind; 2], Budgets) {
    let kind = |bid: Bid| RequestKind { weight: 500.0, value: bid.value, cost: bid.cost as f64, hold: 0.0 };
    ([SMALL, LARGE].map(kind), Budgets { rate: 1_000.0, cost: 50_000.0, hold: None })
}

/// Returns a refiner for the budgets of the experiment that expects these kinds.
fn refiner(kinds: &[RequestKind], sample: usize) -> Refiner {
    Refiner::new(kinds, &workload().1, RefinerOptions { sample, slots: None }).expect("the belief is sound")
}

/// Returns the published stream: the first kind by a fair coin, then each request of the same kind as the
/// last with probability (1 + ρ)/2. One draw for each request.
fn stream(correlation: f64, seed: u32) -> Vec<Bid> {
    let mut dice = Mulberry::published(correlation, seed);
    let stay = f64::midpoint(1.0, correlation);
    let mut small = dice.unit() < 0.5;
    let next = |at| {
        small = if at == 0 || dice.unit() < stay { small } else { !small };
        if small { SMALL } else { LARGE }
    };
    (0..ASKS).map(next).collect()
}
