//! Two axes, two kinds of asks, and how long one kind keeps coming: regret by correlation.

use throttlekit_core::price::{
    Bid, Budgets, Kind, PriceError, Prices, Refiner, RefinerOptions, solve_fluid_lp,
};

use super::Mulberry;
use super::policy::{Policy, Refined, Till, play};

/// The correlations of the table.
pub const CORRELATIONS: [f64; 5] = [-1.0, -0.5, 0.0, 0.5, 1.0];
/// What marginal and joint admission lost with the published seeds, in hundredths of a percent of the optimum.
pub const PUBLISHED: [(u32, u32); 5] = [(4_000, 0), (4_000, 70), (4_050, 101), (4_150, 116), (3_250, 6_500)];
/// How many seeds were published.
pub const PUBLISHED_SEEDS: u32 = 20;

const ASKS: usize = 1_000;
const TILL: Till = Till { rate: 1_000, cost: 50_000, slots: None };
const SMALL: Bid = Bid { value: 1.0, cost: 100, hold: None };
const LARGE: Bid = Bid { value: 50.0, cost: 10_000, hold: None };
/// What the fluid optimum earns.
const OPTIMUM: f64 = 500.0;

/// What is lost of the optimum at one correlation, on average over seeds; 1 is everything.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Of one ask with the next.
    pub correlation: f64,
    /// By the limits alone.
    pub marginal: f64,
    /// With the prices of the workload as it is in the long run.
    pub joint: f64,
    /// With the same to begin with, looked at again every hundred asks.
    pub refined: f64,
    /// The same, told what is left.
    pub told: f64,
}

/// The table of regret by correlation, over the published streams of so many seeds.
pub fn regret_by_correlation(seeds: u32) -> Vec<Row> {
    let (kinds, budgets) = workload();
    let joint = solve_fluid_lp(&kinds, &budgets).expect("the workload is sound").duals;
    let fresh = || refiner(&kinds, RefinerOptions::default()).expect("the workload is sound");
    let row = |correlation| Row {
        correlation,
        marginal: regret(seeds, correlation, || Prices::FREE),
        joint: regret(seeds, correlation, || joint),
        refined: regret(seeds, correlation, || Refined { refiner: fresh(), told: false }),
        told: regret(seeds, correlation, || Refined { refiner: fresh(), told: true }),
    };
    CORRELATIONS.map(row).into()
}

/// What a policy loses on average.
pub fn regret<P: Policy>(seeds: u32, correlation: f64, policy: impl Fn() -> P) -> f64 {
    let earned = |seed| play(&mut policy(), &stream(correlation, seed), TILL).value;
    1.0 - (0..seeds).map(earned).sum::<f64>() / (OPTIMUM * f64::from(seeds))
}

/// The workload as it is: both kinds equally often.
pub fn workload() -> ([Kind; 2], Budgets) {
    let kind = |bid: Bid| Kind { weight: 500.0, value: bid.value, cost: bid.cost as f64, hold: 0.0 };
    ([SMALL, LARGE].map(kind), Budgets { rate: 1_000.0, cost: 50_000.0, hold: None })
}

/// A refiner for the budgets of the experiment that believes in these kinds.
pub fn refiner(kinds: &[Kind], options: RefinerOptions) -> Result<Refiner, PriceError> {
    Refiner::new(kinds, &workload().1, options)
}

/// The published stream: the first kind by a fair coin, then each ask of the same kind as the last with probability
/// (1 + ρ)/2. One draw for each ask.
pub fn stream(correlation: f64, seed: u32) -> Vec<Bid> {
    let mut dice = Mulberry::published(correlation, seed);
    let stay = f64::midpoint(1.0, correlation);
    let mut small = dice.unit() < 0.5;
    let next = |at| {
        small = if at == 0 || dice.unit() < stay { small } else { !small };
        if small { SMALL } else { LARGE }
    };
    (0..ASKS).map(next).collect()
}
