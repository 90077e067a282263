//! `bid-price`, the filter: admit exactly if the value is at least the price, for any untrusted input.

use throttlekit_core::price::{Bid, Prices};

use super::removes::any;
use super::{Check, ensure};
use throttlekit_conformance::Dice;

/// A filter under test.
pub type Filter = fn(&Prices, &Bid) -> bool;

/// Checks a random bid at random prices.
pub fn check_filter(filter: Filter, seed: u64) -> Check {
    let mut dice = Dice::new(seed);
    // Quarters, so that sums are exact and equality is common.
    let mut price = || dice.below(9) as f64 / 4.0;
    let prices = Prices { rate: price(), cost: price(), hold: price() };
    let cost = dice.below(6);
    let hold =
        dice.once_in(4).then(|| any(&mut dice)).or_else(|| dice.once_in(4).then(|| dice.below(6) as f64));
    let held = hold.filter(|hold| hold.is_finite() && *hold >= 0.0).unwrap_or(0.0);
    let worth = prices.rate + prices.cost * cost as f64 + prices.hold * held;
    let value = dice.pick(&[worth, worth - 0.25, worth + 0.25, f64::NAN, f64::INFINITY, -1.0, 0.0]);
    let bid = Bid { value, cost, hold };
    let should = value >= worth;
    let admits = filter(&prices, &bid);
    ensure(admits == should, || format!("seed {seed}: {bid:?} at {prices:?} is admitted: {admits}"))?;
    let unheld = Bid { hold: None, ..bid };
    let dodges = admits && !filter(&prices, &unheld);
    ensure(!dodges, || format!("seed {seed}: {bid:?} is cheaper than without a hold"))
}

throttlekit_conformance::bugs! {
    /// A bug of a filter.
    pub enum FilterBug {
        NegativeHoldDodges: "A negative holding time lowers the price.",
        NanHoldTurnedAway: "A holding time that is not a number is denied.",
        NanValueAdmitted: "A value that is not a number is admitted.",
        EqualTurnedAway: "A value that equals the price is denied.",
        PriceOfCostIgnored: "The price of cost is ignored.",
        PriceOfHoldIgnored: "The price of holding a slot is ignored.",
    }
}

impl FilterBug {
    /// Returns a filter with this bug.
    pub fn filter(self) -> Filter {
        match self {
            Self::NegativeHoldDodges => |prices, bid| {
                let hold = bid.hold.filter(|hold| hold.is_finite()).unwrap_or(0.0);
                bid.value >= prices.rate + prices.cost * bid.cost as f64 + prices.hold * hold
            },
            Self::NanHoldTurnedAway => |prices, bid| {
                let hold = bid.hold.unwrap_or(0.0);
                bid.value >= prices.rate + prices.cost * bid.cost as f64 + prices.hold * hold.max(0.0)
                    && !hold.is_nan()
            },
            Self::NanValueAdmitted => |prices, bid| bid.value.is_nan() || prices.admits(bid),
            Self::EqualTurnedAway => |prices, bid| bid.value > prices.of(bid),
            Self::PriceOfCostIgnored => |prices, bid| prices.admits(&Bid { cost: 0, ..*bid }),
            Self::PriceOfHoldIgnored => |prices, bid| prices.admits(&Bid { hold: None, ..*bid }),
        }
    }
}
