//! The time since which the servers' state is complete: `lua/lineage.lua` and `docs/contribute/decisions/0022-lineage.md`.

mod eviction_checks;

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use redis::Value;
use throttlekit::internals::RwLock;
use throttlekit::rate::Timestamp;

use self::eviction_checks::EvictionChecks;
use crate::hash_slot::{SLOTS, slot_of};

// A `%` in a caller's part of a key is followed by two hexadecimal digits, so no key of a caller looks like these.
const RECORD: &str = "tk:{%since";
const ALONE: &str = "tk:{%since}";
/// Prefix of a reply that includes the record.
const SINCE: &[u8] = b"%since";
/// Prefix of a reply whose caller must check for evictions.
const UNCHECKED: &[u8] = b"%unchecked";

/// Returns the key of the lineage record next to the keys of a slot.
pub(crate) fn record_at(slot: u16, by_slot: bool) -> &'static str {
    static RECORDS: OnceLock<Vec<Box<str>>> = OnceLock::new();
    if by_slot { &RECORDS.get_or_init(record_of_each_slot)[usize::from(slot % SLOTS)] } else { ALONE }
}

/// Returns for each slot the first of `tk:{%since0}`, `tk:{%since1}`, … that hashes to it.
fn record_of_each_slot() -> Vec<Box<str>> {
    let mut found: Vec<Option<Box<str>>> = vec![None; SLOTS.into()];
    let (mut missing, mut number) = (found.len(), 0_u32);
    while missing > 0 {
        let name = format!("{RECORD}{number}}}");
        let place = &mut found[usize::from(slot_of(&name))];
        if place.is_none() {
            *place = Some(name.into());
            missing -= 1;
        }
        number += 1;
    }
    found.into_iter().flatten().collect()
}

/// The records seen on one connection: at most one for each slot.
///
/// They are dropped with the connection. A server that restarts or is replaced gets a new one, on which the id in each
/// record is compared again.
#[derive(Default)]
pub(crate) struct Records {
    met: RwLock<HashMap<u16, Record>>,
}

#[derive(Clone, Debug)]
struct Record {
    /// The record, with a `+` before it: so it is sent by a call whose caller may check for evictions.
    deferring: Arc<str>,
    since: i64,
    checks: Arc<EvictionChecks>,
}

/// The way in which a script finds out the server's lineage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tracking {
    /// Of `lineage` of the script, where no record is known.
    pub(crate) mode: &'static str,
    /// The script may leave the check for evictions to its caller.
    pub(crate) defers: bool,
}

/// The cached record that a call sends for its slot, and the slot.
#[derive(Clone)]
pub(crate) struct Question {
    slot: u16,
    met: Option<Record>,
    tracking: Tracking,
}

/// A response, and the time since which the server's state behind it is complete.
#[derive(Debug, PartialEq)]
pub(crate) struct Told {
    pub(crate) value: Value,
    pub(crate) since: Since,
    /// Set if the record cached on this connection was replaced: states are lost.
    pub(crate) changed: bool,
    /// Set if `since` holds only if nothing was evicted, which must be checked.
    pub(crate) unchecked: bool,
}

/// The time since which the state behind a response is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// Nothing that counts is missing: the script checked, or it grants nothing.
    Ever,
    /// This instant of the server's clock, in µs.
    Instant(i64),
    /// Unknown.
    Unknown,
}

impl Records {
    /// Returns the record to send in a call for this slot.
    pub(crate) fn question(&self, slot: u16, tracking: Tracking) -> Question {
        let met = self.met.read();
        // A node that is importing a slot has another's record, or none yet.
        let met = met.get(&slot).filter(|_| tracking.mode != "?a").cloned();
        Question { slot, met, tracking }
    }

    /// Extracts the record from a response that includes one.
    pub(crate) fn read(&self, question: &Question, answer: Value) -> Told {
        let (said, value) = match opened(answer) {
            Ok(carried) => carried,
            Err(value) => {
                let since =
                    question.met.as_ref().map_or(Since::Unknown, |record| Since::Instant(record.since));
                let (unchecked, value) = without_mark(value);
                return Told { unchecked, ..Told::of(value, since) };
            }
        };
        let Some(record) = Record::parse(&said) else {
            return Told::of(value, Since::Unknown);
        };
        let since = Since::Instant(record.since);
        let changed = self.keep(question.slot, record);
        Told { changed, ..Told::of(value, since) }
    }

