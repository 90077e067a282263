//! Admissions in process by the million, cut off after any number of polls, their clients killed in turn.
//!
//! Time stands still while a client lives, so that nothing comes back by itself: what is not given back is seen.

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
/// Few enough that asks are denied too.
const MOST: u32 = 12;
const KEYS: u64 = 4;
/// Cycles of one client before it is killed with what it holds.
const PER_CLIENT: u64 = 20_000;
/// The last of them, after which nothing is waited for.
const UNDER_WAY: u64 = 50;
/// After so many polls an admission has always landed.
const POLLS_MAX: u64 = 16;
/// How many slots a client keeps at the most.
const HELD_MAX: usize = 32;
/// In so many turns all that a client has begun is over.
const TURNS_MAX: u32 = 2_000;

bugs! {
    /// What is wrong with the slots.
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

/// Slots in memory with await points on the way, passed one at a time as the proof says.
#[derive(Clone)]
struct Far {
    store: Arc<MemoryStore<ManualClock>>,
    gate: Arc<Gate>,
    bug: Option<CycleBug>,
    /// The runtime of the client that is alive, so that its tasks run between its polls and end with it.
    background: Background,
}

/// Holds calls up until it has been opened as often as they wait for.
#[derive(Default)]
struct Gate {
    opened: AtomicU64,
    waiting: Mutex<Vec<Waker>>,
}

/// How often a gate opens while a call waits at it.
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
    /// Slots that were held by nobody, or counted as given back by nobody, when all was quiet.
    leaked: u64,
    /// Slots of clients that were killed which had not come back a life later.
    left_over: u64,
    /// At which poll an admission was dropped, how often.
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

/// Clients one after the other, each killed with what it holds.
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
        // Killed: its tasks are dropped where they stand, and nobody sends heartbeats for what it holds.
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

/// One client from its start to its end.
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
        // It is killed with something under way.
        for _ in 0..UNDER_WAY {
            counts.cycles += 1;
            cycle(&slots, dice, counts, &mut held).await;
        }
        held
    });
    counts.killed_holding += held.len() as u64;
    // What a process that is killed does not do.
    held.into_iter().for_each(std::mem::forget);
}

/// Lets all that was begun come to its end, and says how far the books are from what is kept: by what the store counts, by
/// what was admitted and not released, and by releases that were given up.
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

/// Begins an admission and drops it after so many polls, wherever it stands.
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

/// Some are kept for a while, some are released, most are dropped.
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
