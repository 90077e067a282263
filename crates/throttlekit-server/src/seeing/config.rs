//! Which configuration runs, and what became of those that were to replace it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};
use throttlekit::{Clock, WallClock};

use crate::policy::PolicyFile;

/// The most that is kept of why one was refused.
const ERROR_BYTES_MAX: usize = 1_024;

/// A short hash of what a file says: servers that show the same run the same policies.
pub fn config_hash(file: &PolicyFile) -> String {
    // Maps of a file are sorted, so equal files are equal text. It has no key that is not a string.
    let text = serde_json::to_vec(file).unwrap_or_default();
    Sha256::digest(text).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// What is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ConfigState {
    pub(super) hash: String,
    pub(super) loaded_at_ms: u64,
    pub(super) reloads: u64,
    pub(super) rejected: u64,
    pub(super) last_error: String,
}

#[derive(Default)]
pub(super) struct Config(Mutex<ConfigState>);

impl Config {
    /// The first is no reload.
    pub(super) fn loaded(&self, hash: String) {
        let mut state = self.lock();
        state.reloads += u64::from(state.loaded_at_ms > 0);
        state.hash = hash;
        state.loaded_at_ms = WallClock.now().as_millis_ceil();
        state.last_error.clear();
    }

    pub(super) fn refused(&self, why: &str) {
        let mut state = self.lock();
        state.rejected += 1;
        state.last_error = why[..why.floor_char_boundary(ERROR_BYTES_MAX)].to_owned();
    }

    pub(super) fn read(&self) -> ConfigState {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, ConfigState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