    /// Caches the record of a slot, and returns whether it replaced another. The same record keeps its checks.
    fn keep(&self, slot: u16, record: Record) -> bool {
        match self.met.write().entry(slot) {
            Entry::Occupied(met) if met.get().deferring == record.deferring => false,
            Entry::Occupied(mut met) => {
                met.insert(record);
                true
            }
            Entry::Vacant(none) => {
                none.insert(record);
                false
            }
        }
    }
}

impl Told {
    pub(crate) fn of(value: Value, since: Since) -> Self {
        Self { value, since, changed: false, unchecked: false }
    }
}

impl Question {
    /// Returns the last argument of a script; `key` is that of the record. A single server's is known to the scripts.
    pub(crate) fn arg(&self, key: &str) -> Cow<'_, str> {
        let known = match &self.met {
            None => self.tracking.mode,
            Some(record) if self.tracking.defers => &record.deferring,
            Some(record) => record.value(),
        };
        if key == ALONE { known.into() } else { format!("{key} {known}").into() }
    }

    /// Returns the same for a script that checks for evictions itself, and the checks that decisions share. `None` if
    /// no record was sent: then nothing is left unchecked.
    pub(crate) fn check(&self) -> Option<(Self, Arc<EvictionChecks>)> {
        let checks = self.met.as_ref()?.checks.clone();
        Some((Self { tracking: Tracking { defers: false, ..self.tracking }, ..self.clone() }, checks))
    }
}

impl Record {
    /// Parses `id since swaps evicted`.
    fn parse(said: &[u8]) -> Option<Self> {
        let value = str::from_utf8(said).ok()?;
        let since = value.split(' ').nth(1)?.parse().ok()?;
        Some(Self { deferring: format!("+{value}").into(), since, checks: Arc::default() })
    }

    fn value(&self) -> &str {
        &self.deferring[1..]
    }
}

/// Splits a response into record and reply; returns it unchanged if it has no record.
fn opened(answer: Value) -> Result<(Vec<u8>, Value), Value> {
    let Value::Array(mut parts) = answer else { return Err(answer) };
    let carries = matches!(&parts[..], [Value::BulkString(mark), Value::BulkString(_), _] if mark == SINCE);
    match (carries, parts.pop(), parts.pop()) {
        (true, Some(value), Some(Value::BulkString(said))) => Ok((said, value)),
        (_, last, before) => {
            parts.extend(before);
            parts.extend(last);
            Err(Value::Array(parts))
        }
    }
}

/// Removes the mark of a response whose caller must check for evictions. Returns whether there was one.
fn without_mark(answer: Value) -> (bool, Value) {
    let Value::Array(mut parts) = answer else { return (false, answer) };
    let marked = matches!(&parts[..], [Value::BulkString(mark), _] if mark == UNCHECKED);
    match parts.pop() {
        Some(value) if marked => (true, value),
        last => {
            parts.extend(last);
            (false, Value::Array(parts))
        }
    }
}

/// The time until which responses of a store may rest on states that lack charges.
#[derive(Default)]
pub(crate) struct Lineage {
    /// The store's time at its last response, in µs.
    now: AtomicI64,
    /// Time at which no limit in use counts a possibly lost charge any more, in µs.
    doubted_until: AtomicI64,
}

impl Lineage {
    /// Records a response about limits that count for `remembers` µs.
    pub(crate) fn answered(&self, now: Timestamp, remembers: u64, since: Since) {
        let now = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        let since = match since {
            Since::Ever => i64::MIN,
            Since::Instant(since) => since,
            Since::Unknown => now,
        };
        let until = since.saturating_add_unsigned(remembers);
        self.doubted_until.fetch_max(until, Relaxed);
        self.now.store(now, Relaxed);
    }

    /// Returns whether charges that still count may be missing.
    pub(crate) fn is_doubted(&self) -> bool {
        self.now.load(Relaxed) < self.doubted_until.load(Relaxed)
    }
}

#[cfg(test)]
mod tests;
