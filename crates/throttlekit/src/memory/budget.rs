//! Memory budget for the keys of a limiter, and its parts.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Capacity for at least two million keys of one word: a key for each 32 bytes is guaranteed. Memory is taken as keys
/// come.
pub(crate) const BUDGET_DEFAULT: usize = 128 << 20;
/// Keys for which a table is allocated at once: 2.4 MiB.
pub(crate) const EXPECTED_KEYS_DEFAULT: usize = 1 << 16;

/// Fraction of a budget, one part in this many, for estimates of keys beyond it. Chosen from the measured curve.
pub(super) const ESTIMATES_PART: usize = 4;

/// Memory that a limiter's keys may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    pub(crate) bytes: usize,
    pub(crate) expected_keys: usize,
}

impl Default for Capacity {
    fn default() -> Self {
        Self { bytes: BUDGET_DEFAULT, expected_keys: EXPECTED_KEYS_DEFAULT }
    }
}

impl Capacity {
    /// Returns the part of each of `limits` limits.
    pub(crate) fn each_of(self, limits: usize) -> Self {
        Self { bytes: self.bytes / limits.max(1), ..self }
    }
}

/// Bytes taken of a budget: by states, and by estimates of keys that got none.
#[derive(Debug)]
pub(crate) struct Budget {
    states: Purpose,
    estimates: Purpose,
}

#[derive(Debug)]
struct Purpose {
    taken: AtomicUsize,
    most: usize,
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Self {
        let estimates = bytes / ESTIMATES_PART;
        let purpose = |most| Purpose { taken: AtomicUsize::new(0), most };
        Self { states: purpose(bytes - estimates), estimates: purpose(estimates) }
    }

    /// Returns the bytes taken.
    pub(crate) fn taken(&self) -> usize {
        self.states.taken.load(Relaxed) + self.estimates.taken.load(Relaxed)
    }

    /// Returns the maximum number of bytes.
    pub(crate) fn most(&self) -> usize {
        self.states.most + self.estimates.most
    }
}

impl Purpose {
    fn take(&self, bytes: usize) -> bool {
        let more = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= self.most);
        self.taken.fetch_update(Relaxed, Relaxed, more).is_ok()
    }
}

/// Bytes that the keys of one limit have taken of a budget that several may share. If dropped, it gives everything
/// back.
pub(super) struct Account {
    budget: Arc<Budget>,
    states: AtomicUsize,
    estimates: AtomicUsize,
}

impl Account {
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self { budget, states: AtomicUsize::new(0), estimates: AtomicUsize::new(0) }
    }

    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Takes bytes for states if enough are left.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let taken = self.budget.states.take(bytes);
        self.states.fetch_add(if taken { bytes } else { 0 }, Relaxed);
        taken
    }

    /// Takes bytes for estimates if enough are left.
    pub(super) fn take_for_estimates(&self, bytes: usize) -> bool {
        let taken = self.budget.estimates.take(bytes);
        self.estimates.fetch_add(if taken { bytes } else { 0 }, Relaxed);
        taken
    }

    /// Adds bytes that are taken already. Returns whether they are within the budget.
    pub(super) fn add(&self, bytes: usize) -> bool {
        self.states.fetch_add(bytes, Relaxed);
        self.budget.states.taken.fetch_add(bytes, Relaxed) + bytes <= self.budget.states.most
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.states.fetch_sub(bytes, Relaxed);
        self.budget.states.taken.fetch_sub(bytes, Relaxed);
    }

    pub(super) fn estimates_max(&self) -> usize {
        self.budget.estimates.most
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.budget.states.taken.fetch_sub(*self.states.get_mut(), Relaxed);
        self.budget.estimates.taken.fetch_sub(*self.estimates.get_mut(), Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_never_exceeded_and_refills() {
        let budget = Arc::new(Budget::new(400));
        let (one, other) = (Account::new(Arc::clone(&budget)), Account::new(Arc::clone(&budget)));
        assert!(one.take(200) && other.take(100) && !other.take(1));
        assert!(one.take_for_estimates(100) && !other.take_for_estimates(1));
        one.give_back(10);
        assert!(other.take(10) && !other.add(1));
        assert_eq!((budget.taken(), budget.most()), (401, 400));
        drop(one);
        assert_eq!(budget.taken(), 111);
        drop(other);
        assert_eq!(budget.taken(), 0);
    }
}
