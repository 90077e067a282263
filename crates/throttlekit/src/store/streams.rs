//! The last debit of each stream, in this process's memory.

use std::collections::HashMap;
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::rate::shared::ScriptEncoding;
use throttlekit_core::rate::stored::Stored;

use super::{Debit, LastDebit, StoreError};

/// Maximum number of streams that are remembered. Beyond it, debits of further streams are rejected until the first are
/// forgotten: without its stored name a debit would not count once.
const STREAMS_MAX: usize = 100_000;
/// Interval between searches of a full memory for expired names: others wait during a search. So an expired name may
/// keep a new one out for as long.
const SEARCH_EVERY: Duration = Duration::from_millis(100);

/// A key's fingerprint and one of its streams.
pub(super) type StreamOf = (u64, u128);

#[derive(Default)]
pub(super) struct Streams {
    last: HashMap<StreamOf, (Found, Timestamp)>,
    search: Search,
}

/// A debit and what it found, in an encoding that outlives the numbers of its limit.
pub(super) struct Found {
    pub(super) number: u64,
    pub(super) cost: u64,
    pub(super) now: Timestamp,
    pub(super) stored: Stored,
    pub(super) admitted: bool,
    /// Units by which the key's estimate may have been short; zero where it was counted exactly.
    pub(super) short: u64,
}

impl Found {
    /// Returns the debit as a limit of this form reads it.
    pub(super) fn read(&self, form: &ScriptEncoding) -> LastDebit {
        let &Self { number, cost, now, ref stored, admitted, .. } = self;
        LastDebit { number, cost, now, state: stored.state(form, now).into_owned(), admitted }
    }
}

/// Time of the last search of a full memory.
#[derive(Default)]
pub(super) struct Search {
    searched_at: Option<Timestamp>,
}

impl Search {
    /// Returns whether to search now. A clock that reads less than at the last search has stepped back: to wait until
    /// it is there again would reject new names for as long.
    pub(super) fn is_due(&mut self, now: Timestamp) -> bool {
        let due = self.searched_at.is_none_or(|at| now < at || now >= at + SEARCH_EVERY);
        if due {
            self.searched_at = Some(now);
        }
        due
    }
}

impl Streams {
    /// Returns the stream's last debit, while it is remembered.
    pub(super) fn last(&self, of: StreamOf, now: Timestamp) -> Option<&Found> {
        self.last.get(&of).filter(|(_, until)| now < *until).map(|(last, _)| last)
    }

    /// Ensures that a debit of this stream can be remembered.
    pub(super) fn make_room(&mut self, of: StreamOf, now: Timestamp) -> Result<(), StoreError> {
        if self.last.len() < STREAMS_MAX || self.last.contains_key(&of) {
            return Ok(());
        }
        if self.search.is_due(now) {
            self.last.retain(|_, (_, until)| now < *until);
        }
        if self.last.len() < STREAMS_MAX {
            return Ok(());
        }
        Err(StoreError::unavailable(format_args!(
            "too many streams: the debits of at most {STREAMS_MAX} are remembered; remember them for a \
             shorter time"
        )))
    }

    pub(super) fn remember(&mut self, of: StreamOf, debit: &Debit<'_>, found: Found) {
        let until = found.now + debit.remembered();
        self.last.insert(of, (found, until));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_steps_back_does_not_put_off_the_search_of_a_full_memory() {
        let (mut search, start) = (Search::default(), Timestamp::from_millis(1_000_000));
        assert!(search.is_due(start));
        assert!(!search.is_due(start + SEARCH_EVERY.saturating_sub(Duration::from_nanos(1))));
        assert!(search.is_due(start + SEARCH_EVERY));
        let back = Timestamp::from_millis(1_000);
        assert!(search.is_due(back), "at once, and not when the clock is there again");
        assert!(!search.is_due(back + SEARCH_EVERY / 2) && search.is_due(back + SEARCH_EVERY));
    }
}
