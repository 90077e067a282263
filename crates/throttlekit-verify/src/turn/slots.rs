//! Random schedules for a `wait::Queue` over a guard that has a queue of its own, on a paused clock.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::internals::Mutex;
use throttlekit::wait::Queue;
use throttlekit::{Call, Guard};
use throttlekit_conformance::Dice;
use throttlekit_conformance::bugs;
use throttlekit_conformance::check::{Check, ensure};
use throttlekit_conformance::invariants::{Invariant, Trial, Violation};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until, timeout};

const MS: Duration = Duration::from_millis(1);
/// A timer may be late by a millisecond, and its instant is rounded up to one.
const LATE_MAX: Duration = Duration::from_millis(2);
const CALLS: (u64, u64) = (8, 24);
/// Longer than any schedule: the server's queues have such a maximum too.
const QUEUE_MAX: u32 = 1_024;

bugs! {
    /// A seeded bug of waiting for slots.
    pub enum SlotBug {
        NoQueueAtTheGuard: "The waiter whose turn it is looks for a slot after pauses.",
        CancelledNotDropped: "A call that is cancelled stays in the queue, and keeps the slot that it gets.",
        NewestFirst: "Each call is more urgent than the one before it.",
        OneSlotTooMany: "The guard has one slot more.",
    }
}

/// Returns the invariant of waiting for slots.
pub(super) fn invariant() -> Invariant {
    let trial = |bug: Option<SlotBug>| -> Trial {
        Box::new(move |seed| {
            play_slots(seed, bug).map_err(|counterexample| Violation { seed, counterexample })
        })
    };
    let seeded = SlotBug::ALL.iter().map(|bug| (bug.name(), trial(Some(*bug))));
    Invariant { name: "turn-order/slots", holds: trial(None), seeded: seeded.collect() }
}

/// One call of a schedule.
#[derive(Clone, Copy, Debug)]
struct Planned {
    at: Duration,
    class: u8,
    holds: Duration,
    timeout: Duration,
    cancelled_after: Option<Duration>,
}

/// The result of a call.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    /// Time at which it got a slot.
    admitted: Option<Duration>,
    /// Time at which it left: released its slot, or gave up.
    left: Duration,
}

/// Plays the schedule of a seed, with a bug or without, and checks it.
pub fn play_slots(seed: u64, bug: Option<SlotBug>) -> Check {
    let mut dice = Dice::new(seed);
    let limit = dice.between(1, 3) as u32;
    let calls = plan(&mut dice);
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().map_err(|error| error.to_string())?;
    let (ended, guard, waiting) = runtime.block_on(run(limit, &calls, bug));
    let stats = guard.stats();
    ensure(waiting == 0 && stats.waiting == 0, || format!("{waiting} are left in the queue: {stats:?}"))?;
    ensure(stats.in_flight == 0, || format!("{} slots are left taken", stats.in_flight))?;
    judge(limit as usize, &calls, &ended)
}

fn plan(dice: &mut Dice) -> Vec<Planned> {
    let (calls, mut at) = (dice.between(CALLS.0, CALLS.1), Duration::ZERO);
    let call = |_| {
        at += MS * dice.pick(&[0, 1, 5, 20, 60]);
        let (holds, class) = (MS * dice.pick(&[1, 10, 50, 200]), dice.below(3) as u8);
        let timeout = MS * dice.pick(&[20, 150, 1_000, 30_000]);
        let cancelled_after = MS * dice.between(1, 400) as u32;
        let cancelled_after = dice.once_in(4).then_some(cancelled_after);
        Planned { at, class, holds, timeout, cancelled_after }
    };
    (0..calls).map(call).collect()
}

async fn run(limit: u32, calls: &[Planned], bug: Option<SlotBug>) -> (Vec<Ended>, Guard, usize) {
    let slots = limit + u32::from(bug == Some(SlotBug::OneSlotTooMany));
    let queue_max = if bug == Some(SlotBug::NoQueueAtTheGuard) { 0 } else { QUEUE_MAX };
    let guard = Guard::builder(slots).queue_max(queue_max).build().expect("a valid guard");
    let queue = Queue::builder(guard.clone()).ignore_keys().build().expect("a valid queue");
    let (start, ended) = (Instant::now(), Arc::new(Mutex::new(vec![Ended::default(); calls.len()])));
    let mut tasks = Vec::new();
    for (number, call) in calls.iter().copied().enumerate() {
        sleep_until(start + call.at).await;
        let (queue, ended) = (queue.clone(), ended.clone());
        let class = if bug == Some(SlotBug::NewestFirst) { u8::MAX - number as u8 } else { call.class };
        tasks.push(tokio::spawn(async move {
            let waiter = queue.clone();
            let mut waits = tokio::spawn(async move {
                waiter.until_ready_timeout(Call::by("").priority(class), call.timeout).await
            });
            let result = match call.cancelled_after {
                Some(after) => timeout(after, &mut waits).await.ok(),
                None => Some((&mut waits).await),
            };
            match (&result, bug) {
                (None, Some(SlotBug::CancelledNotDropped)) => std::mem::forget(waits),
                (None, _) => waits.abort(),
                (Some(_), _) => {}
            }
            let admission = result.and_then(Result::ok).and_then(Result::ok);
            let admitted = admission.as_ref().map(|_| start.elapsed());
            if let Some(admission) = admission {
                sleep(call.holds).await;
                drop(admission);
            }
            ended.lock()[number] = Ended { admitted, left: start.elapsed() };
        }));
        yield_now().await;
    }
    for task in tasks {
        // A task that panicked has not ended; the judge reports it.
        let _ = task.await;
    }
    // Those that were cancelled leave when their tasks are dropped.
    yield_now().await;
    let (ended, waiting) = (std::mem::take(&mut *ended.lock()), queue.waiting());
    (ended, guard, waiting)
}

fn judge(limit: usize, calls: &[Planned], ended: &[Ended]) -> Check {
    let holding = |at: Duration| {
        let holds = |ended: &&Ended| ended.admitted.is_some_and(|from| from <= at) && at < ended.left;
        ended.iter().filter(holds).count()
    };
    for (number, (call, own)) in calls.iter().zip(ended).enumerate() {
        let fails = |what: &str| Err(format!("call {number} {what}: {call:?}, {own:?}\nall: {ended:?}"));
        let Some(admitted) = own.admitted else {
            let late = own.left > call.at + call.timeout + LATE_MAX;
            if late {
                return fails("ended after its timeout");
            }
            continue;
        };
        if holding(admitted) > limit {
            return fails("was admitted above the limit");
        }
        let before = admitted.saturating_sub(LATE_MAX + MS);
        if before > call.at && holding(before) < limit && holding(before + MS) < limit {
            return fails("was admitted late");
        }
        let overtook = calls[..number].iter().zip(ended).any(|(earlier, other)| {
            earlier.class == call.class && other.admitted.map_or(other.left, |at| at) > admitted
        });
        if overtook {
            return fails("overtook one of its class that came before");
        }
    }
    Ok(())
}
