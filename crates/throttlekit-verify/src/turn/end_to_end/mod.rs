//! Random schedules for the whole `wait::Queue`, over a limiter of two keys, on a paused clock.

mod judge;
mod subject;

use std::sync::Arc;
use std::time::Duration;

use throttlekit::internals::Mutex;
use throttlekit_conformance::Dice;
use throttlekit_conformance::bugs;
use throttlekit_conformance::check::Check;
use throttlekit_conformance::invariants::{Invariant, Trial, Violation};
use throttlekit_core::rate::{Limit, Rate};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use subject::Subject;

const MS: Duration = Duration::from_millis(1);
const KEYS: [&str; 2] = ["a", "b"];
const CALLS: (u64, u64) = (8, 24);

bugs! {
    /// A seeded bug at the edges of a queue.
    pub enum QueueBug {
        EveryCallRetries: "Each call sleeps and retries without a queue.",
        SleepsOnce: "A call that was denied sleeps for its wait and then counts as admitted.",
        WaitHalved: "The limiter reports half of the wait.",
        TimeoutDoubled: "A call waits for twice its timeout.",
        WaitsInVain: "A call that cannot pass before its timeout sleeps until then.",
        CancelledNotDropped: "A call that is cancelled stays in the queue.",
        OneQueueForAllKeys: "The keys of calls are ignored.",
    }
}

/// Returns the invariant of the whole queue.
pub(super) fn invariant() -> Invariant {
    let trial = |bug: Option<QueueBug>| -> Trial {
        Box::new(move |seed| {
            play_queue(seed, bug).map_err(|counterexample| Violation { seed, counterexample })
        })
    };
    let seeded = QueueBug::ALL.iter().map(|bug| (bug.name(), trial(Some(*bug))));
    Invariant { name: "turn-order/queue", holds: trial(None), seeded: seeded.collect() }
}

/// One call of a schedule.
#[derive(Clone, Copy, Debug)]
struct Planned {
    at: Duration,
    key: usize,
    class: u8,
    cost: u64,
    timeout: Duration,
    cancelled_after: Option<Duration>,
}

/// The end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Admitted,
    TimedOut,
    Cancelled,
    Other,
}

/// A call that has ended, and when.
#[derive(Clone, Copy, Debug)]
struct Ended {
    call: usize,
    at: Duration,
    end: End,
}

/// A schedule and its results.
#[derive(Debug)]
struct Played {
    limit: Limit,
    calls: Vec<Planned>,
    ended: Vec<Ended>,
    requests: usize,
    left_waiting: usize,
}

/// Runs the schedule of a seed, with a bug or without, and checks it.
pub fn play_queue(seed: u64, bug: Option<QueueBug>) -> Check {
    let mut dice = Dice::new(seed);
    let limit = Rate::per_second(dice.pick(&[5, 10, 50])).burst(dice.between(1, 3));
    let limit = Limit::gcra(limit).expect("a valid limit");
    let calls = plan(&mut dice, limit.units());
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().map_err(|error| error.to_string())?;
    let played = runtime.block_on(run(limit, calls, bug));
    judge::judge(&played)
}

fn plan(dice: &mut Dice, burst: u64) -> Vec<Planned> {
    let (calls, mut at) = (dice.between(CALLS.0, CALLS.1), Duration::ZERO);
    let call = |_| {
        at += MS * dice.pick(&[0, 1, 5, 20, 60, 300]);
        let timeout = MS * dice.pick(&[20, 150, 1_000, 5_000, 30_000]);
        let cancelled_after = MS * dice.between(1, 400) as u32;
        let cancelled_after = dice.once_in(4).then_some(cancelled_after);
        let (key, class) = (dice.below(2) as usize, dice.below(2) as u8);
        Planned { at, key, class, cost: dice.between(1, burst), timeout, cancelled_after }
    };
    (0..calls).map(call).collect()
}

async fn run(limit: Limit, calls: Vec<Planned>, bug: Option<QueueBug>) -> Played {
    let (subject, start) = (Subject::new(limit, bug), Instant::now());
    let ended = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for (number, call) in calls.iter().copied().enumerate() {
        sleep_until(start + call.at).await;
        let (subject, ended) = (subject.clone(), ended.clone());
        tasks.push(tokio::spawn(async move {
            let end = subject.call(call).await;
            ended.lock().push(Ended { call: number, at: start.elapsed(), end });
        }));
        yield_now().await;
    }
    for task in tasks {
        // A task that panicked has not ended; the judge reports it.
        let _ = task.await;
    }
    let ended = std::mem::take(&mut *ended.lock());
    let (requests, left_waiting) = (subject.requests(), subject.waiting());
    Played { limit, calls, ended, requests, left_waiting }
}
