//! What failovers may have lost, and what the next one could.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use throttlekit::{Guarantee, Timestamp};
use throttlekit_core::rate::shared::{Kind, SharedForm};

use crate::unreplicated::UnreplicatedCharges;

/// How many changes are told apart. More than these within a window count as one.
const RECENT_MAX: usize = 64;
const MONTH_MICROS: i64 = 31 * 86_400 * 1_000_000;

/// What failovers may lose of what this process charged, in units. Other processes have their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exposure {
    /// What would be lost at the most if every primary failed now.
    pub at_risk: u64,
    /// What was lost at the most when primaries changed, since the store was made.
    pub lost_max: u64,
    /// How often a primary changed: another took over, it began anew, or it was demoted.
    pub changes: u64,
}

/// The ledgers of all servers together.
#[derive(Default)]
pub(crate) struct FailoverRecords {
    ledgers: Mutex<Vec<Weak<UnreplicatedCharges>>>,
    lost: Mutex<Lost>,
    /// Whether there is any recent change: most answers need not look further.
    changed: AtomicBool,
    /// The store's instant at its last answer, in µs.
    now: AtomicU64,
    /// The longest time for which a limit charged so far remembers, in µs.
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
    /// The store's instant at the first answer after it, in µs.
    at: Option<u64>,
}

impl FailoverRecords {
    pub(crate) fn add(&self, ledger: &Arc<UnreplicatedCharges>) {
        let mut ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        ledgers.retain(|ledger| ledger.strong_count() > 0);
        ledgers.push(Arc::downgrade(ledger));
    }

    /// A primary has changed, when so many units were not known to be anywhere else.
    pub(crate) fn change(&self, units: u64) {
        let mut lost = self.lost();
        lost.units = lost.units.saturating_add(units);
        lost.changes += 1;
        if lost.recent.len() < RECENT_MAX {
            lost.recent.push(Change { units, at: None });
        } else if let Some(last) = lost.recent.last_mut() {
            *last = Change { units: last.units.saturating_add(units), at: None };
        }
        self.changed.store(true, Relaxed);
    }

    /// Takes note of an answer about limits that remember for so long, in µs.
    pub(crate) fn answered_for(&self, now: Timestamp, longest: u64) {
        self.now.store(now.as_micros(), Relaxed);
        self.longest.fetch_max(longest, Relaxed);
        if self.changed.load(Relaxed) {
            let dated = |change: &mut Change| _ = change.at.get_or_insert(now.as_micros());
            self.lost().recent.iter_mut().for_each(dated);
        }
    }

    /// The store's instant, and how long the longest limit remembers, in µs.
    pub(crate) fn time(&self) -> (u64, u64) {
        (self.now.load(Relaxed), self.longest.load(Relaxed))
    }

    /// What an answer is worth now.
    pub(crate) fn guarantee(&self) -> Guarantee {
        if !self.changed.load(Relaxed) {
            return Guarantee::Exact;
        }
        let (now, longest) = self.time();
        let mut lost = self.lost();
        lost.recent.retain(|change| change.at.is_none_or(|at| now < at.saturating_add(longest)));
        self.changed.store(!lost.recent.is_empty(), Relaxed);
        match lost.recent.iter().fold(0_u64, |sum, change| sum.saturating_add(change.units)) {
            0 => Guarantee::Exact,
            units => Guarantee::Bounded(units),
        }
    }

    pub(crate) fn exposure(&self) -> Exposure {
        let ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let at_risk = ledgers
            .iter()
            .filter_map(Weak::upgrade)
            .fold(0_u64, |sum, ledger| sum.saturating_add(ledger.at_risk()));
        let lost = self.lost();
        Exposure { at_risk, lost_max: lost.units, changes: lost.changes }
    }

    fn lost(&self) -> MutexGuard<'_, Lost> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For how long a charge of this limit counts, in µs, rounded up.
pub(crate) fn memory_of(form: &SharedForm) -> u64 {
    let numbers = form.charge(1);
    let micros = match (form.kind(), &numbers[..]) {
        (Kind::Gcra, [_, _, depth, ..]) => depth.saturating_add(1),
        (Kind::Window | Kind::Budget | Kind::Log, [_, _, length, ..]) => *length,
        (Kind::Sliding, [_, _, length, buckets]) => length + length / buckets + 1,
        (Kind::Month | Kind::BudgetMonth, _) => MONTH_MICROS,
        _ => i64::MAX,
    };
    u64::try_from(micros).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use throttlekit::{Limit, Rate};

    use super::*;

    fn answered(books: &FailoverRecords, at: u64, limit: &Limit) {
        let form = SharedForm::of(limit).unwrap();
        books.answered_for(Timestamp::from_micros(at), memory_of(&form));
    }

    #[test]
    fn an_answer_is_bounded_from_a_change_until_the_longest_window_has_passed() {
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
    fn a_change_that_lost_nothing_leaves_answers_exact() {
        let books = FailoverRecords::default();
        books.change(0);
        assert_eq!((books.guarantee(), books.exposure().changes), (Guarantee::Exact, 1));
    }

    #[test]
    fn a_flood_of_changes_is_kept_in_little_room() {
        let books = FailoverRecords::default();
        (0..1_000).for_each(|_| books.change(1));
        assert_eq!(books.guarantee(), Guarantee::Bounded(1_000));
        assert_eq!(books.lost().recent.len(), RECENT_MAX);
    }

    #[test]
    fn each_rule_remembers_for_its_own_time() {
        let of = |limit: Limit| memory_of(&SharedForm::of(&limit).unwrap());
        let minute = Duration::from_secs(60);
        assert_eq!(of(Limit::fixed_window(5, minute).unwrap()), 60_000_000);
        assert_eq!(of(Limit::sliding_log(5, minute).unwrap()), 60_000_000);
        assert_eq!(of(Limit::gcra(Rate::per_second(1).burst(5)).unwrap()), 5_000_001);
        assert!(of(Limit::sliding_window(5, minute).unwrap()) > 60_000_000);
    }
}
