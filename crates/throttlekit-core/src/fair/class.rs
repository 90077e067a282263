//! The members of one weight, by their use.

use alloc::collections::BTreeMap;

use super::Weight;

/// All members of one weight. They have one guarantee, so what is reserved for them together follows from how many are
/// below it and what those have used.
///
/// Members are counted by their use, not listed: when the guarantee moves, the cost is the number of different uses
/// that it passes, also where thousands of members are at each. And only members whose use is near the guarantee or
/// beyond it are *filed* so: those with a use of `file_from` and more, and perhaps some below. Most requests are by
/// members that have used little, and change two sums and nothing else.
#[derive(Clone, Debug)]
pub(super) struct Class {
    pub(super) weight: Weight,
    /// The guarantee of `below` and `below_used`. It may be out of date; see `stamp`.
    pub(super) guarantee: u64,
    pub(super) stamp: u64,
    pub(super) members: u32,
    /// Use from which members are filed; never above the guarantee.
    pub(super) file_from: u64,
    /// Number of filed members at each use.
    at: BTreeMap<u64, u32>,
    /// Of the members whose use is less than the guarantee: how many, and what they have used.
    below: u64,
    below_used: u64,
}

impl Class {
    pub(super) const fn new(weight: Weight, file_from: u64) -> Self {
        let at = BTreeMap::new();
        Self { weight, guarantee: file_from, stamp: 0, members: 0, file_from, at, below: 0, below_used: 0 }
    }

    /// Returns what is reserved for the members together, by the guarantee it holds.
    pub(super) fn reserve(&self) -> u64 {
        self.below * self.guarantee - self.below_used
    }

    #[inline]
    pub(super) fn add(&mut self, used: u64, filed: bool) {
        self.members += 1;
        if filed {
            self.file(used);
        }
        if used < self.guarantee {
            self.below += 1;
            self.below_used += used;
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, used: u64, filed: bool) {
        self.members -= 1;
        if filed {
            self.unfile(used);
        }
        if used < self.guarantee {
            self.below -= 1;
            self.below_used -= used;
        }
    }

    pub(super) fn file(&mut self, used: u64) {
        *self.at.entry(used).or_insert(0) += 1;
    }

    fn unfile(&mut self, used: u64) {
        if let Some(count) = self.at.get_mut(&used) {
            *count -= 1;
            if *count == 0 {
                self.at.remove(&used);
            }
        }
    }

    /// Moves the guarantee, past the members in between.
    pub(super) fn set_guarantee(&mut self, guarantee: u64) {
        debug_assert!(self.file_from <= guarantee.min(self.guarantee), "members in between are filed");
        let falls = guarantee < self.guarantee;
        let between = if falls { guarantee..self.guarantee } else { self.guarantee..guarantee };
        let (count, used) = self
            .at
            .range(between)
            .fold((0, 0), |(count, sum), (used, &at)| (count + u64::from(at), sum + used * u64::from(at)));
        if falls {
            self.below -= count;
            self.below_used -= used;
        } else {
            self.below += count;
            self.below_used += used;
        }
        self.guarantee = guarantee;
    }
}
