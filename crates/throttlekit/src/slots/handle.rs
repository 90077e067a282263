//! What users hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use throttlekit_core::concurrency::{Hold, SlotStep};
use throttlekit_core::lease::Margin;
use throttlekit_core::{Decision, Retry, Timestamp};

use super::builder::SlotsBuilder;
use super::held_slot::HeldSlot;
use super::renewer::{self, Renewer};
use super::slot_registry::{Leaves, SlotRegistry};
use super::stats::SlotStats;
use crate::hash::random_u64;
use crate::store::{KeySpace, SlotAnswer, SlotAsk, SlotStore, StoreError};
use crate::{BootClock, Guarantee, LeaseClock};

/// When to come back after a refusal for an outage: breakers probe several times a second.
const OUTAGE_RETRY: Duration = Duration::from_secs(1);

/// Slots for each of many keys that a fleet shares. See [the module](super).
///
/// The renewer, a task that beats for all slots of the process, runs on the store's
/// [`background`](SlotStore::background), whoever calls and wherever. Should it end, the next [`admit`](Self::admit) or
/// release starts another: [`SlotStats::keeper_alive`] says whether one is there, and [`SlotStats::keepers`] how many
/// there have been. Slots that are held meanwhile are fenced in time.
///
/// All processes of a policy need the same [`lives`](SlotsBuilder::lives).
pub struct SharedSlots<S, C = BootClock> {
    renewer: Arc<Renewer<S, C>>,
    keys: Arc<KeySpace>,
    most: Arc<AtomicU32>,
    margin: Margin,
    /// The way to the renewer, which the first ask starts.
    leaves: Leaves,
}

/// The answer to who wants a slot.
#[derive(Debug)]
#[must_use = "dropping it gives the slot back"]
pub struct Admission<C: LeaseClock = BootClock> {
    /// Whether there is one; if not, when to come back.
    pub decision: Decision,
    /// What the answer is worth.
    pub guarantee: Guarantee,
    /// The slot, if there is one. Dropping it gives it back, so keep it while work runs: who only looks whether the
    /// decision allows and drops the rest, as in `if slots.admit(key).await?.decision.allowed { work() }`, works without.
    pub slot: Option<HeldSlot<C>>,
    /// After how long there is room at the latest, if nobody beats and nobody asks meanwhile.
    pub room_in: Option<Duration>,
    /// Why the store did not decide, if so. Then the ask was refused.
    pub outage: Option<StoreError>,
}

impl<S: SlotStore> SharedSlots<S> {
    /// Describes slots of which `most` are held at a time, for each of many keys. The policy's name tells its keys apart
    /// from those of others on the store.
    pub fn builder(store: S, policy: &str, most: u32) -> SlotsBuilder<S> {
        SlotsBuilder::new(store, policy, most)
    }
}

impl<S: SlotStore, C: LeaseClock + 'static> SharedSlots<S, C> {
    pub(super) fn new(chosen: SlotsBuilder<S, C>, margin: Margin) -> Self {
        let renewer = Arc::new(Renewer {
            registry: Arc::new(SlotRegistry::new(chosen.slots_max, chosen.store.background())),
            store: chosen.store,
            clock: Arc::new(chosen.clock),
            lives: chosen.lives,
        });
        Self {
            leaves: Arc::new(renewer::mailbox(&renewer)),
            renewer,
            keys: Arc::new(KeySpace::slots(&chosen.prefix, &chosen.policy)),
            most: Arc::new(AtomicU32::new(chosen.most)),
            margin,
        }
    }

    /// Asks for a slot of a key, in one call to the store.
    ///
    /// A denial says how many are held by `remaining` and that a release makes room. While the store does not answer, asks
    /// are refused. Whoever goes away while this waits leaves nothing behind: the call is made to its end by a task of
    /// its own, and a slot that nobody takes goes back.
    pub async fn admit(&self, key: impl AsRef<[u8]>) -> Result<Admission<C>, StoreError> {
        let (registry, clock) = (&self.renewer.registry, &self.renewer.clock);
        let key = key.as_ref();
        let Some(ticket) = registry.enter(self.keys.key(key, key).into()) else {
            registry.counters.denied.fetch_add(1, Relaxed);
            return Ok(Admission::refused(self.most(), Retry::OnRelease, self.guarantee()));
        };
        self.leaves.wake();
        let slot = HeldSlot::asked_for(ticket, registry.clone(), clock.clone(), self.leaves.clone());
        let most = self.most();
        // As a task of its own, which lands whether or not anyone waits for it.
        let asked = ask(self.renewer.clone(), slot, most, self.margin);
        match registry.background.run(1, asked).await.flatten() {
            Err(error) if error.is_outage() => Ok(Admission::without_store(most, error)),
            admission => admission,
        }
    }

    /// How many are held at a time, as of now.
    pub fn most(&self) -> u32 {
        self.most.load(Relaxed)
    }

    /// Changes how many are held at a time, for asks of this process from now on. Slots that are held stay held.
    pub fn set_most(&self, most: u32) {
        self.most.store(most, Relaxed);
    }

    /// How many slots of a key are held, by the fleet.
    pub async fn occupancy(&self, key: impl AsRef<[u8]>) -> Result<u32, StoreError> {
        let key = self.keys.key(key.as_ref(), key.as_ref());
        let seen = self.renewer.store.occupancy(&[&key]).await?;
        Ok(seen.first().map_or(0, |seen| seen.held))
    }

    /// What an answer is worth.
    pub fn guarantee(&self) -> Guarantee {
        self.renewer.store.guarantee()
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.renewer.store
    }

    /// What has been done.
    pub fn stats(&self) -> SlotStats {
        let keeper_alive = self.leaves.is_open() && self.renewer.is_on_time();
        SlotStats { keeper_alive, ..self.renewer.registry.stats() }
    }
}

