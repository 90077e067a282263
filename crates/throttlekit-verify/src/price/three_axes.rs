//! Three axes: requests that hold a slot for different times.

use throttlekit_core::price::{
    Bid, Budgets, Prices, Refiner, RefinerOptions, RequestKind, Solution, solve_fluid_lp,
};

use super::policy::{Policy, Refined, Stock, play};
use super::{Check, Mulberry, ensure};

const ASKS: u32 = 2_000;

/// A workload of one request per second for 2,000 seconds.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// The kinds of requests; the weights are their frequencies.
    pub kinds: [RequestKind; 2],
    rate: u64,
    cost: u64,
    slots: u32,
}

/// Prices win: two kinds that differ only in the time for which they hold a slot.
pub const HOG: Scenario = Scenario {
    name: "A: a hog",
    kinds: [kind(100.0, 10.0, 15.0, 1_800.0), kind(100.0, 10.0, 200.0, 200.0)],
    rate: 2_000,
    cost: 1_000_000_000,
    slots: 10,
};
/// Prices do no harm: slots for all requests.
pub const AMPLE: Scenario = Scenario {
    name: "B: slots for all",
    kinds: [kind(10.0, 1.0, 1.0, 1_000.0), kind(10.0, 5.0, 100.0, 1_000.0)],
    rate: 2_000,
    cost: 10_000_000,
    slots: 100_000,
};
/// Prices reach their limit: for one kind the optimum is to admit a part, and a price admits all or none.
pub const RATIONED: Scenario = Scenario {
    name: "C: a hog to ration",
    kinds: [kind(100.0, 2.0, 1.0, 1_000.0), kind(20.0, 6.0, 80.0, 1_000.0)],
    rate: 1_500,
    cost: 120_000,
    slots: 12,
};

const fn kind(cost: f64, value: f64, hold: f64, weight: f64) -> RequestKind {
    RequestKind { weight, value, cost, hold }
}

/// The loss in a scenario, as a part of the fluid optimum, on average over seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The name of the scenario.
    pub name: &'static str,
    /// With the limits alone.
    pub marginal: f64,
    /// With prices of rate and cost only.
    pub two_axes: f64,
    /// With all three.
    pub three_axes: f64,
    /// With all three, repriced every hundred requests, with the remaining budgets.
    pub refined: f64,
    /// The price of hold.
    pub hold_price: f64,
}

/// The loss in the hog scenario with a wrong belief about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wrong {
    /// The belief.
    pub belief: &'static str,
    /// At the prices of the belief.
    pub fixed: f64,
    /// With repricing after every `sample` requests, with the remaining budgets.
    pub refined: f64,
}

/// Returns wrong beliefs about the hog scenario, with repricing after every `sample` requests.
pub fn wrong_beliefs(sample: usize, seeds: u32) -> Vec<Wrong> {
    let changed = |change: fn(RequestKind) -> RequestKind| HOG.kinds.map(change).to_vec();
    let beliefs = [
        ("mostly hogs", changed(|kind| RequestKind { weight: 2_000.0 - kind.weight, ..kind })),
        ("a tenth of the asks", changed(|kind| RequestKind { weight: kind.weight / 10.0, ..kind })),
        ("no holds", changed(|kind| RequestKind { hold: 0.0, ..kind })),
        ("a hundred times the value", changed(|kind| RequestKind { value: kind.value * 100.0, ..kind })),
    ];
    let row = |(belief, kinds): (&'static str, Vec<RequestKind>)| {
        let fixed = solve_fluid_lp(&kinds, &HOG.budgets()).expect("the belief is sound").duals;
        let refined = || Refined { refiner: HOG.refiner(&kinds, sample), told: true };
        Wrong { belief, fixed: HOG.regret(seeds, || fixed), refined: HOG.regret(seeds, refined) }
    };
    beliefs.into_iter().map(row).collect()
}

/// Checks that prices of hold win where they should, and do no harm elsewhere.
pub fn check_scenarios([hog, ample, rationed]: &[Row; 3]) -> Check {
    ensure(hog.two_axes > 0.5 && hog.three_axes <= 0.02 && hog.refined <= 0.02, || format!("{hog:?}"))?;
    let all_equal =
        ample.hold_price == 0.0 && ample.three_axes == ample.marginal && ample.refined == ample.marginal;
    ensure(all_equal, || format!("{ample:?}"))?;
    let no_worse = rationed.three_axes.max(rationed.refined) <= rationed.marginal + 0.01;
    ensure(no_worse, || format!("{rationed:?}"))
}

/// Checks that repricing overcomes a wrong belief.
pub fn check_recovery(rows: &[Wrong]) -> Check {
    let stuck = rows.iter().find(|row| row.fixed < 0.5 || row.refined > 0.05);
    ensure(stuck.is_none(), || format!("{stuck:?}"))
}

impl Scenario {
    /// Returns the regret of each policy over `seeds` seeds.
    pub fn row(&self, seeds: u32) -> Row {
        let solution = self.solution();
        let blind = Budgets { hold: None, ..self.budgets() };
        let two_axes = solve_fluid_lp(&self.kinds, &blind).expect("the scenario is valid").duals;
        Row {
            name: self.name,
            marginal: self.regret(seeds, || Prices::FREE),
            two_axes: self.regret(seeds, || two_axes),
            three_axes: self.regret(seeds, || solution.duals),
            refined: self.regret(seeds, || Refined { refiner: self.refiner(&self.kinds, 100), told: true }),
            hold_price: solution.duals.hold,
        }
    }

    /// Returns the mean loss of a policy.
    fn regret<P: Policy>(&self, seeds: u32, policy: impl Fn() -> P) -> f64 {
        let stock = Stock { rate: self.rate, cost: self.cost, slots: Some(self.slots as usize) };
        let earned = |seed| play(&mut policy(), &self.stream(seed), stock).value;
        1.0 - (0..seeds).map(earned).sum::<f64>() / (self.solution().objective * f64::from(seeds))
    }

    /// Returns a refiner that expects these kinds.
    fn refiner(&self, believed: &[RequestKind], sample: usize) -> Refiner {
        let options = RefinerOptions { sample, slots: Some(self.slots) };
        Refiner::new(believed, &self.budgets(), options).expect("the scenario is valid")
    }

    /// Returns the budgets.
    fn budgets(&self) -> Budgets {
        let hold = Some(f64::from(self.slots) * f64::from(ASKS));
        Budgets { rate: self.rate as f64, cost: self.cost as f64, hold }
    }

    /// Returns the fluid optimum.
    fn solution(&self) -> Solution {
        solve_fluid_lp(&self.kinds, &self.budgets()).expect("the scenario is valid")
    }

    fn stream(&self, seed: u32) -> Vec<Bid> {
        let mut dice = Mulberry::published(0.0, seed);
        let [first, second] = self.kinds;
        let share = first.weight / (first.weight + second.weight);
        let bid = |kind: RequestKind| Bid::new(kind.value, kind.cost as u64).hold(kind.hold);
        (0..ASKS).map(|_| bid(if dice.unit() < share { first } else { second })).collect()
    }
}
