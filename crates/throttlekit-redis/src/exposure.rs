//! Charges that failovers lost, and those that the next one could lose.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use throttlekit::Guarantee;
use throttlekit::internals::Mutex;
use throttlekit::rate::Timestamp;

use crate::unreplicated::UnreplicatedCharges;

/// Maximum number of separately tracked changes. Further ones within a window count as one.
const RECENT_MAX: usize = 64;

/// Units charged by this process that failovers may lose. Other processes have their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exposure {
    /// Maximum loss if every primary failed now.
    pub at_risk: u64,
    /// Maximum loss by changes of primaries, since the store was created.
    pub lost_max: u64,
    /// Number of changes of a primary: another was promoted, it restarted, or it was demoted.
    pub changes: u64,
}

/// The charges of all servers combined.
#[derive(Default)]
pub(crate) struct FailoverRecords {
    ledgers: Mutex<Vec<Weak<UnreplicatedCharges>>>,
    lost: Mutex<Lost>,
    /// Set if there is any recent change: most responses need no further check.
    changed: AtomicBool,
    /// The store's time at its last response, in µs.
    now: AtomicU64,
    /// The longest period for which a limit charged so far counts, in µs.
    longest: AtomicU64,
}

#[derive(Default)]
struct Lost {
    units: u64,
    changes: u64,
    recent: Vec<Change>,
}

struct Change {
    units: u64,
    /// The store's time at the first response after it, in µs.
    at: Option<u64>,
}

impl FailoverRecords {
    pub(crate) fn add(&self, ledger: &Arc<UnreplicatedCharges>) {
        let mut ledgers = self.ledgers.lock();
        ledgers.retain(|ledger| ledger.strong_count() > 0);
        ledgers.push(Arc::downgrade(ledger));
    }

    /// Records a change of a primary, with the number of units not known to be replicated.
    pub(crate) fn change(&self, units: u64) {
        let mut lost = self.lost.lock();
        lost.units = lost.units.saturating_add(units);
        lost.changes += 1;
        if lost.recent.len() < RECENT_MAX {
            lost.recent.push(Change { units, at: None });
        } else if let Some(last) = lost.recent.last_mut() {
            *last = Change { units: last.units.saturating_add(units), at: None };
        }
        self.changed.store(true, Relaxed);
    }

    /// Records a response about limits that count for at most `longest` µs.
    pub(crate) fn answered_for(&self, now: Timestamp, longest: u64) {
        self.now.store(now.as_micros(), Relaxed);
        self.longest.fetch_max(longest, Relaxed);
        if self.changed.load(Relaxed) {
            let dated = |change: &mut Change| _ = change.at.get_or_insert(now.as_micros());
            self.lost.lock().recent.iter_mut().for_each(dated);
        }
    }

    /// Returns the store's time and the longest period for which a limit counts, in µs.
    pub(crate) fn time(&self) -> (u64, u64) {
        (self.now.load(Relaxed), self.longest.load(Relaxed))
    }

    /// Returns the guarantee of a response now.
    pub(crate) fn guarantee(&self) -> Guarantee {
        if !self.changed.load(Relaxed) {
            return Guarantee::Exact;
        }
        let (now, longest) = self.time();
        let mut lost = self.lost.lock();
        lost.recent.retain(|change| change.at.is_none_or(|at| now < at.saturating_add(longest)));
        self.changed.store(!lost.recent.is_empty(), Relaxed);
        match lost.recent.iter().fold(0_u64, |sum, change| sum.saturating_add(change.units)) {
            0 => Guarantee::Exact,
            units => Guarantee::Bounded(units),
        }
    }

    pub(crate) fn exposure(&self) -> Exposure {
        let ledgers = self.ledgers.lock().clone();
        let at_risk = ledgers
            .iter()
            .filter_map(Weak::upgrade)
            .fold(0_u64, |sum, ledger| sum.saturating_add(ledger.at_risk()));
        let lost = self.lost.lock();
        Exposure { at_risk, lost_max: lost.units, changes: lost.changes }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use throttlekit::Limit;
    use throttlekit_core::rate::shared::ScriptEncoding;

    use super::*;

    fn answered(books: &FailoverRecords, at: u64, limit: &Limit) {
        let form = ScriptEncoding::of(limit).unwrap();
        books.answered_for(Timestamp::from_micros(at), form.counts_for_micros());
    }

    #[test]
    fn a_response_is_bounded_from_a_change_until_the_longest_window_has_passed() {
        let books = FailoverRecords::default();
        let [short, long] = [10, 60].map(|s| Limit::fixed_window(5, Duration::from_secs(s)).unwrap());
        answered(&books, 1_000_000, &short);
        assert_eq!(books.guarantee(), Guarantee::Exact);
        books.change(7);
        answered(&books, 2_000_000, &long);
        assert_eq!(books.guarantee(), Guarantee::Bounded(7));
        books.change(2);
        answered(&books, 3_000_000, &short);
        assert_eq!(books.guarantee(), Guarantee::Bounded(9));
        answered(&books, 62_000_000, &short);
        assert_eq!(books.guarantee(), Guarantee::Bounded(2));
        answered(&books, 62_999_999, &short);
        assert_eq!(books.guarantee(), Guarantee::Bounded(2));
        answered(&books, 63_000_000, &short);
        assert_eq!(books.guarantee(), Guarantee::Exact);
        assert_eq!(books.exposure(), Exposure { at_risk: 0, lost_max: 9, changes: 2 });
    }

    #[test]
    fn a_change_that_lost_nothing_leaves_responses_exact() {
        let books = FailoverRecords::default();
        books.change(0);
        assert_eq!((books.guarantee(), books.exposure().changes), (Guarantee::Exact, 1));
    }

    #[test]
    fn a_flood_of_changes_takes_bounded_memory() {
        let books = FailoverRecords::default();
        (0..1_000).for_each(|_| books.change(1));
        assert_eq!(books.guarantee(), Guarantee::Bounded(1_000));
        assert_eq!(books.lost.lock().recent.len(), RECENT_MAX);
    }
}
