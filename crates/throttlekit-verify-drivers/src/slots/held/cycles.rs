//! Millions of admissions in process, dropped after any number of polls, with clients killed in turn.
//!
//! Time stands still while a client lives, so that no lease expires: every slot that is not released is
//! detected.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use throttlekit::clock::ManualClock;
use throttlekit::guard::{Ending, SharedGuardPermit, SlotStats};
use throttlekit::internals::Mutex;
use throttlekit::rate::Timestamp;
use throttlekit::store::{
    Background, HeartbeatOutcome, KeySpace, MemoryStore, Occupancy, SlotAnswer, SlotLease, SlotRequest,
    SlotStore, StoreError,
};
use throttlekit::{Concurrency, SharedGuard};
use throttlekit_conformance::{Dice, bugs};
use tokio::runtime::{Builder, Runtime};

use super::Part;

const LIVES: Duration = Duration::from_secs(60);
const POLICY: &str = "cycles";
/// Few enough that some requests are denied.
const MOST: u32 = 12;
const KEYS: u64 = 4;
/// Cycles of one client before it is killed with what it holds.
const PER_CLIENT: u64 = 20_000;
/// The last of them, whose completion is not awaited.
const UNDER_WAY: u64 = 50;
/// The number of polls after which an admission has always completed.
const POLLS_MAX: u64 = 16;
/// The maximum number of slots that a client keeps.
const HELD_MAX: usize = 32;
/// The number of turns in which everything that a client has started is over.
const TURNS_MAX: u32 = 2_000;

bugs! {
    /// A bug of the slots.
    pub(crate) enum CycleBug {
        DropSendsNothing: "A slot that is dropped sends no release.",
        ReleaseDoesNothing: "The store acknowledges a release and does nothing.",
    }
}

/// The slots of one client, and its store.
struct Slots {
    guard: SharedGuard,
    store: Far,
}

type Slot = SharedGuardPermit;

/// Slots in memory with await points on the way, passed one at a time as the test decides.
#[derive(Clone)]
struct Far {
    store: Arc<MemoryStore<ManualClock>>,
    gate: Arc<Gate>,
    bug: Option<CycleBug>,
    /// The runtime of the living client, so that its tasks run between its polls and end with it.
    background: Background,
}

/// Blocks calls until it has been opened the number of times that they wait for.
#[derive(Default)]
struct Gate {
    opened: AtomicU64,
    waiting: Mutex<Vec<Waker>>,
}

/// The number of openings of a gate while a call waits at it.
const OPENINGS: u64 = 2;

impl Gate {
    fn open(&self) {
        self.opened.fetch_add(1, SeqCst);
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.into_iter().for_each(Waker::wake);
    }

