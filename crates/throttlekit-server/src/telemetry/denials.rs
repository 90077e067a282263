//! The latest denials, and those who watch for them. Lives on the telemetry's thread.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use throttlekit::admission::Event;
use throttlekit::{Clock, WallClock};

use super::key_display::KeyDisplay;
use super::watch::Watchers;
use crate::wire_format::retry_millis;

/// How many are kept.
const RECENT_MAX: usize = 200;

/// One denial, as people see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Denial {
    /// When, in milliseconds since the Unix epoch. Told up to 64 ms late where little happens.
    pub at_ms: u64,
    /// By which policy.
    pub policy: String,
    /// Of which key, escaped or hashed, and at most 128 bytes long.
    pub key: String,
    /// By which axis; `price` if the price denied, and nothing if it is not known.
    pub axis: &'static str,
    /// The most units of the limit.
    pub limit: u64,
    /// What was left.
    pub remaining: u64,
    /// How long the caller was told to wait.
    pub retry_after_ms: i64,
}

/// The latest denials and the watchers.
pub(super) struct Denials {
    recent: Mutex<VecDeque<Kept>>,
    pub(super) watchers: Arc<Watchers>,
    keys: KeyDisplay,
}

/// A denial with its key as it was, which is made fit to be seen only if someone looks.
#[derive(Clone, Default)]
struct Kept {
    key: Vec<u8>,
    seen: Denial,
}

impl Denials {
    pub(super) fn new(hash_keys: bool) -> Self {
        let recent = Mutex::new(VecDeque::with_capacity(RECENT_MAX));
        Self { recent, watchers: Arc::default(), keys: KeyDisplay::new(hash_keys) }
    }

    pub(super) fn keys(&self) -> &KeyDisplay {
        &self.keys
    }

    /// Takes note of an event, if it is a denial.
    pub(super) fn note(&self, event: &Event<'_>) {
        if event.decision.allowed {
            return;
        }
        let at_ms = WallClock.now().as_nanos() / 1_000_000;
        self.watchers.tell(event.policy, at_ms / 1_000, || {
            let mut denial = Denial::default();
            fill(&mut denial, event, at_ms);
            denial.key = self.keys.show(event.key);
            denial
        });
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        // The oldest's memory serves the newest.
        let mut kept =
            if recent.len() == RECENT_MAX { recent.pop_front().unwrap_or_default() } else { Kept::default() };
        kept.key.clear();
        kept.key.extend_from_slice(event.key);
        fill(&mut kept.seen, event, at_ms);
        recent.push_back(kept);
    }

    /// The latest, the newest first.
    pub(super) fn recent(&self) -> Vec<Denial> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let show = |kept: Kept| Denial { key: self.keys.show(&kept.key), ..kept.seen };
        recent.into_iter().rev().map(show).collect()
    }
}

fn fill(denial: &mut Denial, event: &Event<'_>, at_ms: u64) {
    let by_none = if event.policy_denied { "price" } else { "" };
    denial.at_ms = at_ms;
    denial.policy.clear();
    denial.policy.push_str(event.policy);
    denial.axis = event.binding_axis.map_or(by_none, |axis| axis.label());
    denial.limit = event.decision.limit;
    denial.remaining = event.decision.remaining;
    denial.retry_after_ms = retry_millis(event.decision.retry_after);
}
