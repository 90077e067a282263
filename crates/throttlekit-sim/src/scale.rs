//! The cost of leasing, and the units it strands, as clusters grow: calls to the store per decision, and the
//! part of the limit that callers got.
//!
//! The network is ideal here: a request that must wait is answered at once. The arithmetic of the machine is
//! measured by running it: production holders, local leases and accounts, window after window.

use core::time::Duration;

use throttlekit_core::lease::{
    Account, Authority, Batch, Holder, HolderOptions, HolderRequest, LocalLease, Margin, PlainWord,
};
use throttlekit_core::lease::{HolderStep, Sizing, Spend, Term, Want};
use throttlekit_core::rate::{Limit, LimitError};
use throttlekit_core::{Cost, Timestamp};

use crate::dice::Dice;

const WINDOW: Duration = Duration::from_secs(1);
/// The number of windows that are run. The first ones, in which sizers adapt, are not counted.
const WINDOWS: u64 = 12;
const WARM_UP: u64 = 4;

/// The size of a grant when less than a batch is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lending {
    /// A whole batch or nothing.
    Whole,
    /// Whatever is left.
    Partial,
    /// One part in `n` of what is left, but at least what is needed now.
    Tapered(u64),
}

/// A cluster and its callers.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The number of nodes.
    pub nodes: usize,
    /// The number of keys, each with its own limit.
    pub keys: usize,
    /// Units per key and window.
    pub limit: Cost,
    /// The demand in a window, in percent of all limits together.
    pub demand_percent: u64,
    /// The size of grants.
    pub lending: Lending,
}

/// The measured costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Toll {
    /// Requests.
    pub asks: u64,
    /// Admitted units.
    pub admitted: u64,
    /// The maximum that could have been admitted: for each key its demand or its limit.
    pub could: u64,
    /// Calls to the store.
    pub calls: u64,
}

impl Toll {
    /// Returns the admitted part of the maximum.
    pub fn utilisation(&self) -> f64 {
        self.admitted as f64 / self.could.max(1) as f64
    }

    /// Returns the calls to the store per decision.
    pub fn calls_per_decision(&self) -> f64 {
        self.calls as f64 / self.asks.max(1) as f64
    }
}

/// Runs a cluster whose demand follows a Zipf distribution over nodes: the second node receives half as many
/// requests as the first.
pub fn measure(shape: &Shape, seed: u64, batch: &Batch) -> Result<Toll, LimitError> {
    let limit = Limit::fixed_window(shape.limit, WINDOW)?;
    let authority = Authority::new(limit, Term::Window)?;
    let mut fleet = Fleet::new(shape, authority, batch);
    let (mut dice, nodes, keys) = (Dice::new(seed), Zipf::new(shape.nodes), Zipf::new(shape.keys));
    let asks = shape.limit * shape.keys as u64 * shape.demand_percent / 100;
    let mut toll = Toll::default();
    for window in 0..WINDOWS {
        if window == WARM_UP {
            toll = Toll::default();
        }
        let mut demand = vec![0; shape.keys];
        for nth in 0..asks {
            let (node, key) = (nodes.pick(&mut dice), keys.pick(&mut dice));
            let within = (WINDOW.as_nanos() as u64 - 1) * nth / asks;
            demand[key] += 1;
            fleet.ask(key * shape.nodes + node, key, at(window) + Duration::from_nanos(within), &mut toll);
        }
        toll.asks += asks;
        toll.could += demand.iter().map(|&asked| shape.limit.min(asked)).sum::<u64>();
    }
    Ok(toll)
}

fn at(window: u64) -> Timestamp {
    // Not window zero, where a holder's epoch begins.
    Timestamp::EPOCH + WINDOW * (window as u32 + 1)
}

struct Fleet {
    authority: Authority,
    accounts: Vec<Account>,
    /// By key, then by node.
    lessees: Vec<Lessee>,
    lending: Lending,
}

