//! Charges of this process on one server that its replicas may not have.

use std::collections::VecDeque;
use std::sync::Arc;

use throttlekit::internals::Mutex;

use crate::exposure::FailoverRecords;
use crate::forgotten_charges::ForgottenCharges;
use crate::replication::Replication;

/// Maximum number of samples that wait for the replicas. At that number none is added: units count as safe later, never
/// sooner.
const NOTES_MAX: usize = 1_024;

pub(crate) struct UnreplicatedCharges {
    books: Arc<FailoverRecords>,
    page: Mutex<Page>,
}

/// Units since this record was created. Limits go up to 2⁵³, so sums need more than 64 bits.
#[derive(Default)]
struct Page {
    /// The server as last seen as a primary.
    seen: Option<Seen>,
    /// Units charged, or possibly charged: the reply was lost.
    charged: u128,
    /// Of these, the units that all replicas have, and the replication offset at that time.
    safe: Note,
    /// Requested, and no response yet.
    in_flight: u128,
    /// Samples that wait for the replicas, oldest first.
    notes: VecDeque<Note>,
    past: ForgottenCharges,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    id: String,
    run: String,
}

/// Units charged by a replication offset.
#[derive(Clone, Copy, Default)]
struct Note {
    charged: u128,
    offset: u64,
}

impl UnreplicatedCharges {
    pub(crate) fn open(books: &Arc<FailoverRecords>) -> Arc<Self> {
        let ledger = Arc::new(Self { books: books.clone(), page: Mutex::default() });
        books.add(&ledger);
        ledger
    }

    /// Records units of a request in flight.
    pub(crate) fn ask(self: &Arc<Self>, units: u64) -> Flight {
        self.page.lock().in_flight += u128::from(units);
        Flight { ledger: self.clone(), units, charged: units }
    }

    /// Returns the units charged so far. Must be read before the server reports its offset: then the stream includes
    /// them all.
    pub(crate) fn charged(&self) -> u128 {
        self.page.lock().charged
    }

    /// Records a sample that the server reported after `charged` units.
    pub(crate) fn sample(&self, charged: u128, said: &Replication) {
        let mut page = self.page.lock();
        let lost = page.lost(said);
        let now_seen = Seen { id: said.id.clone(), run: said.run.clone() };
        if page.seen.as_ref() != Some(&now_seen) || !said.is_primary {
            page.notes.clear();
        }
        if let Some(units) = lost {
            self.books.change(units);
            page.safe = Note { charged: page.charged, offset: 0 };
        }
        page.seen = said.is_primary.then_some(now_seen);
        if said.is_primary {
            page.note(Note { charged, offset: said.offset }, said.heard);
        }
        page.past.keep(self.books.time(), charged);
    }

    /// Records that the server lost states without a change of its id: it was flushed, or evicted keys. Its replicas
    /// did too.
    pub(crate) fn forget(&self) {
        let mut page = self.page.lock();
        self.books.change(page.since(page.past.charged));
        page.notes.clear();
        page.safe = Note { charged: page.charged, offset: 0 };
    }

    /// Returns the units that a failover now could lose.
    pub(crate) fn at_risk(&self) -> u64 {
        self.page.lock().at_risk()
    }
}

impl Page {
    fn at_risk(&self) -> u64 {
        self.since(self.safe.charged)
    }

    /// Returns the units charged, or possibly charged, beyond this total.
    fn since(&self, charged: u128) -> u64 {
        u64::try_from(self.charged.saturating_sub(charged) + self.in_flight).unwrap_or(u64::MAX)
    }

    /// Returns the maximum loss, if the server is not the same as before.
    fn lost(&self, said: &Replication) -> Option<u64> {
        let seen = self.seen.as_ref()?;
        match &said.before {
            // Demoted: one of its replicas is the primary, or will be.
            _ if !said.is_primary => Some(self.at_risk()),
            _ if seen.id == said.id => None,
            // It was promoted from a replica of the one seen before, and reports the offset it had.
            Some((id, offset)) if *id == seen.id => Some(self.since(self.kept(*offset))),
            // It took another id and lost nothing: its first replica connected, or the last was gone for long.
            None if seen.run == said.run => None,
            // It restarted, or more has happened than can be determined.
            _ => Some(self.since(self.past.charged)),
        }
    }

