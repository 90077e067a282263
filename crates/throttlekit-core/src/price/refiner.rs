//! Prices that follow the observed requests.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::mixture::mixture;
use super::replay::{Seen, Stage};
use super::{Bid, Budgets, PriceError, Prices, RequestKind, number, solve_fluid_lp};
use crate::Timestamp;

/// Largest number of requests after which prices are reviewed.
pub const SAMPLE_MAX: usize = 1_024;
/// Number of samples remembered: prices are judged by all of them together.
const SAMPLES_KEPT: usize = 8;
/// A replay is repeated up to this many requests, to see how the budgets end.
const REPLAY_MAX: usize = 4_096;
/// Samples to delay a change where that costs nothing. Two: one until the next review, and one against chance.
const WAIT_SAMPLES: usize = 2;
/// A price cannot admit a part of a kind. So beside the prices at which a kind just passes, those at which it just
/// does not are tried.
const ABOVE: f64 = 1.0 + 1e-6;

/// Options of a [`Refiner`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefinerOptions {
    /// Number of requests between price reviews, and before the first.
    pub sample: usize,
    /// Number of slots; required exactly where there is a budget of slot-seconds.
    pub slots: Option<u32>,
}

impl Default for RefinerOptions {
    /// Every 100 requests, without slots.
    fn default() -> Self {
        Self { sample: 100, slots: None }
    }
}

/// Remaining budgets, and the number of requests still expected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Left {
    /// Requests expected until the budgets are renewed, this one included.
    pub asks: f64,
    /// Requests that may still pass.
    pub rate: f64,
    /// Units of cost that are left.
    pub cost: f64,
}

/// Result of a price review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Review {
    /// No other prices would have earned more.
    Keep,
    /// Other prices would have.
    Adopt,
}

/// Prices that begin with an assumed workload, and are reviewed after every sample of requests.
///
/// It remembers the last eight samples. When due, it solves the fluid problem of what it remembers, and replays that,
/// one request after the other and again until the budgets end, with several prices: the current ones, the new ones,
/// the new ones slightly higher, the initial ones, and none. Others are adopted only if they earn strictly more. So an
/// assumption that is right is not lost to noise, and one that is wrong, or has gone stale, is dropped.
///
/// Given what is left of the budgets and how many requests are to come, it also delays a change for as long as that
/// costs nothing. This keeps it from spending a budget on a run of one kind: pass it if you can.
///
/// The guarantee covers the requests that were seen, not those to come. Prices only deny: whatever the refiner assumes,
/// limits hold.
///
/// A review is one [`solve_fluid_lp`] over at most 64 kinds and at most seven replays of 4,096 requests, or of eight
/// samples if that is more. It is never part of [`observe`](Self::observe), which is a few instructions.
///
/// ```
/// use throttlekit_core::price::{Bid, Budgets, RequestKind, Refiner, RefinerOptions};
/// use throttlekit_core::Timestamp;
///
/// // We believe in many small asks, and price for them.
/// let small = RequestKind { weight: 500.0, value: 1.0, cost: 100.0, hold: 0.0 };
/// let large = RequestKind { weight: 500.0, value: 50.0, cost: 10_000.0, hold: 0.0 };
/// let budgets = Budgets { rate: 1_000.0, cost: 50_000.0, hold: None };
/// let mut refiner = Refiner::new(&[small, large], &budgets, RefinerOptions::default())?;
///
/// // Only large ones come.
/// let bid = Bid::new(50.0, 10_000);
/// assert!(!refiner.prices().admits(&bid));
/// for second in 0..100 {
///     if refiner.observe(&bid, Timestamp::from_millis(second * 1_000)) {
///         refiner.reprice(None);
///     }
/// }
/// assert!(refiner.prices().admits(&bid));
/// # Ok::<(), throttlekit_core::price::PriceError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Refiner {
    options: RefinerOptions,
    /// Budgets and number of requests initially assumed.
    whole: Left,
    prior: Prices,
    prices: Prices,
    seen: VecDeque<Seen>,
    begun: Option<Timestamp>,
    /// Requests since the last price review.
    fresh: usize,
}

