//! The guarantee of what a server decides, over several policies.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use throttlekit::Guarantee;
use throttlekit::internals::Mutex;

/// The guarantee that the server last reported for each policy. A store reports the weakest, which holds for all.
#[derive(Default)]
pub(crate) struct Guarantees {
    /// As many as there are policies that limiters use, so few.
    by_policy: Mutex<HashMap<Box<str>, Guarantee>>,
    /// The weakest of them as a number, which is read with every request.
    weakest: AtomicU64,
}

impl Guarantees {
    pub(crate) fn note(&self, policy: &str, guarantee: Guarantee) {
        let mut by_policy = self.by_policy.lock();
        if by_policy.get(policy) == Some(&guarantee) {
            return;
        }
        by_policy.insert(policy.into(), guarantee);
        let weakest = by_policy.values().copied().fold(Guarantee::Exact, Guarantee::weaker);
        self.weakest.store(number(weakest), Relaxed);
    }

    pub(crate) fn weakest(&self) -> Guarantee {
        from_number(self.weakest.load(Relaxed))
    }
}

const LOCAL: u64 = u64::MAX;
const OPEN: u64 = u64::MAX - 1;
const CLOSED: u64 = u64::MAX - 2;

fn number(guarantee: Guarantee) -> u64 {
    match guarantee {
        Guarantee::Exact => 0,
        Guarantee::Bounded(over) => over.clamp(1, CLOSED - 1),
        Guarantee::Local => LOCAL,
        Guarantee::Open => OPEN,
        Guarantee::Closed => CLOSED,
    }
}

fn from_number(number: u64) -> Guarantee {
    match number {
        0 => Guarantee::Exact,
        LOCAL => Guarantee::Local,
        OPEN => Guarantee::Open,
        CLOSED => Guarantee::Closed,
        over => Guarantee::Bounded(over),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guarantee_survives_its_number() {
        let bounds =
            [Guarantee::Exact, Guarantee::Bounded(7), Guarantee::Local, Guarantee::Open, Guarantee::Closed];
        for guarantee in bounds {
            assert_eq!(from_number(number(guarantee)), guarantee);
        }
    }

    #[test]
    fn the_weakest_of_all_policies_is_reported_until_it_recovers() {
        let guarantees = Guarantees::default();
        assert_eq!(guarantees.weakest(), Guarantee::Exact);
        guarantees.note("api", Guarantee::Bounded(7));
        guarantees.note("chat", Guarantee::Exact);
        assert_eq!(guarantees.weakest(), Guarantee::Bounded(7));
        guarantees.note("api", Guarantee::Exact);
        assert_eq!(guarantees.weakest(), Guarantee::Exact);
    }
}
