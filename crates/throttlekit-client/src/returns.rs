//! Under which names unspent units go back.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use throttlekit::store::Epoch;
use throttlekit::{BootClock, Clock, Timestamp};

/// Of so many keys names are kept. What more hold lapses with its window.
const KEPT_MAX: usize = 65_536;

/// The name of the last lease of each key, as the server gave it. Each is used once.
#[derive(Default)]
pub(crate) struct Returns(Mutex<HashMap<String, Name>>);

struct Name {
    epoch: Epoch,
    wire_epoch: String,
    id: String,
    until: Timestamp,
}

impl Returns {
    fn names(&self) -> MutexGuard<'_, HashMap<String, Name>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a lease that ends then, by the boot clock.
    pub(crate) fn keep(&self, key: String, epoch: Epoch, wire_epoch: String, id: String, until: Timestamp) {
        if id.is_empty() {
            return;
        }
        let mut names = self.names();
        if names.len() >= KEPT_MAX && !names.contains_key(&key) {
            let now = BootClock.now();
            names.retain(|_, name| name.until > now);
            if names.len() >= KEPT_MAX {
                return;
            }
        }
        names.insert(key, Name { epoch, wire_epoch, id, until });
    }

    /// The name and window under which units of this window go back, if there is one.
    pub(crate) fn take(&self, key: &str, epoch: Epoch) -> Option<(String, String)> {
        let mut names = self.names();
        if names.get(key)?.epoch != epoch {
            return None;
        }
        names.remove(key).map(|name| (name.id, name.wire_epoch))
    }
}
