//! Callers that decide as fast as responses arrive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use throttlekit::SharedLimiter;
use throttlekit::store::Store;

/// Concurrent callers in one process, as in a busy gateway.
pub const CALLERS: u64 = 1_024;

/// Returns the decisions per second over a turn, on random keys.
pub async fn decisions_per_second<S: Store>(
    limiter: SharedLimiter<S>,
    keys: u64,
    turn: Duration,
) -> Result<f64> {
    let (limiter, done) = (Arc::new(limiter), Arc::new(AtomicU64::new(0)));
    let begun = Instant::now();
    let caller =
        |n| tokio::spawn(call_for_a_turn(limiter.clone(), Dice::new(n, keys), begun + turn, done.clone()));
    let callers: Vec<_> = (0..CALLERS).map(caller).collect();
    for caller in callers {
        caller.await??;
    }
    Ok(done.load(Relaxed) as f64 / begun.elapsed().as_secs_f64())
}

async fn call_for_a_turn<S: Store>(
    limiter: Arc<SharedLimiter<S>>,
    mut dice: Dice,
    end: Instant,
    done: Arc<AtomicU64>,
) -> Result<()> {
    let mut count = 0;
    while Instant::now() < end {
        let answer = limiter.check(&dice.key()).await?;
        ensure!(answer.outage.is_none(), "the engine did not answer: {answer:?}");
        count += 1;
    }
    done.fetch_add(count, Relaxed);
    Ok(())
}

/// Keys as `redis-benchmark` writes them: twelve digits.
pub struct Dice {
    state: u64,
    keys: u64,
}

impl Dice {
    pub fn new(seed: u64, keys: u64) -> Self {
        Self { state: seed, keys }
    }

    pub fn key(&mut self) -> String {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{:012}", (self.state >> 33) % self.keys)
    }
}
