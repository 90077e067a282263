//! A request to an authority.

use crate::Cost;
use crate::rate::shared::ScriptEncoding;

/// A learned reservation is at most `1/LEARNED_PART` of the limit, so that this many streams can hold one at a time.
const LEARNED_PART: u64 = 4;
/// The same bound for a guessed reservation.
const GUESSED_PART: u64 = 32;
/// A learned or guessed reservation is denied only while less than `1/LEAST_PART` of the limit is left.
const LEAST_PART: u64 = 20;

/// Units that a holder requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Want {
    /// Number of units wanted.
    pub wants: Cost,
    /// Smallest useful number of units: if fewer are left none are lent, except by a token budget with any left. That
    /// lends this many in full, which may cross its edge: only the owner of the budget may do that.
    pub least: Cost,
    /// Divisor: at most `1/share` of what is left is lent, so that the last units are shared; but `least` in any case.
    pub share: u64,
}

impl Want {
    /// Requests all of these units or none.
    pub fn whole(units: Cost) -> Self {
        let units = units.max(1);
        Self { wants: units, least: units, share: 1 }
    }

    /// A reservation of up to `wish` units, learned from the earlier use of the same key.
    ///
    /// For any wish, at most a quarter of the limit is reserved, and the reservation is denied only while less than a
    /// twentieth of the limit is left. So a wish that is too large leaves at most a twentieth unused.
    pub fn learned(wish: Cost, limit: Cost) -> Self {
        Self::part(wish, limit, LEARNED_PART)
    }

    /// A reservation of up to `wish` units where nothing is known of the key: at most 1/32 of the limit is reserved,
    /// all or none.
    pub fn guessed(wish: Cost, limit: Cost) -> Self {
        Self::part(wish, limit, GUESSED_PART)
    }

    fn part(wish: Cost, limit: Cost, part: u64) -> Self {
        let wants = wish.min(limit / part).max(1);
        Self { wants, least: wants.min(limit / LEAST_PART).max(1), share: 1 }
    }
}

impl ScriptEncoding {
    /// Clamps a want to numbers that a script carries exactly. The response is the same as for the want itself.
    pub fn clamped(&self, want: Want) -> Want {
        let (units, cost_max) = (self.limit().units(), self.limit().cost_max());
        let least = want.least.clamp(1, cost_max + 1);
        Want { wants: want.wants.clamp(least, units.max(least)), least, share: want.share.clamp(1, units) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_wish_is_reserved_whole_or_not_at_all() {
        for want in [Want::learned(50, 1_000), Want::guessed(50, 1_600), Want::whole(50)] {
            assert_eq!(want, Want { wants: 50, least: 50, share: 1 });
        }
    }

    #[test]
    fn a_large_wish_is_cut_to_a_part_of_the_limit_and_needs_a_twentieth_of_it() {
        assert_eq!(Want::learned(u64::MAX, 1_000), Want { wants: 250, least: 50, share: 1 });
        assert_eq!(Want::guessed(u64::MAX, 1_000), Want { wants: 31, least: 31, share: 1 });
        assert_eq!(Want::whole(u64::MAX).least, u64::MAX);
    }

    #[test]
    fn at_least_one_unit_is_wanted_so_that_a_spent_limit_lends_nothing() {
        let one = Want { wants: 1, least: 1, share: 1 };
        for (wish, limit) in [(0, 1_000), (0, 1), (9, 1), (9, 3), (9, 0)] {
            assert_eq!([Want::learned(wish, limit), Want::guessed(wish, limit)], [one; 2]);
        }
        assert_eq!(Want::whole(0), one);
    }
}
