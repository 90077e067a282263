//! `bid-price`, the policy: it only removes admits.
//!
//! For any prices, and any changes of a refiner: what passes stays within the limits, a request that the
//! price denies leaves every limit unchanged, and one that the limits deny is denied.

use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::price::{Bid, Prices};
use throttlekit_core::rate::{Limit, Rule, State};

use super::refine::{Belief, real};
use super::{Check, ensure};
use throttlekit_conformance::Dice;

const WINDOW_MS: u64 = 1_000;

/// Decides a request by prices and limits, in some order.
pub type Admission = fn(&Prices, &Bid, &mut Limits, Timestamp) -> bool;

/// A limit of requests and one of cost, and their states.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    limits: [Limit; 2],
    states: [State; 2],
}

impl Limits {
    fn new(asks: u64, cost: u64) -> Self {
        let window =
            |units| Limit::fixed_window(units, Duration::from_millis(WINDOW_MS)).expect("a sound window");
        Self { limits: [window(asks), window(cost)], states: [State::default(), State::default()] }
    }

    /// Returns `true` if both would admit it.
    pub fn allow(&self, bid: &Bid, now: Timestamp) -> bool {
        let both = self.limits.iter().zip(&self.states).zip([1, bid.cost]);
        both.fold(true, |all, ((limit, state), cost)| all && limit.decide(state, cost, now).allowed)
    }

    /// Charges both, if both allow.
    pub fn admit(&mut self, bid: &Bid, now: Timestamp) -> bool {
        let allowed = self.allow(bid, now);
        if allowed {
            let both = self.limits.iter().zip(&mut self.states).zip([1, bid.cost]);
            both.for_each(|((limit, state), cost)| limit.charge(state, cost, now));
        }
        allowed
    }
}

/// Decides by the price first, then by the limits.
pub fn price_then_limits(prices: &Prices, bid: &Bid, limits: &mut Limits, now: Timestamp) -> bool {
    prices.admits(bid) && limits.admit(bid, now)
}

/// Runs a random stream, with arbitrary prices or those that a refiner finds on it.
pub fn check_removes(admission: Admission, seed: u64) -> Check {
    let mut dice = Dice::new(seed);
    let (asks, cost) = (dice.between(1, 20), dice.between(1, 400));
    let mut limits = Limits::new(asks, cost);
    let mut refiner = real(&Belief::roll(&mut dice));
    let mut windows: Vec<(u64, u64, u64)> = Vec::new();
    let mut now_ms = 0;
    for _ in 0..200 {
        now_ms += dice.below(100);
        let now = Timestamp::from_millis(now_ms);
        let bid = Bid {
            value: any(&mut dice),
            cost: dice.any_size(100),
            hold: dice.once_in(2).then(|| any(&mut dice)),
        };
        if refiner.observe(&bid, now) {
            refiner.reprice(None);
        }
        let wild = Prices { rate: any(&mut dice), cost: any(&mut dice), hold: any(&mut dice) };
        let prices = dice.pick(&[refiner.prices(), wild, Prices::FREE]);
        let before = limits.clone();
        let admitted = admission(&prices, &bid, &mut limits, now);
        let counterexample = || format!("seed {seed}: {bid:?} at {prices:?}, admitted: {admitted}");
        ensure(!admitted || before.allow(&bid, now), || format!("{}, over a limit", counterexample()))?;
        ensure(admitted || limits == before, || format!("{}, and charged", counterexample()))?;
        if admitted {
            note(&mut windows, now_ms / WINDOW_MS, bid.cost);
        }
    }
    let over = windows.iter().find(|(_, admitted, spent)| *admitted > asks || *spent > cost);
    ensure(over.is_none(), || format!("seed {seed}: {over:?} in a window of {asks} asks and {cost} units"))
}

/// Counts by hand, in whole numbers.
fn note(windows: &mut Vec<(u64, u64, u64)>, window: u64, cost: u64) {
    match windows.last_mut() {
        Some((last, admitted, spent)) if *last == window => {
            *admitted += 1;
            *spent += cost;
        }
        _ => windows.push((window, 1, cost)),
    }
}

/// Draws a number, or NaN: untrusted input.
pub(super) fn any(dice: &mut Dice) -> f64 {
    match dice.below(12) {
        0 => f64::NAN,
        1 => f64::INFINITY,
        2 => -(dice.any_size(1_000) as f64),
        3 => f64::MAX,
        4 => 0.0,
        _ => dice.any_size(1_000) as f64,
    }
}

throttlekit_conformance::bugs! {
    /// A bug of an admission by prices and limits.
    pub enum PassBug {
        LimitsThenPrice: "The limits are charged before the price is checked.",
        ValueBuysIn: "A request whose value is high enough is admitted beyond the limits.",
        PriceDecidesAlone: "The limits are ignored.",
        CostAtADiscount: "Half of the cost is charged.",
    }
}

impl PassBug {
    /// Returns an admission with this bug.
    pub fn admission(self) -> Admission {
        match self {
            Self::LimitsThenPrice => |prices, bid, limits, now| limits.admit(bid, now) && prices.admits(bid),
            Self::ValueBuysIn => {
                |prices, bid, limits, now| limits.admit(bid, now) || prices.rate > 0.0 && prices.admits(bid)
            }
            Self::PriceDecidesAlone => |prices, bid, _limits, _now| prices.admits(bid),
            Self::CostAtADiscount => |prices, bid, limits, now| {
                prices.admits(bid) && limits.admit(&Bid { cost: bid.cost / 2, ..*bid }, now)
            },
        }
    }
}
