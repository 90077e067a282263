//! Clocks that are off, drift and tick coarsely.

use core::time::Duration;

use throttlekit_core::Timestamp;

const MILLION: i128 = 1_000_000;

/// How a clock shows true time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Clock {
    /// What it shows at true time zero, in nanoseconds.
    pub offset: i128,
    /// How much faster than time it runs, in parts per million.
    pub ppm: i32,
    /// It shows multiples of this many nanoseconds, and so may read behind by less than that. Zero: of one.
    pub grain: u64,
}

impl Clock {
    /// What it shows at true time `now`.
    pub fn read(&self, now: Timestamp) -> Timestamp {
        let shown = (self.offset + i128::from(self.ran(now))).max(0) as u64;
        Timestamp::from_nanos(shown - shown % self.grain.max(1))
    }

    /// How far it has run by `now`, steps aside.
    pub fn ran(&self, now: Timestamp) -> u64 {
        let now = i128::from(now.as_nanos());
        (now + now * i128::from(self.ppm) / MILLION).max(0) as u64
    }

    /// Sets it forward or back.
    pub fn step(&mut self, by_ms: i64) {
        self.offset += i128::from(by_ms) * i128::from(Duration::from_millis(1).as_nanos() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_drifts_steps_and_reads_behind_by_less_than_its_grain() {
        let at = Timestamp::from_millis;
        let mut clock = Clock { offset: 5_000_000, ppm: 100_000, grain: 4_000_000 };
        assert_eq!(clock.read(at(10)), at(16));
        assert_eq!(clock.read(at(13)), at(16));
        clock.step(-100);
        assert_eq!(clock.read(at(13)), at(0));
    }
}
