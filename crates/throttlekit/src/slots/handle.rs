//! The handle to shared slots.

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
use crate::store::{KeySpace, SlotAnswer, SlotRequest, SlotStore, StoreError};
use crate::{BootClock, Guarantee, LeaseClock};

/// Retry delay after a denial in an outage: circuit breakers probe several times a second.
const OUTAGE_RETRY: Duration = Duration::from_secs(1);

/// Slots for each of many keys, shared by processes. See [the module](super).
///
/// The renewer, a task that sends heartbeats for all slots of the process, runs on the store's
/// [`background`](SlotStore::background), whatever the caller's runtime. If it ends, the next [`admit`](Self::admit) or
/// release starts another: [`SlotStats::keeper_alive`] reports whether one is running, and [`SlotStats::keepers`] how
/// many have been started. Slots that are held meanwhile are fenced in time.
///
/// All processes of a policy need the same [`lives`](SlotsBuilder::lives).
pub struct SharedSlots<S, C = BootClock> {
    renewer: Arc<Renewer<S, C>>,
    keys: Arc<KeySpace>,
    most: Arc<AtomicU32>,
    margin: Margin,
    /// Mailbox of the renewer, which the first request starts.
    leaves: Leaves,
}

/// The response to a request for a slot.
#[derive(Debug)]
#[must_use = "dropping it gives the slot back"]
pub struct Admission<C: LeaseClock = BootClock> {
    /// Decision: whether there is a slot; if not, when to retry.
    pub decision: Decision,
    /// Guarantee of the decision.
    pub guarantee: Guarantee,
    /// The slot, if there is one. Dropping it releases it, so keep it while work runs: code that only checks the
    /// decision and drops the rest, as in `if slots.admit(key).await?.decision.allowed { work() }`, works without a
    /// slot.
    pub slot: Option<HeldSlot<C>>,
    /// Maximum time until a slot is free, if there are no heartbeats or requests meanwhile.
    pub room_in: Option<Duration>,
    /// Reason why the store did not decide, if so. Then the request was denied.
    pub outage: Option<StoreError>,
}

impl<S: SlotStore> SharedSlots<S> {
    /// Creates a builder of slots of which at most `most` are held at a time, for each of many keys. The policy's name
    /// separates its keys from those of others on the store.
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

    /// Requests a slot of a key, in one call to the store.
    ///
    /// A denial reports the free slots as `remaining`, and that a release frees one. While the store is unavailable,
    /// requests are denied. A caller that stops waiting leaves nothing behind: the call is completed by a task of its
    /// own, and a slot that nobody takes is released.
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
        // A task of its own, which completes whether or not anyone waits for it.
        let asked = ask(self.renewer.clone(), slot, most, self.margin);
        match registry.background.run(1, asked).await.unwrap_or_else(Err) {
            Err(error) if error.is_outage() => Ok(Admission::without_store(most, error)),
            admission => admission,
        }
    }

    /// Returns the current maximum number of slots held at a time.
    pub fn most(&self) -> u32 {
        self.most.load(Relaxed)
    }

    /// Changes the maximum held at a time, for requests of this process from now on. Slots that are held stay held.
    pub fn set_most(&self, most: u32) {
        self.most.store(most, Relaxed);
    }

    /// Returns the number of slots of a key that are held, by all processes.
    pub async fn occupancy(&self, key: impl AsRef<[u8]>) -> Result<u32, StoreError> {
        let key = self.keys.key(key.as_ref(), key.as_ref());
        let seen = self.renewer.store.occupancy(&[&key]).await?;
        Ok(seen.first().map_or(0, |seen| seen.held))
    }

    /// Returns the guarantee of a decision.
    pub fn guarantee(&self) -> Guarantee {
        self.renewer.store.guarantee()
    }

    /// Returns the store.
    pub fn store(&self) -> &S {
        &self.renewer.store
    }

    /// Returns the statistics.
    pub fn stats(&self) -> SlotStats {
        let keeper_alive = self.leaves.is_open() && self.renewer.is_on_time();
        SlotStats { keeper_alive, ..self.renewer.registry.stats() }
    }
}

/// Requests a slot from the store. If dropped on the way, or without a response, the slot is released: the store may
/// have recorded it.
async fn ask<S: SlotStore, C: LeaseClock + 'static>(
    renewer: Arc<Renewer<S, C>>,
    slot: HeldSlot<C>,
    most: u32,
    margin: Margin,
) -> Result<Admission<C>, StoreError> {
    let (ticket, registry) = (slot.ticket(), &renewer.registry);
    let lives = renewer.lives;
    let ask = SlotRequest { key: &ticket.key, lease: ticket.lease, owner: registry.owner, most, lives };
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

clone_fields!([S, C] SharedSlots<S, C>, renewer, keys, most, margin, leaves);

debug_fields!([S: SlotStore, C: LeaseClock + 'static] SharedSlots<S, C>, |it| stats = it.stats());
