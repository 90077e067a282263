//! Prices shared by threads.

use throttlekit_core::price::{Bid, Left, Prices, Refiner, Review};

use crate::clock::{Clock, PreciseClock};
use crate::sync::{Mutex, RwLock};

/// Denies requests whose value is below the price of what they would use, before a limit is checked.
///
/// A `Pricer` only removes admissions. It holds no budget and never reports that a request fits one; check your limits
/// after it, and only for requests that it clears, so that a request it denies is charged nowhere.
///
/// ```
/// use throttlekit::price::{Bid, Pricer, Prices};
/// use throttlekit::{Call, Limiter, Rate};
///
/// let pricer = Pricer::fixed(Prices::new(0.0, 0.01, 0.0)?);
/// let tokens = Limiter::new(Rate::per_minute(50_000))?;
///
/// let admit = |bid: Bid| pricer.clears(&bid) && tokens.check(Call::by("model").cost(bid.cost)).allowed;
/// assert!(admit(Bid::new(1.0, 100)));
/// assert!(!admit(Bid::new(50.0, 10_000)), "worth half of what its tokens are worth to others");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Pricer<C = PreciseClock> {
    source: Source<C>,
}

#[derive(Debug)]
enum Source<C> {
    Fixed(Prices),
    Refined {
        /// Taken by a thread that finds it free, never waited for.
        refiner: Mutex<Refiner>,
        /// Written when the refiner adopts others.
        prices: RwLock<Prices>,
        clock: C,
    },
}

impl Pricer {
    /// Creates a pricer with fixed prices.
    pub fn fixed(prices: Prices) -> Self {
        Self { source: Source::Fixed(prices) }
    }

    /// Creates a pricer whose prices follow the traffic.
    pub fn refined(refiner: Refiner) -> Self {
        Self::refined_with_clock(refiner, PreciseClock::new())
    }
}

impl<C: Clock> Pricer<C> {
    /// Creates a pricer whose prices follow the traffic, by this clock.
    pub fn refined_with_clock(refiner: Refiner, clock: C) -> Self {
        let prices = RwLock::new(refiner.prices());
        Self { source: Source::Refined { refiner: Mutex::new(refiner), prices, clock } }
    }

    /// Returns whether the bid covers its price. Records it if prices follow the traffic.
    pub fn clears(&self, bid: &Bid) -> bool {
        self.clears_with(bid, || None)
    }

    /// The same, for callers that can report what is left of the budgets: `left` is called when prices are recomputed,
    /// which one request in each sample does. Prices are then changed with more care ([`Refiner`]).
    ///
    /// That request pays for the recomputation. No other waits for it: requests that come meanwhile are decided by the
    /// current prices, and are not recorded.
    pub fn clears_with(&self, bid: &Bid, left: impl FnOnce() -> Option<Left>) -> bool {
        self.observe(bid, left);
        self.prices().admits(bid)
    }

    /// Returns the current prices.
    pub fn prices(&self) -> Prices {
        match &self.source {
            Source::Fixed(prices) => *prices,
            Source::Refined { prices, .. } => *prices.read(),
        }
    }

    fn observe(&self, bid: &Bid, left: impl FnOnce() -> Option<Left>) {
        let Source::Refined { refiner, prices, clock } = &self.source else { return };
        let Some(mut refiner) = refiner.try_lock() else { return };
        if refiner.observe(bid, clock.now()) && refiner.reprice(left()) == Review::Adopt {
            *prices.write() = refiner.prices();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use throttlekit_core::Timestamp;
    use throttlekit_core::price::{Budgets, RefinerOptions, RequestKind};

    use super::*;
    use crate::clock::ManualClock;

    fn refiner(sample: usize) -> Refiner {
        let kind = |value, cost| RequestKind { weight: 500.0, value, cost, hold: 0.0 };
        let budgets = Budgets { rate: 1_000.0, cost: 50_000.0, hold: None };
        Refiner::new(
            &[kind(1.0, 100.0), kind(50.0, 10_000.0)],
            &budgets,
            RefinerOptions { sample, slots: None },
        )
        .unwrap()
    }

    #[test]
    fn remaining_budgets_are_read_once_per_sample_and_the_request_is_repriced() {
        let pricer = Pricer::refined_with_clock(refiner(10), ManualClock::at(Timestamp::EPOCH));
        let (large, mut looks) = (Bid::new(50.0, 10_000), Vec::new());
        for ask in 1..=20 {
            let left = || {
                looks.push(ask);
                Some(Left { asks: 5.0, rate: 1_000.0, cost: 50_000.0 })
            };
            assert_eq!(pricer.clears_with(&large, left), ask >= 10, "ask {ask}");
        }
        assert_eq!(looks, [10, 20]);
    }

    #[test]
    fn concurrent_threads_all_get_a_decision_and_new_prices_reach_them() {
        let pricer = Pricer::refined(refiner(10));
        let ask_until_cleared = || (0..100_000).any(|_| pricer.clears(&Bid::new(50.0, 10_000)));
        thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask_until_cleared)).collect();
            assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
        });
    }
}
