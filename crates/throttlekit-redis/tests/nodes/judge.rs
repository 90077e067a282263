//! Checks the admissions of all nodes by what is certain about their times.
//!
//! An admission was decided somewhere between two readings of the machine's clock. It counts for an interval
//! only if both lie in it; so nodes that keep their bound never fail, whatever their faults. An admission
//! across an edge is not lost either: it counts for every longer interval that contains it.

use std::time::Duration;

use super::Admission;
use super::demand::{Phase, phase};

/// Guarantee `lease-coupled`: in any consecutive windows, at most the limit times their number.
///
/// If each window has its limit or less, so has every run of them; and if a run has more, no assignment of
/// its admissions to the windows keeps the limit in each.
pub(crate) struct Windows {
    limit: u64,
    length: u64,
    first: u64,
    /// The admissions certainly in each window.
    pub(crate) certain: Vec<u64>,
    /// The admissions possibly in each window.
    possible: Vec<u64>,
    pub(crate) admitted: u64,
    /// The admissions across an edge.
    pub(crate) across: u64,
    /// The excess of the worst run of windows over its limits.
    pub(crate) beyond: u64,
}

impl Windows {
    pub(crate) fn of(admissions: &[Admission], limit: u64, length: Duration) -> Self {
        let length = length.as_micros() as u64;
        let of = |at: u64| at / length;
        let first = admissions.iter().map(|one| of(one.from)).min().unwrap_or(0);
        let last = admissions.iter().map(|one| of(one.to)).max().unwrap_or(0);
        let count = (last - first + 1) as usize;
        let mut by_start = vec![Vec::new(); count];
        let mut windows = Self {
            limit,
            length,
            first,
            certain: vec![0; count],
            possible: vec![0; count],
            admitted: 0,
            across: 0,
            beyond: 0,
        };
        for one in admissions {
            let (from, to) = ((of(one.from) - first) as usize, (of(one.to) - first) as usize);
            by_start[from].push((to, one.cost));
            windows.admitted += one.cost;
            windows.possible[from..=to].iter_mut().for_each(|units| *units += one.cost);
            match from == to {
                true => windows.certain[from] += one.cost,
                false => windows.across += one.cost,
            }
        }
        windows.beyond = beyond(&by_start, limit);
        windows
    }

    pub(crate) fn most(&self) -> u64 {
        self.certain.iter().copied().max().unwrap_or(0)
    }

    /// Returns the certain and the possible admissions in each window that lies completely in this time and
    /// in which demand was far above the limit.
    pub(crate) fn brisk(&self, (begin, end): (u64, u64)) -> Vec<(u64, u64)> {
        let whole = |number: u64| number * self.length >= begin && (number + 1) * self.length <= end;
        let counts = self.certain.iter().copied().zip(self.possible.iter().copied());
        let numbered = counts.zip(self.first..);
        numbered.filter(|(_, n)| whole(*n) && phase(*n) == Phase::Brisk).map(|(units, _)| units).collect()
    }

    /// Returns the numbers for a table: of the windows of brisk demand, those that were certainly and
    /// possibly used in full.
    pub(crate) fn facts(&self, whole: (u64, u64)) -> Vec<(&'static str, u64)> {
        let brisk = self.brisk(whole);
        let count =
            |full: &dyn Fn(&(u64, u64)) -> bool| brisk.iter().filter(|units| full(units)).count() as u64;
        let used = brisk.iter().map(|(certain, _)| certain).sum::<u64>();
        vec![
            ("windows", self.certain.len() as u64),
            ("admitted", self.admitted),
            ("bound", self.limit),
            ("most", self.most()),
            ("beyond", self.beyond),
            ("across", self.across),
            ("brisk", brisk.len() as u64),
            ("full", count(&|(certain, _)| *certain == self.limit)),
            ("maybe_full", count(&|(_, possible)| *possible >= self.limit)),
            ("used_percent", used * 100 / (brisk.len() as u64 * self.limit).max(1)),
        ]
    }
}

/// Returns the maximum excess of any run of windows over its limits, by the window in which each admission's
/// time ends.
fn beyond(by_start: &[Vec<(usize, u64)>], limit: u64) -> u64 {
    let mut ending = vec![0; by_start.len()];
    let mut worst = 0;
    for (start, admissions) in by_start.iter().enumerate().rev() {
        admissions.iter().for_each(|&(end, cost)| ending[end] += cost);
        let (mut units, mut allowed) = (0_u64, 0);
        for inside in &ending[start..] {
            units += inside;
            allowed += limit;
            worst = worst.max(units.saturating_sub(allowed));
        }
    }
    worst
}

/// Guarantee `lease-rolling`: in any interval Δ, burst + rate·Δ + rate·h.
pub(crate) struct Rolling {
    pub(crate) admitted: u64,
    /// The maximum excess of an interval over rate·Δ, in millionths of a unit.
    most_micro: i64,
}

const MICRO: i64 = 1_000_000;
/// Less than any sum, and far enough from the end of the range to be added to.
const NONE: i64 = i64::MIN / 4;

impl Rolling {
    /// Intervals start where an admission's time starts, and end where one ends.
    ///
    /// Over intervals that start at the p-th instant, the count is a sum from p on: the cost of each
    /// admission seen so far, minus what refills until the next instant. The largest such sum is kept in a
    /// tree.
    pub(crate) fn of(admissions: &[Admission], per_second: u32) -> Self {
        let mut by_start = admissions.to_vec();
        by_start.sort_unstable_by_key(|one| one.from);
        let mut by_end: Vec<usize> = (0..by_start.len()).collect();
        by_end.sort_unstable_by_key(|&place| by_start[place].to);
        // A unit is a million; in one microsecond the rate's number of them refills.
        let back = |from: u64, to: u64| (to - from) as i64 * i64::from(per_second);
        let (mut sums, mut begun, mut most_micro) = (Suffixes::new(by_start.len()), 0, 0);
        for place in by_end {
            let end = by_start[place].to;
            while begun < by_start.len() && by_start[begun].from <= end {
                sums.add(begun, 0);
                if begun > 0 {
                    sums.add(begun - 1, -back(by_start[begun - 1].from, by_start[begun].from));
                }
                begun += 1;
            }
            sums.add(place, by_start[place].cost as i64 * MICRO);
            most_micro = most_micro.max(sums.best() - back(by_start[begun - 1].from, end));
        }
        Self { admitted: admissions.iter().map(|one| one.cost).sum(), most_micro }
    }

    /// Returns the units beyond rate·Δ in the worst interval, rounded up.
    pub(crate) fn most(&self) -> u64 {
        (self.most_micro.max(0) as u64).div_ceil(MICRO as u64)
    }
}

/// Numbers with the largest sum of a suffix. A suffix starts at a number that was set.
struct Suffixes {
    /// The sum and the best suffix of each node of a tree; leaves are the second half.
    tree: Vec<(i64, i64)>,
}

impl Suffixes {
    fn new(numbers: usize) -> Self {
        Self { tree: vec![(0, NONE); 2 * numbers.next_power_of_two()] }
    }

    fn add(&mut self, place: usize, by: i64) {
        let mut at = self.tree.len() / 2 + place;
        let sum = self.tree[at].0 + by;
        self.tree[at] = (sum, sum);
        while at > 1 {
            at /= 2;
            let (left, right) = (self.tree[2 * at], self.tree[2 * at + 1]);
            self.tree[at] = (left.0 + right.0, right.1.max(right.0 + left.1));
        }
    }

    fn best(&self) -> i64 {
        self.tree[1].1
    }
}
