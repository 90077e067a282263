//! What can be chosen.

use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::lease::Margin;

use super::SharedSlots;
use super::renewer::SLOTS_MAX_HERE;
use crate::store::{LIVES_MAX, LIVES_MIN, SlotStore, StoreError};
use crate::{BootClock, LeaseClock};

/// Longer than a failover of the store takes: to notice, to elect, to connect anew.
const LIVES: Duration = Duration::from_secs(30);
/// Under which names stores keep keys.
const PREFIX: &str = "tk";

/// Describes a [`SharedSlots`].
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
    /// How long a lease lives without a beat: after so long the slot of a process that died comes back, and after so long
    /// without the store every holder has to stop. Unless chosen, thirty seconds.
    ///
    /// It has to outlive a failover of the store. Leases of two seconds are all over when a Redis cluster has failed over,
    /// as that takes longer.
    ///
    /// All processes of a policy need the same. A server that may have forgotten leases keeps each asker out for as long as
    /// that asker's own leases live; leases that were forgotten live as long as those who hold them asked. So whoever
    /// lowers it changes all processes, and waits out the old life before a failover is safe again.
    pub fn lives(self, lives: Duration) -> Self {
        Self { lives, ..self }
    }

    /// How many slots this process holds at a time, of all keys together; one more is denied until another is left. Unless
    /// chosen, 12,288, which is the most.
    pub fn slots_max(self, slots: usize) -> Self {
        Self { slots_max: slots.min(SLOTS_MAX_HERE), ..self }
    }

    /// What the clocks of store and process may be wrong by.
    pub fn margin(self, margin: Margin) -> Self {
        Self { margin, ..self }
    }

    /// With what the names of keys begin. Unless chosen, `tk`.
    pub fn prefix(self, prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), ..self }
    }

    /// The clock by which holders stop.
    pub fn clock<D: LeaseClock>(self, clock: D) -> SlotsBuilder<S, D> {
        let Self { store, policy, prefix, most, lives, margin, slots_max, .. } = self;
        SlotsBuilder { store, policy, prefix, most, lives, margin, slots_max, clock }
    }

    /// The slots, or why leases cannot live so long.
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
