//! The history that the server's rows belong to, and whether it is still the one that was charged.
//!
//! A server that was promoted with stale rows, a database that was restored, and a server started from an older copy of
//! its files have lost charges, and say nothing of it. What shows it is another system identifier, another timeline, a
//! later epoch in the table `lineage`, or a log that is shorter than one that the server had flushed before. Each of
//! these makes responses `bounded` until the longest limit in use has passed: then nothing that was lost counts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use throttlekit::Guarantee;
use throttlekit::rate::shared::{Kind, SharedForm};
use throttlekit::store::StoreError;
use tokio::time::Instant;
use tokio_postgres::types::PgLsn;

use crate::batch::cut_short;
use crate::seeded::{Seeded, SeededBug};

const MONTH_MICROS: i64 = 31 * 86_400 * 1_000_000;

/// What is known of the server's history. Shared by all calls of one store.
#[derive(Default)]
pub(crate) struct Lineage {
    state: Mutex<State>,
    /// Whether any change was noticed: most responses need not look further.
    changed: AtomicBool,
    /// How far the server of this history had flushed its log when it last answered.
    flushed: AtomicU64,
    /// The longest time for which a limit in use remembers a charge, in µs.
    longest: AtomicU64,
    seeded: Seeded,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// Goes up with each history; zero before the first.
    generation: u64,
    history: History,
    /// When the server was started, in µs of its clock.
    started: i64,
    change: Option<Change>,
}

/// Names one history of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    pub(crate) system: i64,
    pub(crate) timeline: i64,
    pub(crate) epoch: i64,
}

/// The last loss that was noticed: how long ago by the server's clock when we learned of it.
#[derive(Clone, Copy)]
struct Change {
    age: Duration,
    learned: Instant,
}

/// What was known when a call was sent. Its response may be older than what other responses have shown since.
#[derive(Clone, Copy)]
pub(crate) struct Before {
    history: History,
    flushed: u64,
}

impl Lineage {
    pub(crate) fn new(seeded: Seeded) -> Self {
        Self { seeded, ..Self::default() }
    }

    /// The generation that connections must belong to; zero while nothing is known.
    pub(crate) fn generation(&self) -> u64 {
        self.state().generation
    }

    /// When the server was started, in µs of its clock, and on which timeline of which system it is.
    pub(crate) fn server(&self) -> (i64, History) {
        let state = self.state();
        (state.started, state.history)
    }

    /// The arguments of `lineage_check` after the instant: what this store remembers.
    pub(crate) fn remembered(&self) -> [i64; 5] {
        let State { history, started, .. } = *self.state();
        let started = if self.seeded.has(SeededBug::CheckpointIgnored) { 0 } else { started };
        let flushed = if self.seeded.has(SeededBug::LogIgnored) { 0 } else { self.flushed.load(Relaxed) };
        [history.system, history.timeline, history.epoch, started, flushed as i64]
    }

    /// Takes note of what `lineage_check` returned, and returns the generation.
    pub(crate) fn learn(&self, reply: &[i64]) -> Result<u64, StoreError> {
        let &[system, timeline, epoch, since, now, started, flushed] = reply else { return Err(cut_short()) };
        let history = History { system, timeline, epoch };
        let mut state = self.state();
        if state.generation > 0 && state.history == history {
            state.started = started;
            self.flushed.fetch_max(flushed as u64, Relaxed);
            return Ok(state.generation);
        }
        // One that this store has not charged before has lost nothing of it, unless its row says so.
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
        Before { history: self.state().history, flushed: self.flushed.load(Relaxed) }
    }

    /// Takes note of how far the server had flushed its log, over a connection of this generation.
    pub(crate) fn flushed(&self, generation: u64, flushed: PgLsn) {
        if generation == self.generation() {
            self.flushed.fetch_max(flushed.into(), Relaxed);
        }
    }

    /// Takes note of what a call through a pooler showed. Returns whether it ran in another history than is known:
    /// then the response is `bounded` from now on, and `lineage_check` is to be called.
    pub(crate) fn seen(&self, before: Before, seen: &[i64]) -> Result<bool, StoreError> {
        let &[system, timeline, epoch, flushed] = seen else { return Err(cut_short()) };
        let history = History { system, timeline, epoch };
        let mut state = self.state();
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

    /// Takes note of the limits that a call is about, before it is sent.
    pub(crate) fn uses<'a>(&self, forms: impl IntoIterator<Item = &'a SharedForm>) {
        self.uses_for(forms.into_iter().map(memory_of).max().unwrap_or(0));
    }

    /// The same for what counts for this long, in µs.
    pub(crate) fn uses_for(&self, micros: u64) {
        if micros > self.longest.load(Relaxed) {
            self.longest.fetch_max(micros, Relaxed);
        }
    }

    /// The guarantee of a response that comes now. How much was lost is not known, so no number is claimed.
    pub(crate) fn guarantee(&self) -> Guarantee {
        if !self.changed.load(Relaxed) {
            return Guarantee::Exact;
        }
        let longest = Duration::from_micros(self.longest.load(Relaxed));
        match self.state().change {
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For how long a charge of this limit counts, in µs, rounded up.
fn memory_of(form: &SharedForm) -> u64 {
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
mod tests;
