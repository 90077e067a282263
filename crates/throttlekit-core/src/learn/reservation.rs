//! The number of tokens to reserve for a stream whose length is not known.
//!
//! Tokens that are reserved and not used block others; use beyond the reservation may find nothing left. For a stream
//! of x tokens and a reservation of r that is the newsvendor's trade, the pinball loss:
//!
//! > cost(r) = h·max(0, r − x) + p·max(0, x − r)
//!
//! with h the cost of a token held idle and p that of one beyond the reservation. Over any streams the best fixed r is
//! the τ-quantile of their lengths, τ = p/(h + p): with p four times h, large enough that four streams in five fit.
//!
//! A reservation is only a hint. The store reserves what is available, so none, however wrong, admits more.

use core::fmt;

use super::{Descent, Hedge};

/// Costs that a [`Reservation`] weighs, and the bounds of its result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReservationOptions {
    /// Cost of a token that is reserved and not used, from 10⁻⁹ to 10⁹. Default: 1.
    pub hold_cost: f64,
    /// Cost of a token that is used beyond the reservation, from 10⁻⁹ to 10⁹. Default: 4.
    pub overrun_cost: f64,
    /// No reservation is smaller.
    pub min: u64,
    /// No reservation is larger; at least the smallest. Default: 4,096.
    pub max: u64,
}

impl Default for ReservationOptions {
    fn default() -> Self {
        Self { hold_cost: 1.0, overrun_cost: 4.0, min: 0, max: 4_096 }
    }
}

/// Invalid reservation options.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum ReservationError {
    /// A cost is not between 10⁻⁹ and 10⁹.
    Cost(f64),
    /// The smallest reservation is above the largest.
    Bounds {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
}

impl fmt::Display for ReservationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cost(cost) => {
                write!(f, "invalid cost {cost} of holding or overrunning: expected 1e-9 to 1e9")
            }
            Self::Bounds { min, max } => {
                write!(f, "invalid reservation range {min} to {max}: expected the minimum first")
            }
        }
    }
}

impl core::error::Error for ReservationError {}

impl ReservationOptions {
    /// The pinball loss of reserving `reserved` for a stream of `actual` tokens.
    pub fn cost(&self, reserved: f64, actual: u64) -> f64 {
        let idle = reserved - actual as f64;
        if idle > 0.0 { self.hold_cost * idle } else { -self.overrun_cost * idle }
    }

    /// τ: the part of streams that fit the best fixed reservation.
    pub fn fractile(&self) -> f64 {
        self.overrun_cost / (self.hold_cost + self.overrun_cost)
    }

    /// D: the length of the interval that reservations lie in.
    pub fn span(&self) -> f64 {
        (self.max - self.min) as f64
    }

    /// G: the steepest slope of the loss.
    pub fn steepest(&self) -> f64 {
        self.hold_cost.max(self.overrun_cost)
    }

    fn check(&self) -> Result<(), ReservationError> {
        let costs = [self.hold_cost, self.overrun_cost];
        if let Some(cost) = costs.into_iter().find(|cost| !(1e-9..=1e9).contains(cost)) {
            return Err(ReservationError::Cost(cost));
        }
        let (min, max) = (self.min, self.max);
        if min > max { Err(ReservationError::Bounds { min, max }) } else { Ok(()) }
    }

    /// Returns the derivative of the loss with respect to the reservation. Flat where it fits exactly.
    fn gradient(&self, reserved: f64, actual: u64) -> f64 {
        match reserved.partial_cmp(&(actual as f64)) {
            Some(core::cmp::Ordering::Greater) => self.hold_cost,
            Some(core::cmp::Ordering::Less) => -self.overrun_cost,
            _ => 0.0,
        }
    }
}

/// Learns how much to reserve from the lengths of past streams, and uses hints as far as they have been right.
///
/// Without hints it is [`Descent`] on the pinball loss, and never more than the longest stream it has seen. Against
/// the best fixed reservation in hindsight, over any T streams of any lengths,
///
/// > regret ≤ (3/2) · D · G · √T + D · G,
///
/// with D the span of reservations and G the larger of the two costs, where each stream is observed before the next
/// one reserves. The last term is the price of the cut: only a stream longer than all before it costs more than
/// without, by at most G for each token that it is longer, and those add up to D. Where up to c streams are open at
/// once, each has reserved by what was known when it began, and that adds at most 2·(c − 1)·D·G·√T + (c − 1)·D·G.
/// Both are about [`aim`](Self::aim), before it is rounded to the nearest whole number,
/// halves up, which adds at most G/2 a stream.
///
/// With hints, a [`Hedge`] weighs two experts by what each would have cost: one follows the hint exactly, one is the
/// learner, which does not see it. The reservation is their weighted mean, which by convexity costs no more than the
/// weighted mean of their costs. So hints that are right bring it to the cost of perfect knowledge, which is zero,
/// after a first loss of at most (2 + 16/3·ln 2)·D·G in all; hints that are wrong leave it near the learner.
///
/// ```
/// use throttlekit_core::learn::{Reservation, ReservationOptions};
///
/// let mut reservation = Reservation::new(ReservationOptions { max: 1_000, ..Default::default() })?;
/// for stream in 0..100_000 {
///     reservation.observe(None, 100 + stream * 7 % 10 * 10); // from 100 to 190 tokens
/// }
/// // Four in five are at most 170 long.
/// assert!(reservation.reserve(None).abs_diff(170) <= 15);
///
/// for length in [400, 20, 350, 30].repeat(50) {
///     reservation.observe(Some(length), length);
/// }
/// assert_eq!(reservation.reserve(Some(20)), 20);
/// # Ok::<(), throttlekit_core::learn::ReservationError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Reservation {
    options: ReservationOptions,
    point: Descent,
    experts: Hedge<2>,
    /// The longest stream so far. Steps are as long as the span, which may be many times as long as any stream.
    longest: u64,
}

