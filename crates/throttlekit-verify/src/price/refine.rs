//! `bid-price`, the refiner: other prices are adopted only if they earn strictly more on past requests, again
//! and again, with slots as well as without.

use std::collections::VecDeque;

use throttlekit_core::Timestamp;
use throttlekit_core::price::{
    Bid, Budgets, Left, Prices, Refiner, RefinerOptions, RequestKind, Review, solve_fluid_lp,
};

use super::policy::Reprices;
use super::problem::unit;
use super::{Check, ensure};
use throttlekit_conformance::Dice;

/// As the refiner documents them.
const SAMPLES_KEPT: usize = 8;
const REPLAY_MAX: usize = 4_096;
const WAIT_SAMPLES: usize = 2;
const ABOVE: f64 = 1.0 + 1e-6;

/// The initial configuration of a refiner.
#[derive(Clone, Debug)]
pub struct Belief {
    /// The expected kinds of requests.
    pub kinds: Vec<RequestKind>,
    /// The budgets.
    pub budgets: Budgets,
    /// The options.
    pub options: RefinerOptions,
}

/// Creates a refiner under test.
pub type Make<'a> = &'a dyn Fn(&Belief) -> Box<dyn Reprices>;

/// Creates the refiner of the core.
pub fn real(belief: &Belief) -> Box<dyn Reprices> {
    Box::new(Refiner::new(&belief.kinds, &belief.budgets, belief.options).expect("a belief is sound"))
}

/// Runs a random stream on a refiner and checks every repricing. Returns the number of adoptions.
pub fn check_refiner(make: Make, seed: u64) -> Result<u64, String> {
    let mut dice = Dice::new(seed);
    let belief = Belief::roll(&mut dice);
    let mut refiner = make(&belief);
    let mut memory = Memory::new(&belief);
    let (mut comes, mut now, mut adopted) = (belief.kinds.clone(), 0u64, 0);
    for ask in 0..belief.options.sample * 30 {
        // The mix changes now and then, and often there is a run of one kind.
        if dice.once_in(belief.options.sample as u64 * 6) {
            comes = Belief::roll_kinds(&mut dice);
        }
        now += dice.below(4) * 500;
        let kind = if (ask / 40).is_multiple_of(2) { dice.pick(&comes) } else { comes[0] };
        let bid = Bid::new(kind.value, kind.cost as u64).hold(kind.hold);
        let due = refiner.observe(&bid, Timestamp::from_millis(now));
        memory.observe(kind, now as f64 / 1_000.0);
        let should = (ask + 1).is_multiple_of(belief.options.sample);
        ensure(due == should, || format!("seed {seed}: due after {} asks is {due}", ask + 1))?;
        if due {
            let left = dice.once_in(2).then(|| roll_left(&mut dice, &belief));
            let before = refiner.prices();
            let turn = refiner.reprice(left);
            let after = refiner.prices();
            adopted += u64::from(turn == Review::Adopt);
            let told =
                |counterexample| format!("seed {seed}, ask {ask}, {before:?} to {after:?}: {counterexample}");
            ensure((turn == Review::Keep) == (before == after), || told(format!("{turn:?}")))?;
            memory.check(left, before, after).map_err(told)?;
        }
    }
    Ok(adopted)
}

impl Belief {
    pub(crate) fn roll(dice: &mut Dice) -> Self {
        let kinds = Self::roll_kinds(dice);
        let slots = dice.once_in(2).then(|| dice.between(1, 8) as u32);
        let asks: f64 = kinds.iter().map(|kind| kind.weight).sum();
        let part = |dice: &mut Dice| 0.05 + unit(dice);
        let budgets = Budgets {
            rate: (asks * part(dice)).ceil(),
            cost: (asks * 20.0 * part(dice)).ceil(),
            hold: slots.map(|slots| f64::from(slots) * asks),
        };
        let sample = dice.between(5, 40) as usize;
        Self { kinds, budgets, options: RefinerOptions { sample, slots } }
    }

    fn roll_kinds(dice: &mut Dice) -> Vec<RequestKind> {
        let mut kind = || RequestKind {
            weight: dice.between(1, 300) as f64,
            value: dice.any_size(200) as f64,
            cost: dice.any_size(100) as f64,
            hold: dice.any_size(30) as f64,
        };
        (0..3).map(|_| kind()).collect()
    }
}

fn roll_left(dice: &mut Dice, belief: &Belief) -> Left {
    let mut part = |whole: f64| (whole * unit(dice)).floor();
    Left { asks: 1.0 + part(600.0), rate: part(belief.budgets.rate), cost: part(belief.budgets.cost) }
}

/// The state that a refiner must keep, kept by the checker.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    pub(super) prior: Prices,
    whole: Left,
    options: RefinerOptions,
    seen: VecDeque<(RequestKind, f64)>,
}