/// Asks the store. Dropped on the way, and also where no answer came, the slot is released: it may have been entered.
async fn ask<S: SlotStore, C: LeaseClock + 'static>(
    renewer: Arc<Renewer<S, C>>,
    slot: HeldSlot<C>,
    most: u32,
    margin: Margin,
) -> Result<Admission<C>, StoreError> {
    let (ticket, registry) = (slot.ticket(), &renewer.registry);
    let lives = renewer.lives;
    let ask = SlotAsk { key: &ticket.key, lease: ticket.lease, owner: registry.owner, most, lives };
    let sent = renewer.clock.now();
    let answer = renewer.store.acquire(&ask).await;
    let admission = match answer {
        Ok(answer) => answered(&renewer, slot, answer, most, margin, sent),
        Err(error) if error.is_outage() => Admission::without_store(most, error),
        Err(error) => return Err(error),
    };
    let counters = &renewer.registry.counters;
    let counter = if admission.slot.is_some() { &counters.admitted } else { &counters.denied };
    counter.fetch_add(1, Relaxed);
    Ok(admission)
}

fn answered<S: SlotStore, C: LeaseClock + 'static>(
    renewer: &Renewer<S, C>,
    slot: HeldSlot<C>,
    answer: SlotAnswer,
    most: u32,
    margin: Margin,
    sent: Timestamp,
) -> Admission<C> {
    let guarantee = renewer.store.guarantee();
    match answer.step {
        SlotStep::Admit { slot: lent, held } => {
            let now = renewer.clock.now();
            let mut hold = Hold::begin(margin, sent, lent.lives, random_u64() as u32, now);
            if hold.is_fenced(now) {
                return Admission::without_store(most, StoreError::Deadline(renewer.lives));
            }
            slot.begin(hold);
            let decision = decision(true, most, held, answer.now + renewer.lives, Retry::Now);
            Admission { decision, guarantee, slot: Some(slot), room_in: None, outage: None }
        }
        SlotStep::Deny(full) => {
            slot.forget();
            let decision = decision(false, most, full.held, answer.now + renewer.lives, full.retry);
            Admission { decision, guarantee, slot: None, room_in: full.room_in, outage: None }
        }
    }
}

fn decision(allowed: bool, most: u32, held: u32, reset_at: Timestamp, retry_after: Retry) -> Decision {
    Decision {
        allowed,
        limit: most.into(),
        remaining: most.saturating_sub(held).into(),
        reset_at,
        retry_after,
    }
}

impl<C: LeaseClock> Admission<C> {
    fn refused(most: u32, retry: Retry, guarantee: Guarantee) -> Self {
        let decision = decision(false, most, most, Timestamp::EPOCH, retry);
        Self { decision, guarantee, slot: None, room_in: None, outage: None }
    }

    fn without_store(most: u32, error: StoreError) -> Self {
        let refused = Self::refused(most, Retry::After(OUTAGE_RETRY), Guarantee::Closed);
        Self { outage: Some(error), ..refused }
    }
}

impl<S, C> Clone for SharedSlots<S, C> {
    fn clone(&self) -> Self {
        Self {
            renewer: self.renewer.clone(),
            keys: self.keys.clone(),
            most: self.most.clone(),
            margin: self.margin,
            leaves: self.leaves.clone(),
        }
    }
}

impl<S: SlotStore, C: LeaseClock + 'static> std::fmt::Debug for SharedSlots<S, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedSlots").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