impl Refiner {
    /// Begins with the prices of this workload. Its weights are the number of requests the budgets are for.
    pub fn new(
        kinds: &[RequestKind],
        budgets: &Budgets,
        options: RefinerOptions,
    ) -> Result<Self, PriceError> {
        if !(1..=SAMPLE_MAX).contains(&options.sample) {
            return Err(PriceError::Sample(options.sample));
        }
        if budgets.hold.is_some() != options.slots.is_some() {
            return Err(PriceError::Slots);
        }
        let prior = solve_fluid_lp(kinds, budgets)?.duals;
        let asks: f64 = kinds.iter().map(|kind| kind.weight).sum();
        number("sum of weights", asks)?;
        let whole = Left { asks, rate: budgets.rate, cost: budgets.cost };
        let seen = VecDeque::with_capacity(options.sample * SAMPLES_KEPT);
        Ok(Self { options, whole, prior, prices: prior, seen, begun: None, fresh: 0 })
    }

    /// Returns the current prices.
    pub fn prices(&self) -> Prices {
        self.prices
    }

    /// Records a request, admitted or not, before it is priced. True when it is time to [`reprice`](Self::reprice).
    ///
    /// A request whose value is negative or not a finite number is denied at any price and is not remembered.
    pub fn observe(&mut self, bid: &Bid, now: Timestamp) -> bool {
        if !(bid.value.is_finite() && bid.value >= 0.0) {
            return false;
        }
        let begun = *self.begun.get_or_insert(now);
        // A clock that steps back is treated as stopped.
        let last = self.seen.back().map_or(0.0, |seen| seen.at);
        let at = now.since(begun).as_secs_f64().max(last);
        if self.seen.len() == self.options.sample * SAMPLES_KEPT {
            self.seen.pop_front();
        }
        self.seen.push_back(Seen { at, value: bid.value, cost: bid.cost as f64, hold: bid.priced_hold() });
        self.fresh = (self.fresh + 1).min(self.options.sample);
        self.fresh == self.options.sample
    }

    /// Reviews the prices, and adopts others if they would have earned strictly more on the observed requests.
    ///
    /// Pass what is left of the budgets and how many requests are still to come, if known; otherwise the whole budgets
    /// and the initial weights are assumed. `left` is ignored unless its numbers are finite and not negative.
    pub fn reprice(&mut self, left: Option<Left>) -> Review {
        self.fresh = 0;
        let left = left.filter(Left::is_sane);
        let told = left.is_some();
        let left = left.unwrap_or(self.whole);
        self.seen.make_contiguous();
        let (seen, _) = self.seen.as_slices();
        if seen.is_empty() || left.asks < 1.0 {
            return Review::Keep;
        }
        let stage = self.stage(seen, &left);
        let best = self.best(seen, &left, &stage);
        if best == self.prices || told && self.can_wait(seen, &left, &stage, best) {
            return Review::Keep;
        }
        self.prices = best;
        Review::Adopt
    }

    /// Returns the prices that earn most; the current ones, unless others earn strictly more.
    fn best(&self, seen: &[Seen], left: &Left, stage: &Stage) -> Prices {
        let earned = |prices: Prices| stage.earned(seen, |_| prices);
        let solved = self.solved(seen, left);
        let others = [solved, solved.map(|prices| prices.times(ABOVE)), Some(self.prior), Some(Prices::FREE)];
        let mut best = (self.prices, earned(self.prices));
        for prices in others.into_iter().flatten() {
            let next = (prices, earned(prices));
            if next.1 > best.1 {
                best = next;
            }
        }
        best.0
    }

    /// Checks whether a change two samples later would earn as much. A spent budget does not come back, and the sample
    /// may have been a run of one kind; so a change that can be delayed at no cost is delayed.
    fn can_wait(&self, seen: &[Seen], left: &Left, stage: &Stage, next: Prices) -> bool {
        let stretch = ((stage.rounds * seen.len()) as f64 / left.asks).max(1.0);
        let wait = (WAIT_SAMPLES * self.options.sample) as f64 * stretch;
        let late = stage.earned(seen, |ask| if (ask as f64) < wait { self.prices } else { next });
        late >= stage.earned(seen, |_| next)
    }

