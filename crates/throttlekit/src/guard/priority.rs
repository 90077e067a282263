//! The part of the limit that is withheld from each priority.

use crate::Priority;

/// The part of the limit withheld from a priority, in parts of 2³².
///
/// A product and a shift on the request path, where a division would delay the atomic word. Thousandths are rounded up,
/// so that the withheld part is exact for limits below four million, and at most one more beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kept(u32);

const THOUSAND: u64 = 1_000;
const PARTS_BITS: u32 = 32;

impl Kept {
    pub(super) const NOTHING: Self = Self(0);

    /// Never the whole limit: if there is a slot at all, each priority may use one.
    pub(super) fn thousandths(of_limit: u16) -> Self {
        let thousandths = u64::from(of_limit).min(THOUSAND - 1);
        Self((thousandths << PARTS_BITS).div_ceil(THOUSAND) as u32)
    }

    /// Returns how many slots the priority may use of a limit; zero if the limit is below zero. The withheld part is
    /// rounded down.
    #[inline(always)]
    pub(super) fn leaves(self, limit: i64) -> i64 {
        limit - ((limit * i64::from(self.0)) >> PARTS_BITS)
    }
}

/// The part withheld from each priority, which never decreases from one to the next.
#[derive(Clone, Debug)]
pub(super) struct Priorities {
    kept: [Kept; Priority::LEVELS_MAX],
    count: usize,
}

impl Priorities {
    pub(super) fn only() -> Self {
        Self { kept: [Kept::NOTHING; Priority::LEVELS_MAX], count: 1 }
    }

    /// Adds a priority after the last, if there is capacity for it.
    pub(super) fn add(&mut self, kept: Kept) {
        if self.count < Priority::LEVELS_MAX {
            let kept = kept.max(self.kept[self.count - 1]);
            self.kept[self.count..].fill(kept);
            self.count += 1;
        }
    }

    #[inline(always)]
    pub(super) fn kept(&self, priority: Priority) -> Kept {
        self.kept[priority.level().min(Priority::LEVELS_MAX - 1)]
    }

    pub(super) fn kept_at(&self, place: usize) -> Kept {
        self.kept[place]
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the index of a priority in this guard.
    pub(super) fn place(&self, priority: Priority) -> usize {
        priority.level().min(self.count - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_may_use_a_slot_where_there_is_one() {
        let kept = Kept::thousandths(1_000);
        assert_eq!([0, 1, 2, 999, 1_000, 2_000].map(|limit| kept.leaves(limit)), [0, 1, 1, 1, 1, 2]);
        assert!([-1, -5, -100_000_000].iter().all(|&limit| kept.leaves(limit) <= 0));
    }

    #[test]
    fn the_reserved_part_is_in_thousandths_rounded_down() {
        for thousandths in [1, 7, 100, 333, 500, 999] {
            let kept = Kept::thousandths(thousandths);
            for limit in (0..5_000).chain(4_000_000 - 5_000..4_000_000) {
                let exact = limit - limit * i64::from(thousandths) / 1_000;
                assert_eq!(kept.leaves(limit), exact, "{thousandths} of {limit}");
            }
        }
    }

    #[test]
    fn no_class_keeps_less_than_one_before_it() {
        let mut priorities = Priorities::only();
        for kept in [300, 100, 500] {
            priorities.add(Kept::thousandths(kept));
        }
        let left = [0, 1, 2, 3, 4, 200].map(|place| priorities.kept(Priority::new(place)).leaves(1_000));
        assert_eq!(left, [1_000, 700, 700, 500, 500, 500]);
        assert_eq!(priorities.place(Priority::new(200)), 3);
    }
}
