//! The task that renews all slots of a process, and releases those that are left.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::Beat;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

use super::slot_registry::{Leave, SlotRegistry, Ticket};
use crate::LeaseClock;
use crate::background::Mailbox;
use crate::store::{SlotLease, SlotStore};

/// How many releases wait for the renewer. What comes beyond comes back when its lease is over.
const QUEUED_MAX: usize = 65_536;
/// How many leases go in one call.
const FLIGHT_MAX: usize = 128;
/// How many calls of each kind are under way.
const FLIGHTS_MAX: usize = 16;
/// How many beats begin in one round, however many are due: after a pause they come one round after the other.
const ROUND_MAX: usize = 1_024;
/// Rounds in the life of a lease.
const ROUNDS: u32 = 60;
/// The most slots one process holds: as many as are beaten for in a fifth of a life.
pub(super) const SLOTS_MAX_HERE: usize = ROUND_MAX * ROUNDS as usize / 5;
/// How often a release is sent, and the pause between. It counts once, however often it arrives.
const RELEASE_TRIES_MAX: u32 = 3;
const RELEASE_PAUSE: Duration = Duration::from_millis(100);
/// A renewer whose last round is longer ago than this part of a life is not alive: beats begin at a third of it.
const LATE_PART: u32 = 4;

/// What the renewer works with.
pub(super) struct Renewer<S, C> {
    pub(super) store: S,
    pub(super) registry: Arc<SlotRegistry>,
    pub(super) clock: Arc<C>,
    pub(super) lives: Duration,
}

/// The way to a renewer: whoever leaves a slot starts it, if there is none.
pub(super) fn mailbox<S: SlotStore, C: LeaseClock + 'static>(renewer: &Arc<Renewer<S, C>>) -> Mailbox<Leave> {
    let renewer = renewer.clone();
    Mailbox::new(QUEUED_MAX, move |queue| {
        let counters = &renewer.registry.counters;
        counters.keepers.fetch_add(1, Relaxed);
        counters.round_at.store(renewer.clock.now().as_nanos(), Relaxed);
        renewer.registry.background.spawn(run(renewer.clone(), queue));
    })
}

impl<S, C: LeaseClock> Renewer<S, C> {
    /// Whether the last round began so lately that no lease is in danger: within a quarter of a life.
    pub(super) fn is_on_time(&self) -> bool {
        let round_at = Timestamp::from_nanos(self.registry.counters.round_at.load(Relaxed));
        self.clock.now().since(round_at) < self.lives / LATE_PART
    }
}

/// Runs until nobody holds the slots or one of them, and all that they left has gone back.
pub(super) async fn run<S: SlotStore, C: LeaseClock + 'static>(
    renewer: Arc<Renewer<S, C>>,
    mut queue: mpsc::Receiver<Leave>,
) {
    let round = (renewer.lives / ROUNDS).max(Duration::from_millis(1));
    let [beats, releases] = [(); 2].map(|()| Arc::new(Semaphore::new(FLIGHTS_MAX)));
    let mut looked_at = renewer.clock.now();
    loop {
        let rest = round.saturating_sub(renewer.clock.now().since(looked_at));
        let mut left = Vec::new();
        let take = async {
            let permit = releases.clone().acquire_owned().await.ok();
            (permit, queue.recv_many(&mut left, FLIGHT_MAX).await)
        };
        match timeout(rest, take).await {
            Ok((_, 0)) => return,
            Ok((permit, _)) => drop(tokio::spawn(release(renewer.clone(), left, permit))),
            Err(_) => {}
        }
        let now = renewer.clock.now();
        if now.since(looked_at) >= round {
            looked_at = now;
            renewer.registry.counters.round_at.store(now.as_nanos(), Relaxed);
            start_beats(&renewer, &beats, now);
        }
    }
}

/// Each call is a task of its own: one that hangs holds up no other.
fn start_beats<S: SlotStore, C: LeaseClock + 'static>(
    renewer: &Arc<Renewer<S, C>>,
    flights: &Arc<Semaphore>,
    now: Timestamp,
) {
    let room = (flights.available_permits() * FLIGHT_MAX).min(ROUND_MAX);
    for part in renewer.registry.due(room, now).chunks(FLIGHT_MAX) {
        let permit = flights.clone().try_acquire_owned().ok();
        tokio::spawn(beat(renewer.clone(), part.to_vec(), permit));
    }
}

async fn beat<S: SlotStore, C: LeaseClock>(
    renewer: Arc<Renewer<S, C>>,
    tickets: Vec<Arc<Ticket>>,
    _permit: Option<OwnedSemaphorePermit>,
) {
    let Renewer { store, registry, clock, lives } = &*renewer;
    let leases: Vec<SlotLease<'_>> = tickets.iter().map(|ticket| ticket.lease(registry.owner)).collect();
    registry.counters.flights.fetch_add(1, Relaxed);
    registry.counters.beats.fetch_add(leases.len() as u64, Relaxed);
    let sent = clock.now();
    let beats = store.heartbeat(&leases, *lives).await;
    let now = clock.now();
    for (ticket, beat) in tickets.iter().zip(beats) {
        match beat {
            Ok(Beat::Held(slot)) => ticket.beaten(sent, Some(slot.lives), now),
            Ok(Beat::Lost) => {
                registry.counters.lost.fetch_add(1, Relaxed);
                ticket.beaten(sent, None, now);
            }
            // Whether it lives nobody knows: the deadline stands.
            Err(_) => {}
        }
    }
}

async fn release<S: SlotStore, C: LeaseClock>(
    renewer: Arc<Renewer<S, C>>,
    mut left: Vec<Leave>,
    _permit: Option<OwnedSemaphorePermit>,
) {
    let Renewer { store, registry, .. } = &*renewer;
    for tries in 1..=RELEASE_TRIES_MAX {
        let leases: Vec<SlotLease<'_>> =
            left.iter().map(|leave| leave.ticket.lease(registry.owner)).collect();
        let answers = store.release(&leases).await;
        let mut again = Vec::new();
        for (leave, answer) in left.into_iter().zip(answers) {
            match answer {
                Ok(held) => {
                    registry.counters.released.fetch_add(u64::from(held), Relaxed);
                    leave.told.map(|told| told.send(Ok(held)));
                }
                Err(error) if error.may_pass() && tries < RELEASE_TRIES_MAX => again.push(leave),
                Err(error) => {
                    registry.counters.lapsed.fetch_add(1, Relaxed);
                    leave.told.map(|told| told.send(Err(error)));
                }
            }
        }
        left = again;
        if left.is_empty() {
            return;
        }
        tokio::time::sleep(RELEASE_PAUSE).await;
    }
}
