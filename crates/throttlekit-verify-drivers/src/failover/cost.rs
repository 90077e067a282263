//! The cost of each mode while nothing fails: the server's time for a script, and a caller's wait.

use std::time::Duration;

use anyhow::{Context, Result};
use throttlekit::clock::{Clock, PreciseClock};
use throttlekit::{Call, Limit, SharedLimiter};
use throttlekit_redis::Failover;

use super::load;
use super::round::Deployment;

const ASKS: usize = 5_000;

pub(super) struct Cost {
    /// The server's time for one script.
    pub(super) script_micros: f64,
    /// The median wait of a single caller.
    pub(super) median: Duration,
}

/// Charges a window repeatedly from one caller, on a pair in sync.
pub(super) async fn measure(deployment: &mut Deployment, failover: Failover) -> Result<Cost> {
    deployment.prepare(failover).await?;
    let store = load::connect(deployment.post(), failover, deployment.clock()).await?;
    let limiter = SharedLimiter::new(store, "cost", Limit::fixed_window(1 << 40, load::WINDOW)?)?;
    limiter.check(Call::by("warm")).await?;
    deployment.primary().ask::<()>("CONFIG RESETSTAT").await?;
    let clock = PreciseClock::new();
    let mut took = Vec::with_capacity(ASKS);
    for _ in 0..ASKS {
        let begun = clock.now();
        limiter.check(Call::by("key")).await?;
        took.push(clock.now().since(begun));
    }
    took.sort_unstable();
    let stats: String = deployment.primary().ask("INFO commandstats").await?;
    Ok(Cost { script_micros: micros_per_script(&stats)?, median: took[ASKS / 2] })
}

/// `cmdstat_evalsha:calls=…,usec=…,usec_per_call=…,…`.
fn micros_per_script(stats: &str) -> Result<f64> {
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:"));
    let part = line.and_then(|line| line.split(',').find_map(|part| part.strip_prefix("usec_per_call=")));
    part.context("it keeps no statistics of scripts")?.parse().context("usec_per_call")
}
