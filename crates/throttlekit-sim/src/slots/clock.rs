//! A clock that begins anywhere and drifts.

use throttlekit_core::Timestamp;

use crate::dice::Dice;

pub(super) const MILLI: u64 = 1_000_000;

/// Shows `begins` at the beginning and counts `ppm` millionths too much.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    begins: u64,
    ppm: i64,
}

impl Clock {
    /// A clock that drifts as fast as is allowed, one way or the other, or not at all.
    pub(super) fn draw(dice: &mut Dice, ppm_max: u32) -> Self {
        let begins = dice.within(1_000, 9_000) * MILLI + dice.below(MILLI);
        Self { begins, ppm: dice.pick(&[-1, 1, 1, 0]) * i64::from(ppm_max) }
    }

    /// What it shows when so much time has truly passed.
    pub(super) fn read(&self, now: u64) -> Timestamp {
        let drift = i128::from(now) * i128::from(self.ppm) / 1_000_000;
        Timestamp::from_nanos((i128::from(self.begins) + i128::from(now) + drift) as u64)
    }

    /// The first true instant at which it shows as much.
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
