//! Slots on a store, as a process requests them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use throttlekit_core::concurrency::{Hold, SlotStep};
use throttlekit_core::lease::Margin;
use throttlekit_core::{Decision, Retry, Timestamp};

use super::held_slot::HeldSlot;
use super::renewer::{self, Renewer};
use super::slot_registry::{Leaves, SlotRegistry};
use super::stats::SlotStats;
use super::{AnySlots, Later};
use crate::Guarantee;
use crate::clock::LeaseClock;
use crate::hash::random_u64;
use crate::store::{KeySpace, SlotAnswer, SlotRequest, SlotStore, StoreError};

/// Retry delay after a denial in an outage: circuit breakers probe several times a second.
const OUTAGE_RETRY: Duration = Duration::from_secs(1);

/// Slots of keys on a store.
///
/// The renewer, a task that sends heartbeats for all slots of the process, runs on the store's
/// [`background`](SlotStore::background), whatever the caller's runtime. If it ends, the next
/// [`admit`](AnySlots::admit) or release starts another: [`SlotStats::renewer_alive`] reports whether one is running,
/// and [`SlotStats::renewers`] how many have been started. Slots that are held meanwhile are fenced in time.
pub(in crate::guard) struct SlotLeases<S, C> {
    renewer: Arc<Renewer<S, C>>,
    keys: KeySpace,
    most: AtomicU32,
    margin: Margin,
    /// Mailbox of the renewer, which the first request starts.
    leaves: Leaves,
}

/// Settings of slots, validated.
pub(in crate::guard) struct Setup<S, C> {
    pub(in crate::guard) store: S,
    pub(in crate::guard) keys: KeySpace,
    pub(in crate::guard) most: u32,
    pub(in crate::guard) lives: Duration,
    pub(in crate::guard) margin: Margin,
    pub(in crate::guard) slots_max: usize,
    pub(in crate::guard) clock: C,
}

/// The response to a request for a slot.
pub(in crate::guard) struct Granted {
    pub(in crate::guard) decision: Decision,
    pub(in crate::guard) guarantee: Guarantee,
    /// The slot, if there is one.
    pub(in crate::guard) slot: Option<HeldSlot>,
    /// Reason why the store did not decide, if so. Then the request was denied.
    pub(in crate::guard) outage: Option<StoreError>,
}

impl<S: SlotStore, C: LeaseClock + 'static> SlotLeases<S, C> {
    pub(in crate::guard) fn new(setup: Setup<S, C>) -> Self {
        let Setup { store, keys, most, lives, margin, slots_max, clock } = setup;
        let registry = Arc::new(SlotRegistry::new(slots_max, store.background()));
        let renewer = Arc::new(Renewer { registry, store, clock: Arc::new(clock), lives });
        let leaves = Arc::new(renewer::mailbox(&renewer));
        Self { leaves, renewer, keys, most: AtomicU32::new(most), margin }
    }

    async fn request(&self, key: &[u8]) -> Result<Granted, StoreError> {
        let (registry, clock) = (&self.renewer.registry, &self.renewer.clock);
        let Some(ticket) = registry.enter(self.keys.key(key, key).into()) else {
            registry.counters.denied.fetch_add(1, Relaxed);
            return Ok(Granted::refused(self.limit(), Retry::OnRelease, self.guarantee()));
        };
        self.leaves.wake();
        let slot = HeldSlot::asked_for(ticket, registry.clone(), clock.clone(), self.leaves.clone());
        let most = self.limit();
        // A task of its own, which completes whether or not anyone waits for it.
        let asked = ask(self.renewer.clone(), slot, most, self.margin);
        match registry.background.run(1, asked).await.unwrap_or_else(Err) {
            Err(error) if error.is_outage() => Ok(Granted::without_store(most, error)),
            granted => granted,
        }
    }
}

impl<S: SlotStore, C: LeaseClock + 'static> AnySlots for SlotLeases<S, C> {
    fn admit<'a>(&'a self, key: &'a [u8]) -> Later<'a, Result<Granted, StoreError>> {
        Box::pin(self.request(key))
    }

    fn occupancy<'a>(&'a self, key: &'a [u8]) -> Later<'a, Result<u32, StoreError>> {
        Box::pin(async move {
            let key = self.keys.key(key, key);
            let seen = self.renewer.store.occupancy(&[&key]).await?;
            Ok(seen.first().map_or(0, |seen| seen.held))
        })
    }

    fn limit(&self) -> u32 {
        self.most.load(Relaxed)
    }

    fn set_limit(&self, limit: u32) {
        self.most.store(limit, Relaxed);
    }

    fn guarantee(&self) -> Guarantee {
        self.renewer.store.guarantee()
    }

    fn stats(&self) -> SlotStats {
        let renewer_alive = self.leaves.is_open() && self.renewer.is_on_time();
        SlotStats { renewer_alive, ..self.renewer.registry.stats() }
    }
}

/// Requests a slot from the store. If dropped on the way, or without a response, the slot is released: the store may
/// have recorded it.
async fn ask<S: SlotStore, C: LeaseClock + 'static>(
    renewer: Arc<Renewer<S, C>>,
    slot: HeldSlot,
    most: u32,
    margin: Margin,
) -> Result<Granted, StoreError> {
    let (ticket, registry) = (slot.ticket(), &renewer.registry);
    let lives = renewer.lives;
    let ask = SlotRequest { key: &ticket.key, lease: ticket.lease, owner: registry.owner, most, lives };
    let sent = renewer.clock.now();
    let answer = renewer.store.acquire(&ask).await;
    let granted = match answer {
        Ok(answer) => answered(&renewer, slot, answer, most, margin, sent),
        Err(error) if error.is_outage() => Granted::without_store(most, error),
        Err(error) => return Err(error),
    };
    let counters = &renewer.registry.counters;
    let counter = if granted.slot.is_some() { &counters.admitted } else { &counters.denied };
    counter.fetch_add(1, Relaxed);
    Ok(granted)
}

fn answered<S: SlotStore, C: LeaseClock + 'static>(
    renewer: &Renewer<S, C>,
    slot: HeldSlot,
    answer: SlotAnswer,
    most: u32,
    margin: Margin,
    sent: Timestamp,
) -> Granted {
    let guarantee = renewer.store.guarantee();
    match answer.step {
        SlotStep::Admit { slot: lent, held } => {
            let now = renewer.clock.now();
            let mut hold = Hold::begin(margin, sent, lent.lives, random_u64() as u32, now);
            if hold.is_fenced(now) {
                return Granted::without_store(most, StoreError::Deadline(renewer.lives));
            }
            slot.begin(hold);
            let decision = decision(true, most, held, answer.now + renewer.lives, Retry::Now);
            Granted { decision, guarantee, slot: Some(slot), outage: None }
        }
        SlotStep::Deny(full) => {
            slot.forget();
            let decision = decision(false, most, full.held, answer.now + renewer.lives, full.retry);
            Granted { decision, guarantee, slot: None, outage: None }
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

impl Granted {
    fn refused(most: u32, retry: Retry, guarantee: Guarantee) -> Self {
        let decision = decision(false, most, most, Timestamp::EPOCH, retry);
        Self { decision, guarantee, slot: None, outage: None }
    }

    fn without_store(most: u32, error: StoreError) -> Self {
        let refused = Self::refused(most, Retry::After(OUTAGE_RETRY), Guarantee::Closed);
        Self { outage: Some(error), ..refused }
    }
}
