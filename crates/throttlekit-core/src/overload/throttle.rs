//! Shedding at the client: the fewer calls a backend accepts, the fewer are sent.

use core::fmt;
use core::time::Duration;

use crate::Timestamp;
use crate::time::nanos;

/// Sheds calls to a backend that accepts fewer than are sent.
///
/// Over a rolling window it counts how many calls were wanted (`requests`, shed ones among them) and how many the
/// backend accepted. A call is shed with probability
///
/// > max(0, (requests − K·accepts) / (requests + 1)) · (1 − criticality)
///
/// so nothing is shed while at least one in K is accepted, and the backend gets about K times what it accepts however
/// much is wanted. K above 1 sends more than is accepted, which is how a backend that recovers is noticed.
///
/// The window is the current one and as much of the previous as it has not covered yet. Everything is counted in
/// integers; the probability is compared with the random number `dice` from the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Throttle {
    k_thousandths: u32,
    length: u64,
    /// The latest instant seen: time does not move back.
    latest: Timestamp,
    current: Tally,
    previous: Tally,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    requests: u64,
    accepts: u64,
}

/// Importance of a call: the part of the shedding that it is exempt from, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Criticality(u32);

/// Reason why a throttle configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThrottleError {
    /// K is below 1 or above 1000; in thousandths.
    K(u32),
    /// The window is zero or longer than a day.
    Window(Duration),
}

/// Counts stop here, so that no product overflows.
const COUNT_MAX: u64 = 1 << 40;
/// The fineness of the blend of two windows.
const BLEND: u64 = 1 << 20;
const THOUSAND: u32 = 1_000;

impl Criticality {
    /// Shed first: the whole probability applies.
    pub const ORDINARY: Self = Self(0);
    /// Never shed.
    pub const CRITICAL: Self = Self(THOUSAND);

    /// Exempts a call from `spared` thousandths of the shedding; 1000 and more is [`CRITICAL`](Self::CRITICAL).
    pub const fn thousandths(spared: u32) -> Self {
        Self(if spared < THOUSAND { spared } else { THOUSAND })
    }
}

impl Throttle {
    /// The longest window.
    pub const WINDOW_MAX: Duration = Duration::from_secs(86_400);

    /// Creates a throttle that sends up to K times what is accepted, over a window of this length.
    pub fn new(k_thousandths: u32, window: Duration) -> Result<Self, ThrottleError> {
        if !(THOUSAND..=THOUSAND * THOUSAND).contains(&k_thousandths) {
            return Err(ThrottleError::K(k_thousandths));
        }
        if window.is_zero() || window > Self::WINDOW_MAX {
            return Err(ThrottleError::Window(window));
        }
        let (current, previous) = (Tally::default(), Tally::default());
        Ok(Self { k_thousandths, length: nanos(window), latest: Timestamp::EPOCH, current, previous })
    }

    /// Checks whether a call may be sent, given a uniformly random `u32`. Counts it as wanted either way.
    pub fn admit(&mut self, criticality: Criticality, dice: u32, now: Timestamp) -> bool {
        self.move_to(now);
        let (shed, of) = self.shed(criticality);
        self.current.requests = (self.current.requests + 1).min(COUNT_MAX);
        (u128::from(dice) * of) >= (shed << u32::BITS)
    }

    /// Counts a call that the backend accepted.
    pub fn accept(&mut self, now: Timestamp) {
        self.move_to(now);
        self.current.accepts = (self.current.accepts + 1).min(COUNT_MAX);
    }

    /// Returns how many of a million calls of this criticality would be shed now.
    pub fn shed_per_million(&self, criticality: Criticality, now: Timestamp) -> u32 {
        let mut here = self.clone();
        here.move_to(now);
        let (shed, of) = here.shed(criticality);
        (shed * 1_000_000 / of) as u32
    }

    /// The probability of shedding, as a fraction. Both parts stay below 2⁸².
    fn shed(&self, criticality: Criticality) -> (u128, u128) {
        let (requests, accepts) = (self.blended(|t| t.requests), self.blended(|t| t.accepts));
        let wanted = u128::from(requests) * u128::from(THOUSAND);
        let welcome = u128::from(accepts) * u128::from(self.k_thousandths);
        let exposed = u128::from(THOUSAND - criticality.0);
        let all = u128::from(requests + BLEND) * u128::from(THOUSAND);
        (wanted.saturating_sub(welcome) * exposed, all * u128::from(THOUSAND))
    }

