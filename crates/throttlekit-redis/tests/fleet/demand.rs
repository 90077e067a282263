//! When a node's callers ask: little in one beat, then more than the limit in the next two.
//!
//! Units fetched in the light beat and held on to are what would pass beyond the limit in the heavy one.

use std::time::Duration;

use throttlekit_conformance::Dice;

/// One beat in so many is light.
pub(crate) const BEATS: u64 = 3;

/// Whether few ask in this beat.
pub(crate) fn is_light(beat: u64) -> bool {
    beat.is_multiple_of(BEATS)
}

/// How long a caller waits before it asks again.
pub(crate) fn pause(now_micros: u64, beat: Duration, admitted: bool, dice: &mut Dice) -> Duration {
    let length = beat.as_micros() as u64;
    let (number, gone) = (now_micros / length, now_micros % length);
    if is_light(number) {
        // Not beyond the first tenth of the next beat.
        return Duration::from_micros(dice.between(length / 4, length / 2).min(length - gone + length / 10));
    }
    match admitted {
        false => Duration::from_millis(dice.between(2, 4)),
        true if dice.once_in(4) => Duration::from_millis(1),
        true => Duration::ZERO,
    }
}
