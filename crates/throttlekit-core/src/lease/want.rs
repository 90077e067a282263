//! What is requested of an authority.

use crate::Cost;
use crate::rate::shared::SharedForm;

/// A learned reservation is at most one part in this many of the limit: so many streams hold one at the same time.
const LEARNED_PART: u64 = 4;
/// The same of a reservation that is a guess.
const GUESSED_PART: u64 = 32;
/// A reservation that is learned or guessed is denied only while less than one part in this many of the limit is left.
const LEAST_PART: u64 = 20;

/// What a holder asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Want {
    /// As many units as this.
    pub wants: Cost,
    /// Fewer than this help nobody: then none are lent, but by a token budget of which any are left. That lends this
    /// many in full, which may cross its edge: whoever keeps the budget may, and nobody else.
    pub least: Cost,
    /// At most one part in so many of what is left, so that the last units go round; but `least` in any case.
    pub share: u64,
}

impl Want {
    /// All of these units or none.
    pub fn whole(units: Cost) -> Self {
        let units = units.max(1);
        Self { wants: units, least: units, share: 1 }
    }

    /// A reservation of up to `wish` units, learned from how much the same key used before.
    ///
    /// However wrong the wish is, at most a quarter of the limit is reserved, and the reservation is denied only while
    /// less than a twentieth of the limit is left. So a wish that is too large leaves at most a twentieth unused.
    pub fn learned(wish: Cost, limit: Cost) -> Self {
        Self::part(wish, limit, LEARNED_PART)
    }

    /// A reservation of up to `wish` units where nothing is known of the key: at most one part in 32 of the
    /// limit is reserved, all or none.
    pub fn guessed(wish: Cost, limit: Cost) -> Self {
        Self::part(wish, limit, GUESSED_PART)
    }

    fn part(wish: Cost, limit: Cost, part: u64) -> Self {
        let wants = wish.min(limit / part).max(1);
        Self { wants, least: wants.min(limit / LEAST_PART).max(1), share: 1 }
    }
}

impl SharedForm {
    /// Clamps a want to numbers that a script carries exactly. It is answered as the want itself.
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