    async fn pass(&self) {
        let until = self.opened.load(SeqCst) + OPENINGS;
        poll_fn(|context| {
            if self.opened.load(SeqCst) >= until {
                return Poll::Ready(());
            }
            self.waiting.lock().push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl SlotStore for Far {
    async fn acquire(&self, ask: &SlotRequest<'_>) -> Result<SlotAnswer, StoreError> {
        self.gate.pass().await;
        let answer = self.store.acquire(ask).await;
        self.gate.pass().await;
        answer
    }

    async fn heartbeat(
        &self,
        leases: &[SlotLease<'_>],
        lives: Duration,
    ) -> Vec<Result<HeartbeatOutcome, StoreError>> {
        self.gate.pass().await;
        self.store.heartbeat(leases, lives).await
    }

    async fn release(&self, leases: &[SlotLease<'_>]) -> Vec<Result<bool, StoreError>> {
        self.gate.pass().await;
        if self.bug == Some(CycleBug::ReleaseDoesNothing) {
            return leases.iter().map(|_| Ok(true)).collect();
        }
        self.store.release(leases).await
    }

    async fn occupancy(&self, keys: &[&str]) -> Result<Vec<Occupancy>, StoreError> {
        self.store.occupancy(keys).await
    }

    fn background(&self) -> Background {
        self.background.clone()
    }
}

#[derive(Default)]
struct Counts {
    cycles: u64,
    cancelled: u64,
    admitted: u64,
    denied: u64,
    killed_holding: u64,
    over_ceiling: u64,
    /// Slots without a holder, or releases that were never counted, when everything was quiet.
    leaked: u64,
    /// Slots of killed clients that had not come back a lifetime later.
    left_over: u64,
    /// The number of admissions dropped at each poll.
    dropped_at: [u64; POLLS_MAX as usize],
}

pub(super) fn run(cycles: u64, part: &mut Part) -> Result<Value> {
    for &bug in CycleBug::ALL {
        part.seeded.note(bug.name(), play(PER_CLIENT, Some(bug))?.leaked > 0);
    }
    let counts = play(cycles, None)?;
    let Counts { cycles, cancelled, admitted, denied, killed_holding, over_ceiling, .. } = counts;
    let Counts { leaked, left_over, dropped_at, .. } = counts;
    println!(
        "{cycles} cycles in memory: {cancelled} cut off, {admitted} admitted, {denied} denied, {killed_holding} held by \
         clients that were killed; {leaked} leaked"
    );
    if leaked > 0 {
        part.broken.push(format!("slots: {leaked} slots leaked after {cycles} cycles in memory"));
    }
    if left_over > 0 {
        part.broken.push(format!(
            "slots: {left_over} slots of killed clients outlived their leases by a tenth in memory"
        ));
    }
    if over_ceiling > 0 {
        part.broken.push(format!("slots: the ceiling was passed {over_ceiling} times in memory"));
    }
    let reached = dropped_at.iter().take_while(|&&times| times > 0).count();
    if reached < 4 || cancelled == 0 || killed_holding == 0 || denied == 0 {
        part.broken.push(format!("slots: too little was met: dropped after so many polls {dropped_at:?}"));
    }
    Ok(json!({
        "cycles": cycles, "cancelled": cancelled, "admitted": admitted, "denied": denied,
        "killed_holding": killed_holding, "dropped_after_polls": reached, "leaked": leaked,
        "left_over": left_over,
    }))
}

/// Runs clients one after the other, each killed with its slots.
fn play(cycles: u64, bug: Option<CycleBug>) -> Result<Counts> {
    let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000));
    let store = Arc::new(MemoryStore::with_clock(clock.clone()));
    let mut store = Far { store, gate: Arc::default(), bug, background: Background::default() };
    let mut counts = Counts::default();
    let mut dice = Dice::new(1);
    while counts.cycles < cycles {
        let runtime = Builder::new_current_thread().enable_time().build()?;
        store.background = Background::default().on(runtime.handle().clone());
        client(&runtime, &store, &clock, &mut dice, &mut counts);
        // Killed: its tasks are dropped at once, and no heartbeats are sent for its slots.
        runtime.shutdown_background();
        clock.advance(LIVES + LIVES / 10);
        let reads = Builder::new_current_thread().build()?;
        counts.left_over += u64::from(reads.block_on(held(&store)));
        if counts.cycles.is_multiple_of(50 * PER_CLIENT) {
            eprintln!("cycles: {} of {cycles}", counts.cycles);
        }
    }
    Ok(counts)
}

/// Runs one client from its start to its end.
fn client(runtime: &Runtime, store: &Far, clock: &ManualClock, dice: &mut Dice, counts: &mut Counts) {
    let guard = SharedGuard::builder(store.clone(), POLICY, Concurrency::per_key(MOST))
        .clock(clock.clone())
        .lease(LIVES)
        .build()
        .expect("a valid lease");
    let slots = Slots { guard, store: store.clone() };
    let held = runtime.block_on(async {
        let mut held = Vec::new();
        for _ in 0..PER_CLIENT - UNDER_WAY {
            counts.cycles += 1;
            cycle(&slots, dice, counts, &mut held).await;
            go_on(store, dice).await;
            if counts.cycles.is_multiple_of(997) && most_held(store).await > MOST {
                counts.over_ceiling += 1;
            }
        }
        counts.leaked += leaked(&slots, held.len() as u64).await;
        // It is killed with work in progress.
        for _ in 0..UNDER_WAY {
            counts.cycles += 1;
            cycle(&slots, dice, counts, &mut held).await;
        }
        held
    });
    counts.killed_holding += held.len() as u64;
    // A killed process releases nothing.
    held.into_iter().for_each(std::mem::forget);
}

/// Waits for the end of everything that was started. Returns the difference between the books and `kept`: by
/// the store's count, by admissions without a release, and by abandoned releases.
async fn leaked(slots: &Slots, kept: u64) -> u64 {
    let mut off = 0;
    for _ in 0..TURNS_MAX {
        slots.store.gate.open();
        tokio::task::yield_now().await;
        let SlotStats { admitted, released, lapsed, .. } =
            slots.guard.stats().slots.expect("slots on a store");
        let counted = u64::from(held(&slots.store).await).abs_diff(kept);
        off = counted.max(admitted.abs_diff(released + kept)).max(lapsed);
        if off == 0 {
            break;
        }
    }
    off
}

/// Starts an admission and drops it after some number of polls.
async fn cycle(slots: &Slots, dice: &mut Dice, counts: &mut Counts, held: &mut Vec<Slot>) {
    let key = [b'a' + dice.below(KEYS) as u8];
    let polls = dice.below(POLLS_MAX);
    let mut admit = Box::pin(slots.guard.acquire(&key));
    for _ in 0..polls {
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(answer) = admit.as_mut().poll(&mut context) {
            let Some(slot) = answer.expect("memory answers").permit else {
                counts.denied += 1;
                return;
            };
            counts.admitted += 1;
            return keep_or_leave(slot, &slots.store, dice, held).await;
        }
        go_on(&slots.store, dice).await;
    }
    counts.cancelled += 1;
    counts.dropped_at[polls as usize] += 1;
}

/// Lets the other tasks run, or opens the gate, or both.
async fn go_on(store: &Far, dice: &mut Dice) {
    if !dice.once_in(3) {
        store.gate.open();
    }
    if !dice.once_in(3) {
        tokio::task::yield_now().await;
    }
}

/// Keeps some for a while, releases some, drops most.
async fn keep_or_leave(slot: Slot, store: &Far, dice: &mut Dice, held: &mut Vec<Slot>) {
    match dice.below(8) {
        0 => held.push(slot),
        1 => {
            let mut release = Box::pin(slot.close(Ending::Success));
            let mut context = Context::from_waker(Waker::noop());
            for _ in 0..dice.below(4) {
                if release.as_mut().poll(&mut context).is_ready() {
                    return;
                }
                go_on(store, dice).await;
            }
        }
        _ if store.bug == Some(CycleBug::DropSendsNothing) => std::mem::forget(slot),
        _ => drop(slot),
    }
    if held.len() > HELD_MAX {
        drop(held.swap_remove(dice.below(held.len() as u64) as usize));
    }
}

fn keys() -> Vec<String> {
    let space = KeySpace::slots("tk", POLICY);
    (0..KEYS).map(|key| [b'a' + key as u8]).map(|key| space.key(&key, &key)).collect()
}

async fn seen(store: &Far) -> Vec<u32> {
    let keys = keys();
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    let seen = store.occupancy(&names).await.expect("memory answers");
    seen.iter().map(|seen| seen.held).collect()
}

async fn held(store: &Far) -> u32 {
    seen(store).await.iter().sum()
}

async fn most_held(store: &Far) -> u32 {
    seen(store).await.into_iter().max().unwrap_or(0)
}