impl Memory {
    pub(super) fn new(belief: &Belief) -> Self {
        let Budgets { rate, cost, .. } = belief.budgets;
        let asks = belief.kinds.iter().map(|kind| kind.weight).sum();
        let prior = solve_fluid_lp(&belief.kinds, &belief.budgets).expect("a belief is sound").duals;
        Self { prior, whole: Left { asks, rate, cost }, options: belief.options, seen: VecDeque::new() }
    }

    /// Returns the initial budgets and requests.
    pub(super) fn whole(&self) -> Left {
        self.whole
    }

    pub(super) fn observe(&mut self, kind: RequestKind, at: f64) {
        self.seen.push_back((RequestKind { weight: 1.0, ..kind }, at));
        if self.seen.len() > SAMPLES_KEPT * self.options.sample {
            self.seen.pop_front();
        }
    }

    /// Checks that the change, or its absence, is what the replay requires.
    fn check(&self, left: Option<Left>, before: Prices, after: Prices) -> Check {
        let told = left.unwrap_or(self.whole);
        let [old, new] = [before, after].map(|prices| self.earned(&told, |_| prices));
        ensure(after == before || new > old, || format!("earns {new}, not more than {old}"))?;
        let most = self
            .candidates(&told)
            .into_iter()
            .map(|prices| self.earned(&told, |_| prices))
            .fold(old, f64::max);
        if after != before {
            let in_time = left.is_none() || self.waiting(&told, before, after) < new;
            ensure(in_time, || format!("does not wait, though as much as {new} is to be had later"))?;
            return ensure(new == most, || format!("earns {new} where {most} is to be had"));
        }
        let better = |prices: &Prices| self.earned(&told, |_| *prices) == most;
        let next = self.candidates(&told).into_iter().find(better);
        let waits = left.is_some() && next.is_some_and(|next| self.waiting(&told, before, next) >= most);
        ensure(most == old || waits, || format!("stays at {old} where {most} is to be had"))
    }

    pub(super) fn candidates(&self, left: &Left) -> Vec<Prices> {
        let mut kinds: Vec<RequestKind> = Vec::new();
        for (next, _) in &self.seen {
            let same = |kind: &&mut RequestKind| RequestKind { weight: 1.0, ..**kind } == *next;
            match kinds.iter_mut().find(same) {
                Some(kind) => kind.weight += 1.0,
                None => kinds.push(*next),
            }
        }
        let part = self.seen.len() as f64 / left.asks;
        let hold = self.options.slots.map(|slots| f64::from(slots) * self.length());
        let budgets = Budgets { rate: left.rate * part, cost: left.cost * part, hold };
        let solved = solve_fluid_lp(&kinds, &budgets).expect("what was seen is sound").duals;
        let Prices { rate, cost, hold } = solved;
        let above = Prices { rate: rate * ABOVE, cost: cost * ABOVE, hold: hold * ABOVE };
        vec![solved, above, self.prior, Prices::FREE]
    }

    /// Returns the earnings at these prices when all past requests repeat until the budgets end.
    pub(super) fn earned(&self, left: &Left, prices: impl Fn(usize) -> Prices) -> f64 {
        let whole = self.replayed(left);
        let part = whole as f64 / left.asks;
        let (mut rate, mut cost, mut earned) = (left.rate * part, left.cost * part, 0.0);
        let mut busy: Vec<f64> = Vec::new();
        for ask in 0..whole {
            let (kind, at) = self.seen[ask % self.seen.len()];
            let now = at + (ask / self.seen.len()) as f64 * self.length();
            let prices = prices(ask);
            busy.retain(|end| (*end * 1e9) as u64 > (now * 1e9) as u64);
            let slot = self.options.slots.is_none_or(|slots| busy.len() < slots as usize);
            let clears = kind.value >= prices.rate + prices.cost * kind.cost + prices.hold * kind.hold;
            if clears && slot && rate >= 1.0 && cost >= kind.cost {
                rate -= 1.0;
                cost -= kind.cost;
                earned += kind.value;
                busy.extend((kind.hold > 0.0 && self.options.slots.is_some()).then_some(now + kind.hold));
            }
        }
        earned
    }

    /// Returns the earnings of changing two samples later.
    pub(super) fn waiting(&self, left: &Left, before: Prices, next: Prices) -> f64 {
        let stretch = (self.replayed(left) as f64 / left.asks).max(1.0);
        let wait = (WAIT_SAMPLES * self.options.sample) as f64 * stretch;
        self.earned(left, |ask| if (ask as f64) < wait { before } else { next })
    }

    fn replayed(&self, left: &Left) -> usize {
        (left.asks.min(REPLAY_MAX as f64) as usize / self.seen.len()).max(1) * self.seen.len()
    }

    fn length(&self) -> f64 {
        let gaps = (self.seen.len() - 1).max(1) as f64;
        (self.seen[self.seen.len() - 1].1 - self.seen[0].1) * (self.seen.len() as f64 / gaps)
    }
}