    /// Returns how much of what was charged is in the stream up to this offset.
    fn kept(&self, offset: u64) -> u128 {
        let noted = self.notes.iter().rev().find(|note| note.offset <= offset);
        let safe = Some(&self.safe).filter(|safe| safe.offset <= offset);
        noted.or(safe).map_or(self.past.charged, |note| note.charged)
    }

    fn note(&mut self, new: Note, heard: Option<u64>) {
        let newest = self.notes.back().unwrap_or(&self.safe);
        if new.charged > newest.charged && self.notes.len() < NOTES_MAX {
            self.notes.push_back(new);
        }
        while let Some(note) =
            self.notes.front().filter(|note| heard.is_some_and(|heard| heard >= note.offset))
        {
            self.safe = *note;
            self.notes.pop_front();
        }
    }
}

/// A server that is no longer used has been replaced, or may have been.
impl Drop for UnreplicatedCharges {
    fn drop(&mut self) {
        let at_risk = self.at_risk();
        if at_risk > 0 {
            self.books.change(at_risk);
        }
    }
}

/// Units of a request in flight. Dropped without a response, they count as charged.
pub(crate) struct Flight {
    ledger: Arc<UnreplicatedCharges>,
    units: u64,
    charged: u64,
}

impl Flight {
    /// Records how many of them were charged.
    pub(crate) fn land(mut self, charged: u64) {
        self.charged = charged;
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut page = self.ledger.page.lock();
        page.in_flight -= u128::from(self.units);
        page.charged += u128::from(self.charged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(id: &str, offset: u64, heard: Option<u64>) -> Replication {
        Replication {
            id: id.to_owned(),
            before: None,
            run: format!("run of {id}"),
            is_primary: true,
            offset,
            heard,
            has_replicas: true,
            needs_replicas: false,
        }
    }

    /// A promoted replica that had the stream of its predecessor up to an offset.
    fn promoted(id: &str, before: &str, upto: u64) -> Replication {
        Replication { before: Some((before.to_owned(), upto)), ..said(id, upto, None) }
    }

    fn charge(ledger: &Arc<UnreplicatedCharges>, units: u64) {
        ledger.ask(units).land(units);
    }

    fn opened() -> (Arc<FailoverRecords>, Arc<UnreplicatedCharges>) {
        let books = Arc::new(FailoverRecords::default());
        let ledger = UnreplicatedCharges::open(&books);
        ledger.sample(0, &said("a", 1, None));
        (books, ledger)
    }

    #[test]
    fn units_are_safe_once_the_slowest_replica_has_them_and_not_before() {
        let (_, ledger) = opened();
        charge(&ledger, 5);
        ledger.sample(ledger.charged(), &said("a", 100, Some(40)));
        charge(&ledger, 3);
        ledger.sample(ledger.charged(), &said("a", 200, Some(99)));
        assert_eq!(ledger.at_risk(), 8, "one byte is missing");
        ledger.sample(ledger.charged(), &said("a", 200, Some(100)));
        assert_eq!(ledger.at_risk(), 3);
        ledger.sample(ledger.charged(), &said("a", 200, None));
        assert_eq!(ledger.at_risk(), 3, "nobody is there to have it");
        ledger.sample(ledger.charged(), &said("a", 200, Some(200)));
        assert_eq!(ledger.at_risk(), 0);
    }

    #[test]
    fn unacknowledged_charges_are_at_risk_and_denials_are_not() {
        let (_, ledger) = opened();
        let flight = ledger.ask(4);
        ledger.sample(ledger.charged(), &said("a", 100, Some(100)));
        assert_eq!(ledger.at_risk(), 4, "it may run after the sample");
        drop(flight);
        assert_eq!(ledger.at_risk(), 4);
        ledger.ask(9).land(0);
        assert_eq!(ledger.at_risk(), 4);
    }

    #[test]
    fn a_promotion_loses_unreplicated_charges_and_reports_them() {
        let (books, ledger) = opened();
        charge(&ledger, 5);
        ledger.sample(ledger.charged(), &said("a", 100, Some(40)));
        charge(&ledger, 3);
        ledger.sample(ledger.charged(), &said("a", 200, Some(40)));
        ledger.sample(ledger.charged(), &promoted("b", "a", 199));
        let exposure = books.exposure();
        assert_eq!(
            (exposure.lost_max, exposure.changes, exposure.at_risk),
            (3, 1, 0),
            "it had the first five"
        );
    }

    #[test]
    fn an_unacknowledged_replica_loses_more_than_was_at_risk() {
        let (books, ledger) = opened();
        charge(&ledger, 5);
        ledger.sample(ledger.charged(), &said("a", 100, Some(100)));
        charge(&ledger, 3);
        assert_eq!(ledger.at_risk(), 3);
        ledger.sample(ledger.charged(), &promoted("b", "a", 99));
        assert_eq!(books.exposure().lost_max, 8);
    }

    #[test]
    fn a_restart_also_loses_replicated_charges() {
        let (books, ledger) = opened();
        charge(&ledger, 5);
        ledger.sample(ledger.charged(), &said("a", 100, Some(100)));
        assert_eq!(ledger.at_risk(), 0);
        ledger.sample(ledger.charged(), &said("b", 1, Some(1)));
        assert_eq!((books.exposure().lost_max, books.exposure().changes), (5, 1));
    }

    #[test]
    fn a_flush_also_loses_replicated_charges_and_keeps_the_id() {
        let (books, ledger) = opened();
        charge(&ledger, 5);
        ledger.sample(ledger.charged(), &said("a", 100, Some(100)));
        ledger.forget();
        assert_eq!((books.exposure().lost_max, books.exposure().changes, ledger.at_risk()), (5, 1, 0));
        charge(&ledger, 2);
        ledger.sample(ledger.charged(), &said("a", 200, Some(100)));
        assert_eq!((books.exposure().changes, ledger.at_risk()), (1, 2));
    }

    #[test]
    fn another_id_in_the_same_run_without_a_promotion_loses_nothing() {
        let (books, ledger) = opened();
        charge(&ledger, 5);
        ledger.sample(ledger.charged(), &Replication { run: "run of a".into(), ..said("b", 100, None) });
        assert_eq!((books.exposure().changes, ledger.at_risk()), (0, 5));
        ledger.sample(ledger.charged(), &Replication { run: "run of a".into(), ..said("b", 100, Some(100)) });
        assert_eq!(ledger.at_risk(), 0);
    }

    #[test]
    fn a_demotion_and_a_replacement_lose_what_was_at_risk_once() {
        let (books, ledger) = opened();
        charge(&ledger, 2);
        ledger.sample(ledger.charged(), &Replication { is_primary: false, ..said("c", 9, None) });
        ledger.sample(ledger.charged(), &said("d", 9, None));
        assert_eq!((books.exposure().lost_max, books.exposure().changes), (2, 1), "demoted, then restored");
        charge(&ledger, 1);
        drop(ledger);
        assert_eq!((books.exposure().lost_max, books.exposure().at_risk), (3, 0), "and replaced");
    }

    #[test]
    fn notes_are_bounded_and_units_are_marked_safe_late_but_never_early() {
        let (_, ledger) = opened();
        for offset in 0..3_000 {
            charge(&ledger, 1);
            ledger.sample(ledger.charged(), &said("a", 10 + offset, None));
        }
        ledger.sample(ledger.charged(), &said("a", 5_000, Some(3_009)));
        assert_eq!(ledger.at_risk(), 3_000 - NOTES_MAX as u64);
        ledger.sample(ledger.charged(), &said("a", 5_000, Some(5_000)));
        assert_eq!(ledger.at_risk(), 0);
    }
}
