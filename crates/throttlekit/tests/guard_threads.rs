//! `slots-in-process` with threads that run in parallel: counts beside the guard's own.
#![cfg(feature = "wait")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use throttlekit::{Call, Guard};

const LIMIT: u32 = 3;
const TASKS: u32 = 32;
const ROUNDS: u32 = 200;

/// Returns a pseudorandom number below `below`.
fn roll(dice: &mut u64, below: u64) -> u64 {
    *dice ^= *dice << 13;
    *dice ^= *dice >> 7;
    *dice ^= *dice << 17;
    *dice % below
}

/// Counts the callers inside, and records whether there were ever more than the limit.
#[derive(Default)]
struct Inside {
    now: AtomicU32,
    most: AtomicU32,
}

impl Inside {
    fn enter(&self) {
        self.most.fetch_max(self.now.fetch_add(1, SeqCst) + 1, SeqCst);
    }

    fn leave(&self) {
        self.now.fetch_sub(1, SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slots_in_process_waiters_all_come_in_and_never_more_than_the_limit() {
    let guard = Guard::builder(LIMIT).priority_below(300).queue_max(TASKS).build().unwrap();
    let (inside, admitted) = (Arc::new(Inside::default()), Arc::new(AtomicU64::new(0)));
    let task = |number: u32| {
        let (guard, inside, admitted) = (guard.clone(), inside.clone(), admitted.clone());
        async move {
            for round in 0..ROUNDS {
                let call = Call::from(()).priority((number % 2) as u8);
                let permit = guard.acquire(call).await.expect("room in line");
                inside.enter();
                admitted.fetch_add(1, SeqCst);
                if (number + round).is_multiple_of(3) {
                    tokio::task::yield_now().await;
                }
                inside.leave();
                permit.success();
            }
        }
    };
    let tasks: Vec<_> = (0..TASKS).map(|number| tokio::spawn(task(number))).collect();
    for task in tasks {
        tokio::time::timeout(Duration::from_secs(30), task).await.expect("a wake was lost").unwrap();
    }
    assert_eq!(admitted.load(SeqCst), u64::from(TASKS * ROUNDS));
    assert!((1..=LIMIT).contains(&inside.most.load(SeqCst)));
    let stats = guard.stats();
    assert_eq!((stats.limit, stats.in_flight, stats.waiting), (LIMIT, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slots_in_process_waits_that_end_early_leak_nothing() {
    let guard = Guard::builder(LIMIT).queue_max(TASKS).build().unwrap();
    let (inside, late) = (Arc::new(Inside::default()), Arc::new(AtomicU64::new(0)));
    let task = |number: u32| {
        let (guard, inside, late) = (guard.clone(), inside.clone(), late.clone());
        async move {
            let mut dice = u64::from(number) + 1;
            for _ in 0..ROUNDS / 4 {
                let wait = Duration::from_micros(roll(&mut dice, 2_000));
                let Ok(permit) = guard.acquire_timeout((), wait).await else {
                    late.fetch_add(1, SeqCst);
                    continue;
                };
                inside.enter();
                tokio::time::sleep(Duration::from_micros(roll(&mut dice, 300))).await;
                inside.leave();
                drop(permit);
            }
        }
    };
    let tasks: Vec<_> = (0..TASKS).map(|number| tokio::spawn(task(number))).collect();
    for task in tasks {
        tokio::time::timeout(Duration::from_secs(30), task).await.expect("a wake was lost").unwrap();
    }
    assert!(late.load(SeqCst) > 0 && inside.most.load(SeqCst) <= LIMIT);
    let stats = guard.stats();
    assert_eq!((stats.limit, stats.in_flight, stats.waiting), (LIMIT, 0, 0));
}

/// More keys than there is capacity for, so that keys are evicted while others request them.
#[test]
fn slots_keyed_no_key_has_more_than_its_ceiling_while_keys_are_dropped() {
    const KEYS: u64 = 12;
    let guard = Guard::builder(2).keys_max(4).build_per_key().unwrap();
    let inside: Vec<Inside> = (0..KEYS).map(|_| Inside::default()).collect();
    std::thread::scope(|scope| {
        for thread in 1..=4 {
            let (guard, inside) = (&guard, &inside);
            scope.spawn(move || {
                let mut dice: u64 = thread * 0x9E37_79B9;
                let mut held = Vec::new();
                for _ in 0..30_000 {
                    let key = roll(&mut dice, KEYS);
                    if let Ok(permit) = guard.try_acquire(&key.to_le_bytes()) {
                        inside[key as usize].enter();
                        held.push((key, permit));
                    }
                    if held.len() > roll(&mut dice, 3) as usize {
                        let (key, permit) = held.swap_remove(0);
                        inside[key as usize].leave();
                        permit.success();
                    }
                }
                for (key, permit) in held {
                    inside[key as usize].leave();
                    permit.success();
                }
            });
        }
    });
    assert!(inside.iter().all(|inside| (1..=2).contains(&inside.most.load(SeqCst))), "more than the ceiling");
    assert_eq!((guard.stats().keys, guard.stats().overflowing), (4, 0));
}
