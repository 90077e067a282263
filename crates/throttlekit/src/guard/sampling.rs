//! The sampling rate of latencies: all at low rates, one in sixteen at high rates.

use std::time::Duration;

use throttlekit_core::Timestamp;

use super::count::TURNS;

/// Number of completed calls over which the rate is measured.
const WINDOW: u32 = 256;
/// Time for that many calls below which the rate is high: more than 20,000 a second.
const FAST: Duration = Duration::from_nanos(WINDOW as u64 * 1_000_000_000 / 20_000);
/// Time for that many calls above which the rate is low again: less than 10,000 a second.
const SLOW: Duration = Duration::from_nanos(WINDOW as u64 * 1_000_000_000 / 10_000);
const _: () = assert!(FAST.as_nanos() < SLOW.as_nanos() && WINDOW.is_multiple_of(TURNS));

/// Every turn is timed.
pub(super) const ALL: u32 = TURNS;
/// One turn in sixteen is timed.
pub(super) const FEW: u32 = 1;

/// The rate of completed calls, measured from those that are sampled.
#[derive(Debug, Default)]
pub(super) struct SamplingRate {
    since: Timestamp,
    endings: u32,
}

impl SamplingRate {
    /// Returns the number of turns to time from now on, after `endings` more completed calls while `timed` were.
    ///
    /// The window restarts with each verdict. While few are timed, each sampled call is checked: a load that ends is
    /// detected by the next one, at most sixteen admissions later, and one that turns into drops at once.
    pub(super) fn after(&mut self, endings: u32, timed: u32, now: Timestamp) -> u32 {
        let took = now.since(self.since);
        self.endings = self.endings.saturating_add(endings);
        let next = match timed {
            ALL if self.endings >= WINDOW && took < FAST => FEW,
            FEW if took > SLOW => ALL,
            same => same,
        };
        if self.endings >= WINDOW || next != timed {
            *self = Self { since: now, endings: 0 };
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(
        pace: &mut SamplingRate,
        mut timed: u32,
        samples: u32,
        apart: Duration,
        now: &mut Timestamp,
    ) -> u32 {
        for _ in 0..samples {
            *now = *now + apart;
            timed = pace.after(TURNS / timed, timed, *now);
        }
        timed
    }

    #[test]
    fn every_ending_is_timed_below_the_pace_and_one_in_sixteen_above() {
        let (mut pace, mut now) = (SamplingRate::default(), Timestamp::from_millis(1_000));
        let timed = played(&mut pace, ALL, 10_000, Duration::from_micros(51), &mut now);
        assert_eq!(timed, ALL, "19,600 a second");
        let timed = played(&mut pace, timed, 2 * WINDOW, Duration::from_micros(49), &mut now);
        assert_eq!(timed, FEW, "20,400 a second");
        let timed = played(&mut pace, timed, 10_000, Duration::from_micros(16 * 99), &mut now);
        assert_eq!(timed, FEW, "10,100 a second");
        let timed = played(&mut pace, timed, 2 * WINDOW / TURNS, Duration::from_micros(16 * 101), &mut now);
        assert_eq!(timed, ALL, "9,900 a second");
    }

    #[test]
    fn a_load_that_ceases_is_noticed_by_the_next_sample() {
        let (mut pace, mut now) = (SamplingRate::default(), Timestamp::from_millis(1_000));
        assert_eq!(played(&mut pace, ALL, 2 * WINDOW, Duration::from_micros(1), &mut now), FEW);
        assert_eq!(played(&mut pace, FEW, 1, Duration::from_secs(1), &mut now), ALL);
    }

    #[test]
    fn a_load_that_turns_into_a_few_drops_is_noticed_by_the_first() {
        let (mut pace, mut now) = (SamplingRate::default(), Timestamp::from_millis(1_000));
        assert_eq!(played(&mut pace, ALL, 2 * WINDOW, Duration::from_micros(1), &mut now), FEW);
        assert_eq!(pace.after(1, FEW, now + Duration::from_secs(1)), ALL);
    }
}
