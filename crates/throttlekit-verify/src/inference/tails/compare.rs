//! Our rule and published ones, compared with the best fixed ceiling of each scenario.

use throttlekit_core::concurrency::{Ceiling, Estimator};

use super::super::HELD_OUT;
use super::super::invariants::{LEAST, MOST, Make};
use super::peers::{Fixed, PEERS};
use super::{Outcome, Scenario, Shape, run};
use throttlekit_conformance::check::{Check, ensure};

/// The minimum goodput as a part of that of the best fixed ceiling: below saturation, and at and above it.
pub const GOODPUT_BELOW: f64 = 0.95;
/// See [`GOODPUT_BELOW`].
pub const GOODPUT_FROM: f64 = 0.9;
/// The same for the worst seed, relative to the same seed of the best fixed ceiling.
pub const WORST_SEED: f64 = 0.85;
/// The maximum 99th percentile of latency as a multiple of that of the best fixed ceiling, at a load of 1.5.
pub const P99_MAX: f64 = 2.0;

/// The fixed ceilings that are tried, in tenths of the servers.
const TENTHS: [u32; 16] = [8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 25, 30, 40];
/// The number of seeds on which all of them are tried. The best few are tried on every seed.
pub const SEARCH_SEEDS: u64 = 10;
const FINALISTS: usize = 3;

/// The size of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct TailSize {
    /// Seeds of each scenario.
    pub seeds: u64,
    /// Arrivals of warm-up, and additional ones for each server.
    pub warm_up: (u32, u32),
    /// Arrivals that are measured.
    pub judged: u32,
}

impl TailSize {
    /// Returns a scenario of this size.
    pub fn scenario(self, shape: Shape, load: f64, servers: u32) -> Scenario {
        let (warm_up, per_server) = self.warm_up;
        Scenario::new(shape, load, servers, (warm_up + per_server * servers, self.judged))
    }
}

/// The result of one rule in a scenario, relative to the best fixed ceiling.
#[derive(Clone, Debug)]
pub struct Result {
    /// The name of the rule.
    pub name: &'static str,
    /// Mean goodput as a part of the best.
    pub goodput: f64,
    /// The minimum of that over the seeds, each relative to the same seed.
    pub worst: f64,
    /// The mean 99th percentile of latency as a multiple.
    pub p99: f64,
    /// The mean ceiling, in servers.
    pub limit: f64,
}

/// A scenario, its best fixed ceiling, and the results of each rule: ours first.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The scenario.
    pub scenario: Scenario,
    /// The best fixed ceiling.
    pub best: u32,
    /// Its goodput per server and mean service time.
    pub goodput: f64,
    /// Its 99th percentile of latency.
    pub p99: f64,
    /// Ours, then the published rules.
    pub results: Vec<Result>,
}

/// Returns the production estimator, which starts at the minimum.
pub fn ours() -> Estimator {
    Estimator::new(Ceiling::between(LEAST, MOST))
}

/// Finds the best fixed ceiling, and runs the same seeds on the estimator that `make` builds and, if `peers`,
/// on every published rule.
pub fn compare(make: &impl Make, scenario: Scenario, seeds: u64, peers: bool) -> Compared {
    let (best, outcomes) = best_fixed(scenario, seeds);
    let mut compared = Compared {
        scenario,
        best,
        goodput: mean(&outcomes, |outcome| outcome.goodput),
        p99: mean(&outcomes, |outcome| outcome.p99),
        results: Vec::new(),
    };
    let play = |seed| run(&mut make(LEAST), scenario, seed);
    compared.results.push(beside("ours", &outcomes, scenario, play));
    for (name, peer) in PEERS.into_iter().filter(|_| peers) {
        compared.results.push(beside(name, &outcomes, scenario, |seed| peer(scenario, seed)));
    }
    compared
}

/// Returns the fixed ceiling with the highest mean goodput; of equals, the lowest.
fn best_fixed(scenario: Scenario, seeds: u64) -> (u32, Vec<Outcome>) {
    let play = |limit, seeds| {
        (0..seeds).map(|seed| run(&mut Fixed(limit), scenario, HELD_OUT + seed)).collect::<Vec<_>>()
    };
    let goodput = |outcomes: &[Outcome]| mean(outcomes, |outcome| outcome.goodput);
    let mut tried: Vec<u32> = TENTHS.map(|tenths| (scenario.servers * tenths + 5) / 10).into();
    tried.dedup();
    let mut tried: Vec<(f64, u32)> =
        tried.into_iter().map(|limit| (goodput(&play(limit, seeds.min(SEARCH_SEEDS))), limit)).collect();
    tried.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut finalists: Vec<_> = tried.into_iter().take(FINALISTS).map(|(_, limit)| limit).collect();
    finalists.sort_unstable();
    let played = finalists.into_iter().map(|limit| (limit, play(limit, seeds)));
    let better = |best: (u32, Vec<Outcome>), next: (u32, Vec<Outcome>)| {
        if goodput(&next.1) > goodput(&best.1) { next } else { best }
    };
    played.reduce(better).expect("a ceiling was tried")
}

fn beside(name: &'static str, best: &[Outcome], scenario: Scenario, play: impl Fn(u64) -> Outcome) -> Result {
    let played: Vec<Outcome> = (0..best.len() as u64).map(|seed| play(HELD_OUT + seed)).collect();
    let each = played.iter().zip(best).map(|(played, best)| played.goodput / best.goodput);
    let ratio = |of: fn(&Outcome) -> f64| mean(&played, of) / mean(best, of);
    Result {
        name,
        goodput: ratio(|outcome| outcome.goodput),
        worst: each.fold(f64::INFINITY, f64::min),
        p99: ratio(|outcome| outcome.p99),
        limit: mean(&played, |outcome| outcome.limit) / f64::from(scenario.servers),
    }
}

fn mean(outcomes: &[Outcome], of: impl Fn(&Outcome) -> f64) -> f64 {
    outcomes.iter().map(of).sum::<f64>() / outcomes.len() as f64
}

impl Result {
    /// Checks the thresholds of the guarantee at this load.
    pub fn check(&self, load: f64) -> Check {
        let least = if load < 1.0 { GOODPUT_BELOW } else { GOODPUT_FROM };
        ensure(self.goodput >= least, || format!("goodput {:.3} of the best, below {least}", self.goodput))?;
        ensure(self.worst >= WORST_SEED, || format!("goodput {:.3} in the worst seed", self.worst))?;
        let latency = load < 1.5 || self.p99 <= P99_MAX;
        ensure(latency, || format!("p99 {:.2} times that of the best", self.p99))
    }
}

impl Compared {
    /// Returns the violation of our rule, if any.
    pub fn violation(&self) -> Option<String> {
        let Scenario { shape, load, servers, .. } = self.scenario;
        let told =
            |counterexample| format!("{}, load {load}, {servers} servers: {counterexample}", shape.name());
        self.results[0].check(load).err().map(told)
    }
}
