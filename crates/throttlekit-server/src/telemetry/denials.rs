//! The latest denials, and their watchers. Runs on the telemetry's thread.

use std::collections::VecDeque;
use std::sync::Arc;

use throttlekit::admit::LimitName;
use throttlekit::clock::{Clock, WallClock};
use throttlekit::internals::Mutex;
use throttlekit::observe::Event;

use super::key_display::KeyDisplay;
use super::watch::Watchers;
use crate::wire_format::retry_millis;

/// Maximum number of denials that are kept.
const RECENT_MAX: usize = 200;

/// One denial, for display.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Denial {
    /// Time, in milliseconds since the Unix epoch. Reported up to 64 ms late under low load.
    pub at_ms: u64,
    /// Policy.
    pub policy: String,
    /// Key, escaped or hashed, and at most 128 bytes long.
    pub key: String,
    /// Axis; `price` if the price denied, and empty if it is not known.
    pub axis: &'static str,
    /// Name of the limit; empty if it has none.
    pub limit_name: &'static str,
    /// Maximum number of units of the limit.
    pub limit: u64,
    /// Units left.
    pub remaining: u64,
    /// Wait that was reported to the caller.
    pub retry_after_ms: i64,
}

/// The latest denials and the watchers.
pub(super) struct Denials {
    recent: Mutex<VecDeque<Kept>>,
    pub(super) watchers: Arc<Watchers>,
    keys: KeyDisplay,
}

/// A denial with its raw key, which is formatted for display only on demand.
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

    /// Records an event, if it is a denial.
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
        let mut recent = self.recent.lock();
        // Reuses the memory of the oldest for the newest.
        let mut kept =
            if recent.len() == RECENT_MAX { recent.pop_front().unwrap_or_default() } else { Kept::default() };
        kept.key.clear();
        kept.key.extend_from_slice(event.key);
        fill(&mut kept.seen, event, at_ms);
        recent.push_back(kept);
    }

    /// Returns the latest denials, the newest first.
    pub(super) fn recent(&self) -> Vec<Denial> {
        let recent = self.recent.lock().clone();
        let show = |kept: Kept| Denial { key: self.keys.show(&kept.key), ..kept.seen };
        recent.into_iter().rev().map(show).collect()
    }
}

fn fill(denial: &mut Denial, event: &Event<'_>, at_ms: u64) {
    denial.at_ms = at_ms;
    denial.policy.clear();
    denial.policy.push_str(event.policy);
    denial.axis = event.denied_by.map_or("", throttlekit::Axis::label);
    denial.limit_name = event.limit_name.map_or("", LimitName::as_str);
    denial.limit = event.decision.limit;
    denial.remaining = event.decision.remaining;
    denial.retry_after_ms = retry_millis(event.decision.retry_after);
}
