//! The same on a store with a clock of its own.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::budget::TokenBudget;
use throttlekit::clock::BootClock;
use throttlekit::internals::Mutex;
use throttlekit::rate::Timestamp;
use throttlekit::store::Store;
use throttlekit::{Limit, Retry};

use super::{CHUNK, Learns, STREAM};

/// The wait where only the end of another stream helps.
const RELEASE_WAIT: Duration = Duration::from_millis(10);

/// The parameters of a run on a store.
#[derive(Clone, Copy, Debug)]
pub struct Paced {
    /// Tokens per window.
    pub budget: u64,
    /// Concurrent streams.
    pub at_once: usize,
    /// The learner of reservations.
    pub learns: Learns,
    /// The length of a window.
    pub window: Duration,
    /// The number of whole windows that are measured.
    pub windows: u64,
}

/// Runs streams without pauses except their retry-after. Returns the use in each whole window.
pub async fn use_windows<S: Store>(store: Arc<S>, policy: &str, paced: Paced) -> Vec<u64> {
    let limit = Limit::token_budget(paced.budget, paced.window).expect("a valid budget");
    let builder = TokenBudget::builder(store, policy, limit).reserve(paced.learns.reserve());
    let budget: TokenBudget<_, BootClock> = builder.build().expect("a valid budget");
    let used = Arc::new(Mutex::new(Vec::new()));
    let workers: Vec<_> =
        (0..paced.at_once).map(|_| tokio::spawn(work(budget.clone(), paced, used.clone()))).collect();
    for worker in workers {
        worker.await.expect("a worker does not panic");
    }
    let used = used.lock();
    // The first window began before the run, and the last is not over.
    used.iter().skip(1).take(paced.windows as usize).map(|(_, tokens)| *tokens).collect()
}

type Used = Arc<Mutex<Vec<(u64, u64)>>>;

async fn work<S: Store>(budget: TokenBudget<Arc<S>, BootClock>, paced: Paced, used: Used) {
    loop {
        let opened = budget.open("victim", None).await.expect("the store answers");
        let Some(mut stream) = opened.stream else {
            let decision = opened.answer.decision;
            wait(decision.retry_after, decision.reset_at, opened.answer.now).await;
            continue;
        };
        while stream.produced() < STREAM {
            let answer = stream.debit(CHUNK).await.expect("the store answers");
            if !answer.decision.allowed {
                break;
            }
            if note(&used, window(answer.now, paced.window)) > paced.windows + 1 {
                return;
            }
        }
        stream.settle().await.expect("the store answers");
    }
}

async fn wait(retry: Retry, reset_at: Timestamp, now: Timestamp) {
    let longest = reset_at.since(now);
    tokio::time::sleep(match retry {
        Retry::After(wait) => wait,
        Retry::Now | Retry::OnRelease | Retry::Never => RELEASE_WAIT.min(longest),
    })
    .await;
}

fn window(now: Timestamp, length: Duration) -> u64 {
    (u128::from(now.as_nanos()) / length.as_nanos()) as u64
}

/// Adds a chunk to its window. Returns the number of windows.
fn note(used: &Used, window: u64) -> u64 {
    let mut used = used.lock();
    match used.iter_mut().find(|(of, _)| *of == window) {
        Some((_, tokens)) => *tokens += CHUNK,
        None => used.push((window, CHUNK)),
    }
    used.len() as u64
}
