//! The task that renews all slots of a process, and releases those that are given back.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::HeartbeatOutcome;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

use super::slot_registry::{Leave, SlotRegistry, Ticket};
use crate::background::Mailbox;
use crate::clock::LeaseClock;
use crate::store::{SlotLease, SlotStore};

/// Maximum number of releases that wait for the renewer. A slot beyond is free when its lease expires.
const QUEUED_MAX: usize = 65_536;
/// Maximum number of leases in one call.
const FLIGHT_MAX: usize = 128;
/// Maximum number of calls of each kind in flight.
const FLIGHTS_MAX: usize = 16;
/// Maximum number of heartbeats that begin in one round: after a pause the rest follow, one round after the other.
const ROUND_MAX: usize = 1_024;
/// Rounds in the lifetime of a lease.
const ROUNDS: u32 = 60;
/// Maximum number of slots of one process: as many as get a heartbeat in a fifth of a lifetime.
pub(in crate::guard) const SLOTS_MAX_HERE: usize = ROUND_MAX * ROUNDS as usize / 5;
/// Maximum number of attempts of a release, and the pause between. It counts once, however often it arrives.
const RELEASE_TRIES_MAX: u32 = 3;
const RELEASE_PAUSE: Duration = Duration::from_millis(100);
/// A renewer without a round for this part of a lifetime is not alive: heartbeats begin at a third of it.
const LATE_PART: u32 = 4;

/// State of the renewer.
pub(super) struct Renewer<S, C> {
    pub(super) store: S,
    pub(super) registry: Arc<SlotRegistry>,
    pub(super) clock: Arc<C>,
    pub(super) lives: Duration,
}

/// Returns the mailbox of a renewer: releasing a slot starts it, if there is none.
pub(super) fn mailbox<S: SlotStore, C: LeaseClock + 'static>(renewer: &Arc<Renewer<S, C>>) -> Mailbox<Leave> {
    let renewer = renewer.clone();
    Mailbox::new(QUEUED_MAX, move |queue| {
        renewer.registry.counters.renewers.fetch_add(1, Relaxed);
        renewer.registry.round_at.store(renewer.clock.now().as_nanos(), Relaxed);
        renewer.registry.background.spawn(run(renewer.clone(), queue));
    })
}

impl<S, C: LeaseClock> Renewer<S, C> {
    /// Returns whether the last round began so recently that no lease is in danger: within a quarter of a lifetime.
    pub(super) fn is_on_time(&self) -> bool {
        let round_at = Timestamp::from_nanos(self.registry.round_at.load(Relaxed));
        self.clock.now().since(round_at) < self.lives / LATE_PART
    }
}

/// Runs until the slots and all held ones are dropped, and all releases are done.
pub(super) async fn run<S: SlotStore, C: LeaseClock + 'static>(
    renewer: Arc<Renewer<S, C>>,
    mut queue: mpsc::Receiver<Leave>,
) {
    let round = (renewer.lives / ROUNDS).max(Duration::from_millis(1));
    let [heartbeats, releases] = [(); 2].map(|()| Arc::new(Semaphore::new(FLIGHTS_MAX)));
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
            renewer.registry.round_at.store(now.as_nanos(), Relaxed);
            start_heartbeats(&renewer, &heartbeats, now);
        }
    }
}

/// Starts the heartbeats. Each call is a task of its own: one that hangs delays no other.
fn start_heartbeats<S: SlotStore, C: LeaseClock + 'static>(
    renewer: &Arc<Renewer<S, C>>,
    flights: &Arc<Semaphore>,
    now: Timestamp,
) {
    let room = (flights.available_permits() * FLIGHT_MAX).min(ROUND_MAX);
    for part in renewer.registry.due(room, now).chunks(FLIGHT_MAX) {
        let permit = flights.clone().try_acquire_owned().ok();
        tokio::spawn(heartbeat(renewer.clone(), part.to_vec(), permit));
    }
}

async fn heartbeat<S: SlotStore, C: LeaseClock>(
    renewer: Arc<Renewer<S, C>>,
    tickets: Vec<Arc<Ticket>>,
    _permit: Option<OwnedSemaphorePermit>,
) {
    let Renewer { store, registry, clock, lives } = &*renewer;
    let leases: Vec<SlotLease<'_>> = tickets.iter().map(|ticket| ticket.lease(registry.owner)).collect();
    registry.counters.flights.fetch_add(1, Relaxed);
    registry.counters.heartbeats.fetch_add(leases.len() as u64, Relaxed);
    let sent = clock.now();
    let heartbeats = store.heartbeat(&leases, *lives).await;
    let now = clock.now();
    for (ticket, heartbeat) in tickets.iter().zip(heartbeats) {
        match heartbeat {
            Ok(HeartbeatOutcome::Held(slot)) => ticket.renewed(sent, Some(slot.lives), now),
            Ok(HeartbeatOutcome::Lost) => {
                registry.counters.lost.fetch_add(1, Relaxed);
                ticket.renewed(sent, None, now);
            }
            // It is unknown whether it lives: the deadline stays.
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
