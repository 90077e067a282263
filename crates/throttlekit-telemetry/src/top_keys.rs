//! The keys with most requests, and those with most denials.

use throttlekit::hash::{KeyHash, SecretHash};
use throttlekit_core::overload::SpaceSaving;

use crate::counts::Counts;
use crate::queued_event::{QueuedEvent, parts_of};

/// The busiest keys of all policies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Top {
    /// By number of requests.
    pub requested: TopKeys,
    /// By number of denials.
    pub denied: TopKeys,
}

/// Keys, the busiest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopKeys {
    /// The tracked keys.
    pub keys: Vec<TopKey>,
    /// Number of counted events of all keys. Lost events are not included.
    pub events: u64,
    /// Maximum overcount of any key. Every key with more events than this is included.
    pub error_max: u64,
}

/// One of the busiest keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopKey {
    /// The policy of the requests.
    pub policy: String,
    /// The key, or its first [`KEY_BYTES`](crate::KEY_BYTES).
    pub key: Vec<u8>,
    /// Lower bound of its count.
    pub at_least: u64,
    /// Upper bound of its count.
    pub at_most: u64,
}

/// Counts keys, on the thread that dispatches events.
pub(crate) struct TopCounter {
    requested: SpaceSaving,
    denied: SpaceSaving,
    hash: SecretHash,
}

impl TopCounter {
    pub(crate) fn new(keys: usize) -> Self {
        Self { requested: SpaceSaving::new(keys), denied: SpaceSaving::new(keys), hash: SecretHash::random() }
    }

    pub(crate) fn count(&mut self, note: &QueuedEvent) {
        let hash = note.hash(&self.hash);
        self.requested.count(hash, note.name());
        if !note.allowed() {
            self.denied.count(hash, note.name());
        }
    }

    pub(crate) fn read(&self, counts: &Counts) -> Top {
        Top { requested: read(&self.requested, counts), denied: read(&self.denied, counts) }
    }
}

fn read(busiest: &SpaceSaving, counts: &Counts) -> TopKeys {
    let keys = busiest.iter().map(|heavy| {
        let (policy, key) = parts_of(heavy.key);
        TopKey {
            policy: counts.name_of(policy).to_owned(),
            key: key.to_vec(),
            at_least: heavy.at_least(),
            at_most: heavy.count,
        }
    });
    TopKeys { keys: keys.collect(), events: busiest.total(), error_max: busiest.error_max() }
}
