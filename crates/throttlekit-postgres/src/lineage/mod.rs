//! The history that the server's rows belong to, and whether it is still the one that was charged.
//!
//! A server that was promoted with stale rows, a database that was restored, and a server started from an older copy of
//! its files have lost charges, and do not report it. It shows in another system identifier, another timeline, a later
//! epoch in the table `lineage`, or a log that is shorter than one that the server had flushed before. Each of these
//! makes responses `bounded` until the longest limit in use has passed: then nothing that was lost counts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit::Guarantee;
use throttlekit::internals::Mutex;
use throttlekit::rate::shared::ScriptEncoding;
use throttlekit::store::StoreError;
use tokio::time::Instant;
use tokio_postgres::types::PgLsn;

use crate::batch::cut_short;
use crate::seeded::{Seeded, SeededBug};

/// The known history of the server. Shared by all calls of one store.
#[derive(Default)]
pub(crate) struct Lineage {
    state: Mutex<State>,
    /// Set if any change was noticed: most responses need no further check.
    changed: AtomicBool,
    /// The log position that the server of this history had flushed at its last response.
    flushed: AtomicU64,
    /// The longest time for which a limit in use counts a charge, in µs.
    longest: AtomicU64,
    seeded: Seeded,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// Increases with each history; zero before the first.
    generation: u64,
    history: History,
    /// Start time of the server, in µs of its clock.
    started: i64,
    change: Option<Change>,
}

/// Identifies one history of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    pub(crate) system: i64,
    pub(crate) timeline: i64,
    pub(crate) epoch: i64,
}

/// The last noticed loss: its age by the server's clock when it was noticed.
#[derive(Clone, Copy)]
struct Change {
    age: Duration,
    learned: Instant,
}

/// The known history when a call was sent. Its response may be older than other responses seen since.
#[derive(Clone, Copy)]
pub(crate) struct Before {
    history: History,
    flushed: u64,
}

impl Lineage {
    pub(crate) fn new(seeded: Seeded) -> Self {
        Self { seeded, ..Self::default() }
    }

    /// Returns the generation that connections must belong to; zero while nothing is known.
    pub(crate) fn generation(&self) -> u64 {
        self.state.lock().generation
    }

    /// Returns the server's start time, in µs of its clock, and its system and timeline.
    pub(crate) fn server(&self) -> (i64, History) {
        let state = self.state.lock();
        (state.started, state.history)
    }

    /// Returns the arguments of `lineage_check` after the instant: the history that this store has recorded.
    pub(crate) fn remembered(&self) -> [i64; 5] {
        let State { history, started, .. } = *self.state.lock();
        let started = if self.seeded.has(SeededBug::CheckpointIgnored) { 0 } else { started };
        let flushed = if self.seeded.has(SeededBug::LogIgnored) { 0 } else { self.flushed.load(Relaxed) };
        [history.system, history.timeline, history.epoch, started, flushed as i64]
    }

    /// Records the result of `lineage_check`, and returns the generation.
    pub(crate) fn learn(&self, reply: &[i64]) -> Result<u64, StoreError> {
        let &[system, timeline, epoch, since, now, started, flushed] = reply else { return Err(cut_short()) };
        let history = History { system, timeline, epoch };
        let mut state = self.state.lock();
        if state.generation > 0 && state.history == history {
            state.started = started;
            self.flushed.fetch_max(flushed as u64, Relaxed);
            return Ok(state.generation);
        }
        // One that this store has not charged before has lost nothing of it, unless its row reports a loss.
        let since = if self.seeded.has(SeededBug::RowIgnored) { 0 } else { since };
        let compares = !self.seeded.has(SeededBug::LineageIgnored);
        if compares && (state.generation > 0 || since > 0) {
            let age = if since > 0 { now.saturating_sub(since).max(0) } else { 0 };
            self.note_change(&mut state, Duration::from_micros(age as u64));
        }
        *state = State { generation: state.generation + 1, history, started, ..*state };
        self.flushed.store(flushed as u64, Relaxed);
        Ok(state.generation)
    }

    pub(crate) fn before(&self) -> Before {
        Before { history: self.state.lock().history, flushed: self.flushed.load(Relaxed) }
    }

    /// Records the log position that the server had flushed, over a connection of this generation.
    pub(crate) fn flushed(&self, generation: u64, flushed: PgLsn) {
        if generation == self.generation() {
            self.flushed.fetch_max(flushed.into(), Relaxed);
        }
    }

    /// Records the history in a response through a pooler. Returns whether it differs from the known one: then
    /// responses are `bounded` from now on, and `lineage_check` must be called.
    pub(crate) fn seen(&self, before: Before, seen: &[i64]) -> Result<bool, StoreError> {
        let &[system, timeline, epoch, flushed] = seen else { return Err(cut_short()) };
        let history = History { system, timeline, epoch };
        let mut state = self.state.lock();
        let known = history == before.history || history == state.history;
        if !known || (flushed as u64) < before.flushed {
            self.note_change(&mut state, Duration::ZERO);
            return Ok(true);
        }
        if history == state.history {
            self.flushed.fetch_max(flushed as u64, Relaxed);
        }
        Ok(false)
    }

    /// Records the limits of a call, before it is sent.
    pub(crate) fn uses<'a>(&self, forms: impl IntoIterator<Item = &'a ScriptEncoding>) {
        self.uses_for(forms.into_iter().map(ScriptEncoding::counts_for_micros).max().unwrap_or(0));
    }

    /// The same for charges that count for this long, in µs.
    pub(crate) fn uses_for(&self, micros: u64) {
        if micros > self.longest.load(Relaxed) {
            self.longest.fetch_max(micros, Relaxed);
        }
    }

    /// Returns the guarantee of a response now. The loss is unknown, so no number is claimed.
    pub(crate) fn guarantee(&self) -> Guarantee {
        if !self.changed.load(Relaxed) {
            return Guarantee::Exact;
        }
        let longest = Duration::from_micros(self.longest.load(Relaxed));
        match self.state.lock().change {
            Some(change) if change.age.saturating_add(change.learned.elapsed()) < longest => {
                Guarantee::Bounded(u64::MAX)
            }
            _ => Guarantee::Exact,
        }
    }

    fn note_change(&self, state: &mut State, age: Duration) {
        state.change = Some(Change { age, learned: Instant::now() });
        self.changed.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests;
