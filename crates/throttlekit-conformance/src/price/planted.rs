//! Refiners with a deliberate bug.

use throttlekit_core::Timestamp;
use throttlekit_core::price::{Bid, Kind, Left, Prices, Turn};

use super::policy::Reprices;
use super::refine::{Belief, Memory};

/// What is wrong with a [`PlantedRefiner`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum RefinerBug {
    AdoptsOnEqual,
    AdoptsAlways,
    FreezesAfterOne,
    NeverAdopts,
    HoldIgnored,
    SlotsIgnored,
    BudgetPerAskWrong,
    LeftIgnored,
    NeverWaits,
    WeightIgnored,
}

/// Every bug of a refiner.
pub const REFINER_BUGS: [(&str, RefinerBug); 10] = [
    ("adopts_on_equal", RefinerBug::AdoptsOnEqual),
    ("adopts_always", RefinerBug::AdoptsAlways),
    ("freezes_after_one", RefinerBug::FreezesAfterOne),
    ("never_adopts", RefinerBug::NeverAdopts),
    ("seen_hold_ignored", RefinerBug::HoldIgnored),
    ("slots_ignored", RefinerBug::SlotsIgnored),
    ("budget_per_ask_wrong", RefinerBug::BudgetPerAskWrong),
    ("left_ignored", RefinerBug::LeftIgnored),
    ("never_waits", RefinerBug::NeverWaits),
    ("prior_weight_ignored", RefinerBug::WeightIgnored),
];

/// A refiner with one bug: what a refiner should do, by the checker's own memory, and then not quite.
#[derive(Clone, Debug)]
pub struct PlantedRefiner {
    bug: RefinerBug,
    memory: Memory,
    prices: Prices,
    sample: usize,
    fresh: usize,
    frozen: bool,
}

impl PlantedRefiner {
    /// With this bug.
    pub fn new(bug: RefinerBug, belief: &Belief) -> Self {
        let mut belief = belief.clone();
        match bug {
            RefinerBug::BudgetPerAskWrong => belief.kinds.iter_mut().for_each(|kind| kind.weight *= 2.0),
            RefinerBug::WeightIgnored => belief.kinds.iter_mut().for_each(|kind| kind.weight = 1.0),
            RefinerBug::SlotsIgnored => belief.options.slots = belief.options.slots.map(|_| u32::MAX),
            _ => {}
        }
        let memory = Memory::new(&belief);
        let prices = memory.prior;
        Self { bug, memory, prices, sample: belief.options.sample, fresh: 0, frozen: false }
    }

    fn wants(&self, left: Option<Left>) -> Option<Prices> {
        let told = left.unwrap_or_else(|| self.memory.whole());
        let earned = |prices: Prices| self.memory.earned(&told, |_| prices);
        let mut best = (self.prices, earned(self.prices));
        for prices in self.memory.candidates(&told) {
            let more = match self.bug {
                RefinerBug::AdoptsOnEqual => prices != best.0 && earned(prices) >= best.1,
                RefinerBug::AdoptsAlways => prices != self.prices,
                RefinerBug::NeverAdopts => false,
                _ => earned(prices) > best.1,
            };
            if more {
                best = (prices, earned(prices));
            }
            if self.bug == RefinerBug::AdoptsAlways {
                break;
            }
        }
        let may_wait = left.is_some() && self.bug != RefinerBug::NeverWaits;
        let waits = may_wait && self.memory.waiting(&told, self.prices, best.0) >= best.1;
        (best.0 != self.prices && !waits).then_some(best.0)
    }
}

impl Reprices for PlantedRefiner {
    fn prices(&self) -> Prices {
        self.prices
    }

    fn observe(&mut self, bid: &Bid, now: Timestamp) -> bool {
        let hold = if self.bug == RefinerBug::HoldIgnored { 0.0 } else { bid.hold.unwrap_or(0.0) };
        let kind = Kind { weight: 1.0, value: bid.value, cost: bid.cost as f64, hold };
        self.memory.observe(kind, now.since(Timestamp::EPOCH).as_secs_f64());
        self.fresh += 1;
        self.fresh == self.sample
    }

    fn reprice(&mut self, left: Option<Left>) -> Turn {
        self.fresh = 0;
        let left = left.filter(|_| self.bug != RefinerBug::LeftIgnored);
        let Some(next) = self.wants(left).filter(|_| !self.frozen) else { return Turn::Keep };
        self.frozen = self.bug == RefinerBug::FreezesAfterOne;
        self.prices = next;
        Turn::Adopt
    }
}
