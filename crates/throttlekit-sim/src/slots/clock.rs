//! A clock with an offset and a drift.

use throttlekit_core::Timestamp;

use crate::dice::Dice;

pub(super) const MILLI: u64 = 1_000_000;

/// Reads `begins` at time zero and counts `ppm` millionths too much.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    begins: u64,
    ppm: i64,
}

impl Clock {
    /// Draws a clock with the maximum allowed drift in either direction, or none.
    pub(super) fn draw(dice: &mut Dice, ppm_max: u32) -> Self {
        let begins = dice.within(1_000, 9_000) * MILLI + dice.below(MILLI);
        Self { begins, ppm: dice.pick(&[-1, 1, 1, 0]) * i64::from(ppm_max) }
    }

    /// Returns the reading at true time `now`.
    pub(super) fn read(&self, now: u64) -> Timestamp {
        let drift = i128::from(now) * i128::from(self.ppm) / 1_000_000;
        Timestamp::from_nanos((i128::from(self.begins) + i128::from(now) + drift) as u64)
    }

    /// Returns the first true instant at which the reading is `shows`.
    pub(super) fn when(&self, shows: Timestamp) -> u64 {
        let shown = i128::from(shows.as_nanos()) - i128::from(self.begins);
        let mut now = (shown * 1_000_000 / (1_000_000 + i128::from(self.ppm))).max(0) as u64;
        while self.read(now) < shows {
            now += 1;
        }
        now
    }

    pub(super) fn drifts(&self) -> bool {
        self.ppm != 0
    }
}