    /// Returns the replay of the observed requests, repeated until the budgets end, with the part of them that is due.
    fn stage(&self, seen: &[Seen], left: &Left) -> Stage {
        let rounds = (left.asks.min(REPLAY_MAX as f64) as usize / seen.len()).max(1);
        let part = (rounds * seen.len()) as f64 / left.asks;
        Stage {
            rounds,
            round_length: length(seen),
            rate: left.rate * part,
            cost: left.cost * part,
            slots: self.options.slots.map(|slots| slots as usize),
        }
    }

    /// The prices of the observed requests, if there are any.
    fn solved(&self, seen: &[Seen], left: &Left) -> Option<Prices> {
        let kind =
            |seen: &Seen| RequestKind { weight: 1.0, value: seen.value, cost: seen.cost, hold: seen.hold };
        let kinds: Vec<RequestKind> = mixture(seen.iter().map(kind));
        let part = seen.len() as f64 / left.asks;
        let hold = self.options.slots.map(|slots| f64::from(slots) * length(seen));
        let budgets = Budgets { rate: left.rate * part, cost: left.cost * part, hold };
        solve_fluid_lp(&kinds, &budgets).ok().map(|solution| solution.duals)
    }
}

impl Left {
    fn is_sane(&self) -> bool {
        [self.asks, self.rate, self.cost].iter().all(|n| n.is_finite() && *n >= 0.0)
    }
}

/// Returns the time these requests take to arrive: from the first to the last, and one gap more.
fn length(seen: &[Seen]) -> f64 {
    let gaps = seen.len().saturating_sub(1).max(1) as f64;
    let time = seen.last().map_or(0.0, |last| last.at) - seen.first().map_or(0.0, |first| first.at);
    time * (seen.len() as f64 / gaps)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Bid = Bid { value: 1.0, cost: 100, hold: None };
    const LARGE: Bid = Bid { value: 50.0, cost: 10_000, hold: None };

    fn refiner(sample: usize) -> Refiner {
        let kind =
            |bid: Bid| RequestKind { weight: 500.0, value: bid.value, cost: bid.cost as f64, hold: 0.0 };
        let budgets = Budgets { rate: 1_000.0, cost: 50_000.0, hold: None };
        Refiner::new(&[kind(SMALL), kind(LARGE)], &budgets, RefinerOptions { sample, slots: None }).unwrap()
    }

    fn observe(refiner: &mut Refiner, bids: &[Bid], asks: usize) {
        for bid in bids.iter().cycle().take(asks) {
            if refiner.observe(bid, Timestamp::EPOCH) {
                refiner.reprice(None);
            }
        }
    }

    #[test]
    fn prices_follow_repeated_requests() {
        let mut refiner = refiner(20);
        for _ in 0..3 {
            observe(&mut refiner, &[LARGE], 160);
            assert!(refiner.prices().admits(&LARGE), "when nothing else comes");
            observe(&mut refiner, &[SMALL, LARGE], 160);
            assert!(!refiner.prices().admits(&LARGE) && refiner.prices().admits(&SMALL));
        }
    }

    #[test]
    fn a_change_that_costs_nothing_to_put_off_is_put_off_until_it_does() {
        let mut refiner = refiner(20);
        observe(&mut refiner, &[LARGE], 19);
        refiner.observe(&LARGE, Timestamp::EPOCH);
        let left = |asks| Some(Left { asks, rate: 1_000.0, cost: 50_000.0 });
        assert_eq!(refiner.reprice(left(200.0)), Review::Keep, "five will come later as well");
        assert_eq!(refiner.reprice(left(40.0)), Review::Adopt, "after two samples more none would");
    }

    #[test]
    fn memory_is_eight_samples_and_holds_nothing_that_is_no_number() {
        let mut refiner = refiner(20);
        observe(&mut refiner, &[SMALL], 10_000);
        assert_eq!(refiner.seen.len(), 160);
        for value in [f64::NAN, f64::INFINITY, -1.0] {
            assert!(!refiner.observe(&Bid { value, ..LARGE }, Timestamp::EPOCH));
        }
        assert!(refiner.seen.iter().all(|seen| seen.value == 1.0));
        let nonsense = Left { asks: f64::NAN, rate: -1.0, cost: f64::INFINITY };
        assert_eq!(refiner.reprice(Some(nonsense)), Review::Keep);
    }
}