impl Reservation {
    /// Creates a learner without observations: it begins in the middle, and trusts both experts equally.
    pub fn new(options: ReservationOptions) -> Result<Self, ReservationError> {
        options.check()?;
        let point = Descent::new(options.min as f64, options.max as f64, options.steepest());
        Ok(Self { options, point, experts: Hedge::anytime(), longest: 0 })
    }

    /// Returns the number of tokens to reserve for a stream, given an optional hint of its length.
    pub fn reserve(&self, hint: Option<u64>) -> u64 {
        let aim = libm::floor(self.aim(hint) + 0.5);
        (aim as u64).clamp(self.options.min, self.options.max)
    }

    /// The reservation before it is rounded, which is what the bounds are about.
    pub fn aim(&self, hint: Option<u64>) -> f64 {
        let Some(hint) = hint else { return self.robust() };
        let [trust, rest] = self.experts.weights();
        trust * self.follow(hint) + rest * self.robust()
    }

    /// Records the length of a stream, and its hint.
    pub fn observe(&mut self, hint: Option<u64>, actual: u64) {
        if let Some(hint) = hint {
            let aims = [self.follow(hint), self.robust()];
            self.experts.observe(&aims.map(|aim| self.options.cost(aim, actual)));
        }
        self.point.step(self.options.gradient(self.point.at(), actual));
        self.longest = self.longest.max(actual);
    }

    /// Returns the trust in hints, from 0 to 1.
    pub fn trust(&self) -> f64 {
        self.experts.weights()[0]
    }

    /// Returns the number of observed streams.
    pub fn observed(&self) -> u64 {
        self.point.steps()
    }

    /// Returns the costs it weighs and the bounds of its result.
    pub fn options(&self) -> &ReservationOptions {
        &self.options
    }

    /// The reservation of the learner, which does not see hints.
    fn robust(&self) -> f64 {
        let longest = if self.observed() == 0 { self.options.max } else { self.longest };
        self.point.at().min(self.follow(longest))
    }

    /// The reservation of the expert that follows the hint exactly.
    fn follow(&self, hint: u64) -> f64 {
        hint.clamp(self.options.min, self.options.max) as f64
    }
}

impl Default for Reservation {
    fn default() -> Self {
        Self::new(ReservationOptions::default()).expect("the default options are valid")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_in_the_middle_and_rounds_halves_up() {
        let reservation =
            Reservation::new(ReservationOptions { min: 0, max: 5, ..Default::default() }).unwrap();
        assert_eq!(reservation.reserve(None), 3);
        assert_eq!(reservation.reserve(Some(4)), 3, "3.25: half of what the hint says and half of 2.5");
        assert_eq!(Reservation::default().reserve(None), 2_048);
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let with = |hold_cost, overrun_cost, min, max| {
            Reservation::new(ReservationOptions { hold_cost, overrun_cost, min, max }).map(|_| ())
        };
        assert_eq!(with(0.0, 1.0, 0, 1), Err(ReservationError::Cost(0.0)));
        assert_eq!(with(1.0, 1e10, 0, 1), Err(ReservationError::Cost(1e10)));
        assert!(matches!(with(f64::NAN, 1.0, 0, 1), Err(ReservationError::Cost(cost)) if cost.is_nan()));
        assert_eq!(with(1.0, 1.0, 2, 1), Err(ReservationError::Bounds { min: 2, max: 1 }));
        assert_eq!(with(1.0, 1.0, 7, 7), Ok(()));
    }

    #[test]
    fn the_ends_of_all_ranges_stay_within_the_bounds() {
        let options = ReservationOptions { min: 3, max: u64::MAX, ..Default::default() };
        let mut reservation = Reservation::new(options).unwrap();
        for actual in [0, u64::MAX, 1, u64::MAX - 1] {
            for hint in [None, Some(0), Some(u64::MAX)] {
                reservation.observe(hint, actual);
                assert!(reservation.reserve(hint) >= 3);
                assert!((0.0..=1.0).contains(&reservation.trust()));
            }
        }
        let only = Reservation::new(ReservationOptions { min: 7, max: 7, ..options }).unwrap();
        assert_eq!(only.reserve(Some(100)), 7);
    }

    #[test]
    fn no_more_is_reserved_than_the_longest_stream_so_far() {
        let mut reservation = Reservation::default();
        reservation.observe(None, 50);
        assert_eq!(reservation.reserve(None), 50);
        reservation.observe(None, 80);
        assert_eq!(reservation.reserve(None), 80);
        let floor = ReservationOptions { min: 100, ..ReservationOptions::default() };
        let mut reservation = Reservation::new(floor).unwrap();
        reservation.observe(None, 50);
        assert_eq!(reservation.reserve(None), 100, "no reservation is below the smallest");
    }

    #[test]
    fn a_stream_without_a_hint_teaches_nothing_about_hints() {
        let mut reservation = Reservation::default();
        reservation.observe(Some(10), 10);
        let trust = reservation.trust();
        reservation.observe(None, 4_000);
        assert!((reservation.trust() - trust).abs() < 1e-12);
    }
}
