//! Stress test: very many callers acquire and release the slots of one key at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use throttlekit::store::{
    HeartbeatOutcome, KeySpace, LeaseId, Owner, SlotLease, SlotRequest, SlotStep, SlotStore,
};
use tokio::task::JoinSet;

use crate::Dice;

const MOST: u32 = 4;
const TASKS: u64 = 16;
/// Long enough that no lease expires before its task is done with it.
const LIVES: Duration = Duration::from_secs(30);

/// The result of the stress test.
#[derive(Clone, Copy, Debug, Default)]
pub struct SlotContention {
    /// The limit.
    pub most: u32,
    /// Acquired slots.
    pub taken: u64,
    /// Denied requests.
    pub denied: u64,
    /// Maximum number held concurrently, counted by the holders.
    pub at_once: u32,
    /// Maximum number held, reported by the store.
    pub counted: u32,
    /// Number that the store reports as held when all are released.
    pub leaked: u32,
    /// Incorrect responses: a foreign release that freed a slot, a lost heartbeat, a rejected release, a denied retry.
    pub wrong: u64,
}

/// Tasks acquire slots, repeat the request, send a heartbeat, try to release another's, and release their own twice,
/// `rounds` times each.
pub async fn slot_contention<S: SlotStore + Clone>(store: S, policy: &str, rounds: u64) -> SlotContention {
    let key: Arc<str> = KeySpace::slots("tk", policy).key(b"crowd", b"crowd").into();
    let (seen, over) = (Arc::new(Counts::default()), Arc::new(AtomicBool::new(false)));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        tasks.spawn(caller(store.clone(), key.clone(), task, rounds, seen.clone()));
    }
    let watch = tokio::spawn(watch(store.clone(), key.clone(), over.clone()));
    while let Some(ended) = tasks.join_next().await {
        ended.expect("a caller does not panic");
    }
    over.store(true, SeqCst);
    let counted = watch.await.expect("the watch does not panic");
    let left = store.occupancy(&[&key]).await.expect("the store answers");
    SlotContention {
        most: MOST,
        taken: seen.taken.load(SeqCst),
        denied: seen.denied.load(SeqCst),
        at_once: seen.most.load(SeqCst),
        counted,
        leaked: left[0].held,
        wrong: seen.wrong.load(SeqCst),
    }
}

#[derive(Default)]
struct Counts {
    now: AtomicU32,
    most: AtomicU32,
    taken: AtomicU64,
    denied: AtomicU64,
    wrong: AtomicU64,
}

async fn watch<S: SlotStore>(store: S, key: Arc<str>, over: Arc<AtomicBool>) -> u32 {
    let mut most = 0;
    while !over.load(SeqCst) {
        if let Ok(seen) = store.occupancy(&[&key]).await {
            most = most.max(seen[0].held);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    most
}

async fn caller<S: SlotStore>(store: S, key: Arc<str>, task: u64, rounds: u64, seen: Arc<Counts>) {
    let (mut dice, owner) = (Dice::new(task), Owner(task.into()));
    for round in 0..rounds {
        let lease = LeaseId(u128::from(task) << 64 | u128::from(round));
        let ask = SlotRequest { key: &key, lease, owner, most: MOST, lives: LIVES };
        let answer = store.acquire(&ask).await.expect("the store answers");
        if matches!(answer.step, SlotStep::Deny(_)) {
            seen.denied.fetch_add(1, SeqCst);
            tokio::time::sleep(Duration::from_micros(dice.below(2_000))).await;
            continue;
        }
        seen.taken.fetch_add(1, SeqCst);
        seen.most.fetch_max(seen.now.fetch_add(1, SeqCst) + 1, SeqCst);
        tokio::time::sleep(Duration::from_micros(dice.below(3_000))).await;
        let mine = SlotLease { key: &key, lease, owner };
        let foreign = SlotLease { owner: Owner(u128::MAX), ..mine };
        let right = match dice.below(3) {
            0 => {
                matches!(store.acquire(&ask).await, Ok(again) if matches!(again.step, SlotStep::Admit { .. }))
            }
            1 => matches!(
                store.heartbeat(&[mine, foreign], LIVES).await[..],
                [Ok(HeartbeatOutcome::Held(_)), Ok(HeartbeatOutcome::Lost)]
            ),
            _ => store.release(&[foreign]).await == [Ok(false)],
        };
        seen.now.fetch_sub(1, SeqCst);
        let right = right && store.release(&[mine, mine]).await == [Ok(true), Ok(false)];
        seen.wrong.fetch_add(u64::from(!right), SeqCst);
    }
}
