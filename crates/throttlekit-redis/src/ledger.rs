//! What this process has charged on one server that its replicas may not have.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::exposure::Books;
use crate::replication::Replication;

/// How many samples may wait for the replicas. While so many do, none is added: units count as safe later, never sooner.
const NOTES_MAX: usize = 1_024;

pub(crate) struct Ledger {
    books: Arc<Books>,
    page: Mutex<Page>,
}

/// Units since the ledger was opened. Limits go up to 2⁵³, so their sums need room.
#[derive(Default)]
struct Page {
    /// The server, as it was last seen.
    id: Option<String>,
    /// Charged, or perhaps: the reply did not come.
    charged: u128,
    /// Of these, what all replicas have.
    safe: u128,
    /// Asked for and not answered yet.
    in_flight: u128,
    /// How much was charged when the stream to the replicas had come how far.
    notes: VecDeque<(u128, u64)>,
}

impl Ledger {
    pub(crate) fn open(books: &Arc<Books>) -> Arc<Self> {
        let ledger = Arc::new(Self { books: books.clone(), page: Mutex::default() });
        books.add(&ledger);
        ledger
    }

    /// Notes that so many units are being asked for.
    pub(crate) fn ask(self: &Arc<Self>, units: u64) -> Flight {
        self.lock().in_flight += u128::from(units);
        Flight { ledger: self.clone(), units, charged: units }
    }

    /// What is charged so far. To be taken before the server is asked how far its stream is: then all of it is in there.
    pub(crate) fn charged(&self) -> u128 {
        self.lock().charged
    }

    /// Takes in what the server said after so much had been charged.
    pub(crate) fn sample(&self, charged: u128, said: &Replication) {
        let mut page = self.lock();
        if page.id.as_ref().is_some_and(|id| *id != said.id || !said.is_primary) {
            self.books.change(page.at_risk());
            page.safe = page.charged;
            page.notes.clear();
        }
        page.id = said.is_primary.then(|| said.id.clone());
        if said.is_primary {
            page.note(charged, said);
        }
    }

    /// What a failover now could lose.
    pub(crate) fn at_risk(&self) -> u64 {
        self.lock().at_risk()
    }

    fn lock(&self) -> MutexGuard<'_, Page> {
        self.page.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Page {
    fn at_risk(&self) -> u64 {
        u64::try_from(self.charged - self.safe + self.in_flight).unwrap_or(u64::MAX)
    }

    fn note(&mut self, charged: u128, said: &Replication) {
        let newest = self.notes.back().map_or(self.safe, |(charged, _)| *charged);
        if charged > newest && self.notes.len() < NOTES_MAX {
            self.notes.push_back((charged, said.offset));
        }
        while let Some(&(charged, offset)) = self.notes.front()
            && said.heard.is_some_and(|heard| heard >= offset)
        {
            self.safe = charged;
            self.notes.pop_front();
        }
    }
}

/// A server that is asked no more has been replaced, or may have been.
impl Drop for Ledger {
    fn drop(&mut self) {
        let at_risk = self.at_risk();
        if at_risk > 0 {
            self.books.change(at_risk);
        }
    }
}

/// Units that are being asked for. Dropped without an answer they count as charged.
pub(crate) struct Flight {
    ledger: Arc<Ledger>,
    units: u64,
    charged: u64,
}

impl Flight {
    /// So many of them were charged.
    pub(crate) fn land(mut self, charged: u64) {
        self.charged = charged;
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut page = self.ledger.lock();
        page.in_flight -= u128::from(self.units);
        page.charged += u128::from(self.charged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(id: &str, offset: u64, heard: Option<u64>) -> Replication {
        let id = id.to_owned();
        Replication { id, is_primary: true, offset, heard, has_replicas: true, needs_replicas: false }
    }

    fn charge(ledger: &Arc<Ledger>, units: u64) {
        ledger.ask(units).land(units);
    }

    fn opened() -> (Arc<Books>, Arc<Ledger>) {
        let books = Arc::new(Books::default());
        let ledger = Ledger::open(&books);
        ledger.sample(0, &said("a", 1, None));
        (books, ledger)
    }

    #[test]
    fn units_are_safe_once_the_slowest_replica_has_come_as_far_and_not_before() {
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
    fn what_is_in_flight_or_unheard_is_at_risk_and_a_denial_is_not() {
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
    fn a_change_of_the_server_loses_what_was_at_risk_once() {
        let (books, ledger) = opened();
        charge(&ledger, 5);
        ledger.sample(ledger.charged(), &said("b", 7, Some(7)));
        assert_eq!((books.exposure().lost_max, books.exposure().changes, ledger.at_risk()), (5, 1, 0));
        charge(&ledger, 2);
        ledger.sample(ledger.charged(), &Replication { is_primary: false, ..said("c", 9, None) });
        ledger.sample(ledger.charged(), &said("d", 9, Some(9)));
        assert_eq!((books.exposure().lost_max, books.exposure().changes), (7, 2), "demoted, then restored");
        charge(&ledger, 1);
        drop(ledger);
        assert_eq!((books.exposure().lost_max, books.exposure().at_risk), (8, 0), "and replaced");
    }

    #[test]
    fn notes_have_a_limit_and_units_are_late_to_be_safe_never_early() {
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
