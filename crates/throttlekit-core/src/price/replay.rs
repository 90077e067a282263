//! Value that prices would have earned on the observed requests.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use super::Prices;

/// A request that was observed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Seen {
    /// Seconds since some beginning.
    pub(super) at: f64,
    pub(super) value: f64,
    pub(super) cost: f64,
    /// From zero up.
    pub(super) hold: f64,
}

/// Resources that requests are replayed against: budgets that run out, and slots that are released.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stage {
    /// Number of times the requests are repeated, one round after the other.
    pub(super) rounds: usize,
    /// Length of a round, in seconds.
    pub(super) round_length: f64,
    pub(super) rate: f64,
    pub(super) cost: f64,
    pub(super) slots: Option<usize>,
}

impl Stage {
    /// Returns the value that prices admit: each request that clears them and fits what is left, in order. The prices
    /// may change from one request to the next.
    pub(super) fn earned(&self, asks: &[Seen], prices: impl Fn(usize) -> Prices) -> f64 {
        let (mut rate, mut cost, mut earned) = (self.rate, self.cost, 0.0);
        // When each taken slot is free again.
        let mut busy = BinaryHeap::new();
        for number in 0..self.rounds * asks.len() {
            let ask = &asks[number % asks.len()];
            if rate < 1.0 {
                break;
            }
            if !ask.clears(&prices(number)) || ask.cost > cost {
                continue;
            }
            let now = ask.at + (number / asks.len()) as f64 * self.round_length;
            if self.takes_slot(&mut busy, now, ask.hold) {
                rate -= 1.0;
                cost -= ask.cost;
                earned += ask.value;
            }
        }
        earned
    }

    fn takes_slot(&self, busy: &mut BinaryHeap<Reverse<u64>>, at: f64, hold: f64) -> bool {
        let Some(slots) = self.slots else { return true };
        // Whole numbers have an order.
        let nanos = |seconds: f64| (seconds * 1e9) as u64;
        while busy.peek().is_some_and(|Reverse(end)| *end <= nanos(at)) {
            busy.pop();
        }
        let free = busy.len() < slots;
        if free && hold > 0.0 {
            busy.push(Reverse(nanos(at + hold)));
        }
        free
    }
}

impl Seen {
    fn clears(&self, prices: &Prices) -> bool {
        self.value >= prices.rate + prices.cost * self.cost + prices.hold * self.hold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOMY: Stage = Stage { rounds: 1, round_length: 0.0, rate: 1e9, cost: 1e9, slots: None };

    fn asks(hold: f64) -> [Seen; 4] {
        core::array::from_fn(|at| Seen { at: at as f64, value: 1.0, cost: 10.0, hold })
    }

    #[test]
    fn each_budget_admits_exactly_its_units() {
        let earned = |stage: Stage| stage.earned(&asks(0.0), |_| Prices::FREE);
        assert_eq!(earned(ROOMY), 4.0);
        assert_eq!(earned(Stage { rate: 2.9, ..ROOMY }), 2.0);
        assert_eq!(earned(Stage { cost: 30.0, ..ROOMY }), 3.0);
        assert_eq!(earned(Stage { rounds: 3, ..ROOMY }), 12.0);
    }

    #[test]
    fn a_slot_is_taken_from_the_arrival_for_the_hold_and_free_at_its_end() {
        let earned = |stage: Stage, hold| stage.earned(&asks(hold), |_| Prices::FREE);
        let one = Stage { slots: Some(1), ..ROOMY };
        assert_eq!(earned(one, 1.0), 4.0);
        assert_eq!(earned(one, 1.001), 2.0);
        assert_eq!(earned(one, 4.0), 1.0);
        assert_eq!(earned(Stage { slots: Some(2), ..ROOMY }, 4.0), 2.0);
        assert_eq!(
            earned(Stage { rounds: 2, round_length: 4.0, ..one }, 4.0),
            2.0,
            "over from round to round"
        );
    }
}