    /// The count of the rolling window, in parts of [`BLEND`].
    fn blended(&self, count: fn(&Tally) -> u64) -> u64 {
        let left = self.length - self.latest.as_nanos() % self.length;
        let part = (u128::from(left) * u128::from(BLEND) / u128::from(self.length)) as u64;
        count(&self.current) * BLEND + count(&self.previous) * part
    }

    /// Goes on to `now`, never back.
    fn move_to(&mut self, now: Timestamp) {
        let window = |at: Timestamp| at.as_nanos() / self.length;
        let ahead = window(now).saturating_sub(window(self.latest));
        if ahead > 0 {
            self.previous = if ahead == 1 { self.current } else { Tally::default() };
            self.current = Tally::default();
        }
        self.latest = self.latest.max(now);
    }
}

impl fmt::Display for ThrottleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::K(k) => write!(f, "invalid K of {k} thousandths: expected 1000 to 1000000, commonly 2000"),
            Self::Window(window) => {
                write!(f, "invalid window {window:?} of a throttle: expected 1 ns to 1 day")
            }
        }
    }
}

impl core::error::Error for ThrottleError {}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(10);
    const NOON: Timestamp = Timestamp::from_millis(1_800_000_000_000);
    const HALF: u32 = 1 << 31;

    fn at(seconds: u64) -> Timestamp {
        NOON + Duration::from_secs(seconds)
    }

    /// A throttle with these counts, at noon.
    fn after(requests: u64, accepts: u64) -> Throttle {
        let mut throttle = Throttle::new(2_000, WINDOW).unwrap();
        (0..requests).for_each(|_| _ = throttle.admit(Criticality::ORDINARY, u32::MAX, NOON));
        (0..accepts).for_each(|_| throttle.accept(NOON));
        throttle
    }

    #[test]
    fn throttle_nothing_is_shed_while_half_is_accepted() {
        assert_eq!(after(100, 50).shed_per_million(Criticality::ORDINARY, NOON), 0);
        assert!(after(100, 50).admit(Criticality::ORDINARY, 0, NOON));
        assert!(!after(101, 50).admit(Criticality::ORDINARY, 0, NOON));
    }

    #[test]
    fn throttle_sheds_by_the_formula() {
        // (99 − 2·0) / (99 + 1) = 0.99.
        let throttle = after(99, 0);
        assert_eq!(throttle.shed_per_million(Criticality::ORDINARY, NOON), 990_000);
        assert_eq!(throttle.shed_per_million(Criticality::thousandths(500), NOON), 495_000);
        assert_eq!(throttle.shed_per_million(Criticality::CRITICAL, NOON), 0);
        assert!(throttle.clone().admit(Criticality::CRITICAL, 0, NOON));
        // 39 of 79 calls beyond what is accepted, of 80: 0.4875.
        assert_eq!(after(79, 20).shed_per_million(Criticality::ORDINARY, NOON), 487_500);
        assert!(
            after(79, 20).admit(Criticality::ORDINARY, HALF, NOON)
                && !after(83, 20).admit(Criticality::ORDINARY, HALF, NOON)
        );
    }

    #[test]
    fn throttle_a_window_fades_over_the_next_and_is_gone_after_it() {
        let throttle = after(99, 0);
        let shed = |seconds| throttle.shed_per_million(Criticality::ORDINARY, at(seconds));
        assert_eq!((shed(10), shed(15), shed(20), shed(1_000)), (990_000, 980_198, 0, 0));
    }

    #[test]
    fn clock_back_a_throttle_stays_where_it_is() {
        let mut throttle = after(99, 0);
        assert!(throttle.admit(Criticality::CRITICAL, 0, at(10)));
        let shed = throttle.shed_per_million(Criticality::ORDINARY, at(10));
        assert_eq!(throttle.shed_per_million(Criticality::ORDINARY, Timestamp::EPOCH), shed);
        throttle.accept(Timestamp::EPOCH);
        assert!(throttle.shed_per_million(Criticality::ORDINARY, Timestamp::EPOCH) < shed);
    }

    #[test]
    fn throttle_no_count_overflows() {
        let mut throttle = after(1, 0);
        throttle.current = Tally { requests: COUNT_MAX, accepts: 0 };
        throttle.previous = throttle.current;
        throttle.k_thousandths = THOUSAND * THOUSAND;
        assert!(!throttle.admit(Criticality::ORDINARY, u32::MAX - 1, NOON));
        assert_eq!(throttle.current.requests, COUNT_MAX);
        assert!(Throttle::new(999, WINDOW).is_err() && Throttle::new(2_000, Duration::MAX).is_err());
    }
}
