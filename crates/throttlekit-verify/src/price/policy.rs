//! Admission policies, and their earnings on a stream of bids.

use throttlekit_core::Timestamp;
use throttlekit_core::price::{Bid, Left, Prices, Refiner, Review};

/// The remaining resources when a request comes.
#[derive(Clone, Copy, Debug)]
pub struct Stock {
    /// Requests that may still pass.
    pub rate: u64,
    /// Units of cost that are left.
    pub cost: u64,
    /// The number of slots.
    pub slots: Option<usize>,
}

/// Decides whether a request meets the price; the limits decide the rest.
pub trait Policy {
    /// Returns `true` if the price admits it, with what is left before it.
    fn admits(&mut self, bid: &Bid, now: Timestamp, left: &Left) -> bool;
}

impl Policy for Prices {
    fn admits(&mut self, bid: &Bid, _now: Timestamp, _left: &Left) -> bool {
        Prices::admits(self, bid)
    }
}

/// Updates its prices.
pub trait Reprices {
    /// Returns the current prices.
    fn prices(&self) -> Prices;
    /// Records a request. Returns `true` when it is time to reprice.
    fn observe(&mut self, bid: &Bid, now: Timestamp) -> bool;
    /// Reprices.
    fn reprice(&mut self, left: Option<Left>) -> Review;
}

impl Reprices for Refiner {
    fn prices(&self) -> Prices {
        Self::prices(self)
    }
    fn observe(&mut self, bid: &Bid, now: Timestamp) -> bool {
        Self::observe(self, bid, now)
    }
    fn reprice(&mut self, left: Option<Left>) -> Review {
        Self::reprice(self, left)
    }
}

/// Prices that are updated when due.
#[derive(Clone, Debug)]
pub struct Refined<R> {
    /// The source of prices.
    pub refiner: R,
    /// True if it receives what is left.
    pub told: bool,
}

impl<R: Reprices> Policy for Refined<R> {
    fn admits(&mut self, bid: &Bid, now: Timestamp, left: &Left) -> bool {
        if self.refiner.observe(bid, now) {
            self.refiner.reprice(self.told.then_some(*left));
        }
        self.refiner.prices().admits(bid)
    }
}

/// The earnings of a policy on a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Earned {
    /// The value of admitted requests.
    pub value: f64,
    /// Their number.
    pub admitted: u64,
    /// Their cost.
    pub cost: u64,
}

/// Runs a stream, one request per second: first the price, then the limits, which alone keep the stock.
pub fn play(policy: &mut dyn Policy, stream: &[Bid], mut stock: Stock) -> Earned {
    let mut earned = Earned::default();
    let mut busy: Vec<u64> = Vec::new();
    for (second, bid) in stream.iter().enumerate() {
        let second = second as u64;
        let now = Timestamp::from_millis(second * 1_000);
        let asks = (stream.len() as u64 - second) as f64;
        let left = Left { asks, rate: stock.rate as f64, cost: stock.cost as f64 };
        if !policy.admits(bid, now, &left) {
            continue;
        }
        busy.retain(|end| *end > second);
        if stock.rate == 0 || stock.cost < bid.cost || stock.slots.is_some_and(|slots| busy.len() >= slots) {
            continue;
        }
        if stock.slots.is_some() {
            busy.push(second + bid.hold.unwrap_or(0.0) as u64);
        }
        stock.rate -= 1;
        stock.cost -= bid.cost;
        earned.value += bid.value;
        earned.admitted += 1;
        earned.cost += bid.cost;
    }
    earned
}
