//! Options of shared slots.

use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::lease::Margin;

use super::SharedSlots;
use super::renewer::SLOTS_MAX_HERE;
use crate::store::{LIVES_MAX, LIVES_MIN, SlotStore, StoreError};
use crate::{BootClock, LeaseClock};

/// Longer than a failover of the store takes: to detect, to elect, to reconnect.
const LIVES: Duration = Duration::from_secs(30);
/// Prefix of keys in stores.
const PREFIX: &str = "tk";

/// Builder of a [`SharedSlots`].
#[derive(Debug)]
pub struct SlotsBuilder<S, C = BootClock> {
    pub(super) store: S,
    pub(super) policy: String,
    pub(super) prefix: String,
    pub(super) most: u32,
    pub(super) lives: Duration,
    pub(super) margin: Margin,
    pub(super) slots_max: usize,
    pub(super) clock: C,
}

impl<S: SlotStore> SlotsBuilder<S> {
    pub(super) fn new(store: S, policy: &str, most: u32) -> Self {
        Self {
            store,
            policy: policy.to_owned(),
            prefix: PREFIX.to_owned(),
            most,
            lives: LIVES,
            margin: Margin::default(),
            slots_max: SLOTS_MAX_HERE,
            clock: BootClock,
        }
    }
}

impl<S: SlotStore, C: LeaseClock + 'static> SlotsBuilder<S, C> {
    /// Sets the lifetime of a lease without a heartbeat: after this time the slot of a process that died is free again,
    /// and after this time without the store every holder has to stop. Default: 30 seconds.
    ///
    /// It has to outlive a failover of the store. Leases of two seconds all expire while a Redis cluster fails over, as
    /// that takes longer.
    ///
    /// All processes of a policy need the same lifetime. A server that may have forgotten leases rejects each process
    /// for the lifetime of that process's own leases; forgotten leases live for the lifetime that their holders
    /// requested. So to lower it, change all processes, and wait out the old lifetime before a failover is safe again.
    pub fn lives(self, lives: Duration) -> Self {
        Self { lives, ..self }
    }

    /// Sets the maximum number of slots that this process holds at a time, over all keys; one more is denied until
    /// another is released. Default: 12,288, which is the maximum.
    pub fn slots_max(self, slots: usize) -> Self {
        Self { slots_max: slots.min(SLOTS_MAX_HERE), ..self }
    }

    /// Sets the maximum error of the clocks of store and process.
    pub fn margin(self, margin: Margin) -> Self {
        Self { margin, ..self }
    }

    /// Sets the prefix of keys. Default: `tk`.
    pub fn prefix(self, prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), ..self }
    }

    /// Sets the clock for the deadlines of holders.
    pub fn clock<D: LeaseClock>(self, clock: D) -> SlotsBuilder<S, D> {
        let Self { store, policy, prefix, most, lives, margin, slots_max, .. } = self;
        SlotsBuilder { store, policy, prefix, most, lives, margin, slots_max, clock }
    }

    /// Builds the slots, or returns why leases cannot live that long.
    pub fn build(self) -> Result<SharedSlots<S, C>, StoreError> {
        let margin = self.margin.behind(self.clock.behind_max());
        let works = margin.deadline(Timestamp::EPOCH, self.lives).since(Timestamp::EPOCH);
        if !(LIVES_MIN..=LIVES_MAX).contains(&self.lives) || works < self.lives / 2 {
            return Err(StoreError::misconfigured(format_args!(
                "leases of {:?}, of which {works:?} are left by what the clocks may be wrong by: let slots live longer, \
                 at least {LIVES_MIN:?} and at most {LIVES_MAX:?}",
                self.lives
            )));
        }
        Ok(SharedSlots::new(self, margin))
    }
}
