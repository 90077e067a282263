//! The last debit of each stream, in this process's memory.

use std::collections::HashMap;

use throttlekit_core::Timestamp;

use super::{Debit, LastDebit, StoreError};

/// How many streams are remembered. Beyond, debits of further streams are refused until the first are forgotten: a name
/// that is not kept does not make a debit count once.
const STREAMS_MAX: usize = 100_000;

/// A key's fingerprint and one of its streams.
pub(super) type StreamOf = (u64, u128);

#[derive(Default)]
pub(super) struct Streams {
    last: HashMap<StreamOf, (LastDebit, Timestamp)>,
    /// Until then no name is forgotten, so that a full map is not searched in vain.
    full_until: Timestamp,
}

impl Streams {
    /// The stream's last debit, while it is remembered.
    pub(super) fn last(&self, of: StreamOf, now: Timestamp) -> Option<&LastDebit> {
        self.last.get(&of).filter(|(_, until)| now < *until).map(|(last, _)| last)
    }

    /// Makes sure that a debit of this stream can be remembered.
    pub(super) fn make_room(&mut self, of: StreamOf, now: Timestamp) -> Result<(), StoreError> {
        if self.last.len() < STREAMS_MAX || self.last.contains_key(&of) {
            return Ok(());
        }
        if now >= self.full_until {
            self.last.retain(|_, (_, until)| now < *until);
            self.full_until = self.last.values().map(|(_, until)| *until).min().unwrap_or_default();
        }
        if self.last.len() < STREAMS_MAX {
            return Ok(());
        }
        Err(StoreError::unavailable(format_args!(
            "the debits of {STREAMS_MAX} streams are remembered; remember them less long"
        )))
    }

    pub(super) fn remember(&mut self, of: StreamOf, debit: &Debit<'_>, found: LastDebit) {
        let until = found.now + debit.remembered();
        self.full_until = self.full_until.min(until);
        self.last.insert(of, (found, until));
    }
}
