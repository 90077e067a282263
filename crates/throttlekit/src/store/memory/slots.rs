//! Slots in this process's memory: the rule itself, a table for each key.

use std::collections::HashMap;
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::{HeartbeatOutcome, SlotTable};

use super::MemoryStore;
use crate::clock::Clock;
use crate::forward_store;
use crate::store::slots::life;
use crate::store::streams::Search;
use crate::store::{Occupancy, SlotAnswer, SlotLease, SlotRequest, SlotStore, StoreError};
use crate::sync::Mutex;

/// Maximum number of keys with slots held at a time. One more is rejected until the leases of another expire.
const SLOT_KEYS_MAX: usize = 100_000;

/// The tables of all keys of which any slot is held.
#[derive(Default)]
pub(super) struct SlotTables(Mutex<(HashMap<Box<str>, SlotTable>, Search)>);

impl SlotTables {
    fn acquire(
        &self,
        ask: &SlotRequest<'_>,
        lives: Duration,
        now: Timestamp,
    ) -> Result<SlotAnswer, StoreError> {
        let (tables, search) = &mut *self.0.lock();
        if tables.len() >= SLOT_KEYS_MAX && !tables.contains_key(ask.key) {
            if search.is_due(now) {
                tables.retain(|_, table| table.occupancy(now) > 0);
            }
            if tables.len() >= SLOT_KEYS_MAX {
                return Err(StoreError::unavailable(format_args!(
                    "too many keys hold slots: at most {SLOT_KEYS_MAX}"
                )));
            }
        }
        let table = tables.entry(ask.key.into()).or_default();
        let step = table.acquire(ask.lease, ask.owner, ask.most, lives, now);
        if table.is_idle() {
            tables.remove(ask.key);
        }
        Ok(SlotAnswer { now, step })
    }

    /// Applies `change` to the table of a lease's key. Returns `None` if no slot of it is held.
    fn change<T>(&self, key: &str, change: impl FnOnce(&mut SlotTable) -> T) -> Option<T> {
        let (tables, _) = &mut *self.0.lock();
        let table = tables.get_mut(key)?;
        let answer = change(table);
        if table.is_idle() {
            tables.remove(key);
        }
        Some(answer)
    }

    pub(super) fn forget(&self, key: &str) {
        self.0.lock().0.remove(key);
    }
}

impl<C: Clock + 'static> SlotStore for MemoryStore<C> {
    async fn acquire(&self, ask: &SlotRequest<'_>) -> Result<SlotAnswer, StoreError> {
        self.slots.acquire(ask, life(ask.lives)?, self.now())
    }

    async fn heartbeat(
        &self,
        leases: &[SlotLease<'_>],
        lives: Duration,
    ) -> Vec<Result<HeartbeatOutcome, StoreError>> {
        let now = self.now();
        let heartbeat = |at: &SlotLease<'_>| {
            let lives = life(lives)?;
            let heartbeat = |table: &mut SlotTable| table.heartbeat(&[at.lease], at.owner, lives, now).pop();
            Ok(self.slots.change(at.key, heartbeat).flatten().unwrap_or(HeartbeatOutcome::Lost))
        };
        leases.iter().map(heartbeat).collect()
    }

    async fn release(&self, leases: &[SlotLease<'_>]) -> Vec<Result<bool, StoreError>> {
        let now = self.now();
        let release = |at: &SlotLease<'_>| {
            let release = |table: &mut SlotTable| table.release(at.lease, at.owner, now);
            Ok(self.slots.change(at.key, release).unwrap_or(false))
        };
        leases.iter().map(release).collect()
    }

    async fn occupancy(&self, keys: &[&str]) -> Result<Vec<Occupancy>, StoreError> {
        let (now, tables) = (self.now(), self.slots.0.lock());
        let held = |key: &str| tables.0.get(key).map_or(0, |table| table.occupancy(now));
        let look = |key: &&str| Occupancy { now, held: held(key) };
        Ok(keys.iter().map(look).collect())
    }

    forward_store!(Store for self => *self; background);
}
