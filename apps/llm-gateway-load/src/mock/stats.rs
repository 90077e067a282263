//! Statistics of the mock model.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use throttlekit::clock::{Clock, WallClock};

/// Statistics of the model, as `GET /stats` returns them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct MockStats {
    /// Requests that were begun.
    pub begun: u64,
    /// Of them, those that were said to their end.
    pub finished: u64,
    /// Of them, those whose caller went away.
    pub abandoned: u64,
    /// Tokens that were generated, read by a client or not.
    pub generated: u64,
    /// The same by window, named by the millisecond at which it ends.
    pub windows: BTreeMap<u64, u64>,
}

/// Counts while it works.
pub(super) struct Counts {
    window_ms: u64,
    stats: Mutex<MockStats>,
}

impl Counts {
    pub(super) fn new(window_ms: u64) -> Self {
        Self { window_ms: window_ms.max(1), stats: Mutex::default() }
    }

    pub(super) fn read(&self) -> MockStats {
        self.stats.lock().expect("nobody panics here").clone()
    }

    pub(super) fn note(&self, change: impl FnOnce(&mut MockStats)) {
        change(&mut self.stats.lock().expect("nobody panics here"));
    }

    pub(super) fn generated(&self, tokens: u64) {
        let ends = (WallClock.now().as_nanos() / 1_000_000 / self.window_ms + 1) * self.window_ms;
        self.note(|stats| {
            stats.generated += tokens;
            *stats.windows.entry(ends).or_default() += tokens;
        });
    }
}
