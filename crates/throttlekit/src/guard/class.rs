//! Classes of work: who may use the last of the slots.

/// Which class of work asks. The first may use every slot; each further one leaves some to those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(u8);

impl Class {
    /// The class that may use every slot: the only one unless a builder adds more.
    pub const FIRST: Self = Self(0);
    /// How many classes a guard may have.
    pub const COUNT_MAX: usize = 8;

    /// The class at this place, counted from zero. A guard that has fewer takes it for its last.
    pub const fn at(place: u8) -> Self {
        Self(place)
    }

    pub(super) fn place(self) -> usize {
        usize::from(self.0)
    }
}

/// What is kept from a class, in thousandths of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kept(u16);

const THOUSAND: u16 = 1_000;

impl Kept {
    pub(super) const NOTHING: Self = Self(0);

    /// Never the whole: where there is a slot at all, each class may use one.
    pub(super) fn thousandths(of_limit: u16) -> Self {
        Self(of_limit.min(THOUSAND - 1))
    }

    /// How many the class may use of a limit; below zero where the limit is. What is kept is rounded down.
    #[inline(always)]
    pub(super) fn leaves(self, limit: i64) -> i64 {
        limit - limit * i64::from(self.0) / i64::from(THOUSAND)
    }
}

/// What is kept from each class, which never falls from one to the next.
#[derive(Clone, Debug)]
pub(super) struct Classes {
    kept: [Kept; Class::COUNT_MAX],
    count: usize,
}

impl Classes {
    pub(super) fn only() -> Self {
        Self { kept: [Kept::NOTHING; Class::COUNT_MAX], count: 1 }
    }

    /// Adds one after the last, if there is room for it.
    pub(super) fn add(&mut self, kept: Kept) {
        if self.count < Class::COUNT_MAX {
            let kept = kept.max(self.kept[self.count - 1]);
            self.kept[self.count..].fill(kept);
            self.count += 1;
        }
    }

    #[inline(always)]
    pub(super) fn kept(&self, class: Class) -> Kept {
        self.kept[class.place().min(Class::COUNT_MAX - 1)]
    }

    pub(super) fn kept_at(&self, place: usize) -> Kept {
        self.kept[place]
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The place of a class that this guard has.
    pub(super) fn place(&self, class: Class) -> usize {
        class.place().min(self.count - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_may_use_a_slot_where_there_is_one() {
        let kept = Kept::thousandths(1_000);
        assert_eq!([0, 1, 2, 999, 1_000, 2_000].map(|limit| kept.leaves(limit)), [0, 1, 1, 1, 1, 2]);
        assert!(kept.leaves(-5) < 0);
    }

    #[test]
    fn no_class_keeps_less_than_one_before_it() {
        let mut classes = Classes::only();
        for kept in [300, 100, 500] {
            classes.add(Kept::thousandths(kept));
        }
        let kept = [0, 1, 2, 3, 4, 200].map(|place| classes.kept(Class::at(place)).0);
        assert_eq!(kept, [0, 300, 300, 500, 500, 500]);
        assert_eq!(classes.place(Class::at(200)), 3);
    }
}
