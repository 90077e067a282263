//! Clocks with an offset, a drift and a coarse resolution.

use core::time::Duration;

use throttlekit_core::Timestamp;

const MILLION: i128 = 1_000_000;

/// The mapping from true time to a clock's reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Clock {
    /// The reading at true time zero, in nanoseconds.
    pub offset: i128,
    /// The drift, in parts per million; positive is fast.
    pub ppm: i32,
    /// The resolution in nanoseconds: readings are multiples of it, and so lag by less than it. Zero counts
    /// as one.
    pub grain: u64,
}

impl Clock {
    /// Returns the reading at true time `now`.
    pub fn read(&self, now: Timestamp) -> Timestamp {
        let shown = (self.offset + i128::from(self.ran(now))).max(0) as u64;
        Timestamp::from_nanos(shown - shown % self.grain.max(1))
    }

    /// Returns the time it has counted by `now`, without steps.
    pub fn ran(&self, now: Timestamp) -> u64 {
        let now = i128::from(now.as_nanos());
        (now + now * i128::from(self.ppm) / MILLION).max(0) as u64
    }

    /// Steps it forward or back.
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
