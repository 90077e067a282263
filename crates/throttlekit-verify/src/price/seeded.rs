//! Refiners with a seeded bug.

use throttlekit_core::Timestamp;
use throttlekit_core::price::{Bid, Left, Prices, RequestKind, Review};

use super::policy::Reprices;
use super::refine::{Belief, Memory};

throttlekit_conformance::bugs! {
    /// A bug of a [`SeededRefiner`].
    pub enum RefinerBug {
        AdoptsOnEqual: "Prices that earn the same are adopted.",
        AdoptsAlways: "The first prices that differ are adopted, whatever they earn.",
        FreezesAfterOne: "No prices are adopted after the first.",
        NeverAdopts: "No prices are ever adopted.",
        SeenHoldIgnored: "The holding times of requests are taken to be zero.",
        SlotsIgnored: "The number of slots is taken to be unlimited.",
        BudgetPerAskWrong: "The prior weights count twice, so that each request has half of its budget.",
        LeftIgnored: "What is left of the budgets is ignored.",
        NeverWaits: "Prices are adopted where waiting earns at least as much.",
        PriorWeightIgnored: "All kinds of requests weigh the same in the prior.",
    }
}

/// A refiner with one bug: the correct behavior from the checker's own state, with one deviation.
#[derive(Clone, Debug)]
pub struct SeededRefiner {
    bug: RefinerBug,
    memory: Memory,
    prices: Prices,
    sample: usize,
    fresh: usize,
    frozen: bool,
}

impl SeededRefiner {
    /// Creates a refiner with this bug.
    pub fn new(bug: RefinerBug, belief: &Belief) -> Self {
        let mut belief = belief.clone();
        match bug {
            RefinerBug::BudgetPerAskWrong => belief.kinds.iter_mut().for_each(|kind| kind.weight *= 2.0),
            RefinerBug::PriorWeightIgnored => belief.kinds.iter_mut().for_each(|kind| kind.weight = 1.0),
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

impl Reprices for SeededRefiner {
    fn prices(&self) -> Prices {
        self.prices
    }

    fn observe(&mut self, bid: &Bid, now: Timestamp) -> bool {
        let hold = if self.bug == RefinerBug::SeenHoldIgnored { 0.0 } else { bid.hold.unwrap_or(0.0) };
        let kind = RequestKind { weight: 1.0, value: bid.value, cost: bid.cost as f64, hold };
        self.memory.observe(kind, now.since(Timestamp::EPOCH).as_secs_f64());
        self.fresh += 1;
        self.fresh == self.sample
    }

    fn reprice(&mut self, left: Option<Left>) -> Review {
        self.fresh = 0;
        let left = left.filter(|_| self.bug != RefinerBug::LeftIgnored);
        let Some(next) = self.wants(left).filter(|_| !self.frozen) else { return Review::Keep };
        self.frozen = self.bug == RefinerBug::FreezesAfterOne;
        self.prices = next;
        Review::Adopt
    }
}