/// One key on one node.
struct Lessee {
    holder: Holder,
    local_lease: LocalLease<PlainWord>,
    sizing: Sizing,
}

impl Fleet {
    fn new(shape: &Shape, authority: Authority, batch: &Batch) -> Self {
        let share = if let Lending::Tapered(share) = shape.lending { share } else { 1 };
        let plan = HolderOptions {
            term: Term::Window,
            margin: Margin::NONE,
            lease_max: shape.limit,
            share,
            denial_max: Duration::MAX,
        };
        let lessee = || Lessee {
            holder: Holder::new(plan),
            local_lease: LocalLease::new(),
            sizing: Sizing::new(batch.clone(), WINDOW),
        };
        Self {
            authority,
            accounts: vec![Account::default(); shape.keys],
            lessees: (0..shape.keys * shape.nodes).map(|_| lessee()).collect(),
            lending: shape.lending,
        }
    }

    fn ask(&mut self, lessee: usize, key: usize, now: Timestamp, toll: &mut Toll) {
        let lessee = &mut self.lessees[lessee];
        if let Spend::Spent { .. } = lessee.local_lease.spend(1, || now) {
            lessee.serve(now, toll);
            return;
        }
        // At most twice: the units of a reply are there for the waiting caller.
        while let HolderStep::Wait = lessee.turn(now, toll) {
            let batch = lessee.sizing.batch(now);
            let Some(request) = lessee.holder.poll_request(&lessee.local_lease, 0, batch, now) else {
                return;
            };
            let want = self.lending.want(request);
            let loan = self.accounts[key].lend(&self.authority, want, now);
            toll.calls += 1;
            lessee.holder.handle_reply(&lessee.local_lease, 0, loan, now);
        }
    }
}

impl Lending {
    fn want(self, request: HolderRequest) -> Want {
        match self {
            Self::Whole => Want { least: request.want.wants, ..request.want },
            Self::Partial | Self::Tapered(_) => request.want,
        }
    }
}

impl Lessee {
    fn turn(&mut self, now: Timestamp, toll: &mut Toll) -> HolderStep {
        let turn = self.holder.handle_ask(&self.local_lease, 1, || now);
        if let HolderStep::Spent { .. } = turn {
            self.serve(now, toll);
        }
        turn
    }

    fn serve(&mut self, now: Timestamp, toll: &mut Toll) {
        self.sizing.served(1, now);
        toll.admitted += 1;
    }
}

/// Picks the first `n` times as often as the `n`th. Weights are whole numbers.
struct Zipf(Vec<u64>);

impl Zipf {
    fn new(count: usize) -> Self {
        let weights = (1..=count as u64).scan(0, |sum, nth| {
            *sum += 1_000_000_000 / nth;
            Some(*sum)
        });
        Self(weights.collect())
    }

    fn pick(&self, dice: &mut Dice) -> usize {
        let drawn = dice.below(*self.0.last().expect("at least one"));
        self.0.partition_point(|&sum| sum <= drawn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape =
        Shape { nodes: 8, keys: 1, limit: 1_000, demand_percent: 120, lending: Lending::Partial };

    #[test]
    fn a_batch_of_one_strands_nothing_and_calls_the_store_every_time() {
        let toll = measure(&SHAPE, 1, &Batch::Fixed(1)).unwrap();
        assert_eq!(toll.admitted, toll.could);
        assert!(toll.calls >= toll.admitted);
    }

    #[test]
    fn sizing_by_demand_strands_less_than_a_fixed_batch_and_calls_the_store_seldom() {
        let fixed = measure(&SHAPE, 1, &Batch::Fixed(200)).unwrap();
        let tapered = Shape { lending: Lending::Tapered(4), ..SHAPE };
        let sized = measure(&tapered, 1, &Batch::learned()).unwrap();
        assert!(fixed.utilisation() < 0.9, "{fixed:?}");
        assert!(sized.utilisation() > 0.95 && sized.calls_per_decision() < 0.2, "{sized:?}");
    }
}
