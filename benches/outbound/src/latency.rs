//! Time that a call takes which need not wait, in process.

use std::time::{Duration, Instant};

use anyhow::Result;
use throttlekit::Call;
use throttlekit::outbound::Outbound;
use tokio::runtime::Runtime;

use crate::report::Report;
use crate::turns::median;

const CALLS: u32 = 100_000;
const ROUNDS: usize = 9;
const ADDED_MAX_NS: f64 = 1_000.0;
/// Beyond what the calls take.
const UNLIMITED: u64 = 60_000_000_000;

pub fn run(runtime: &Runtime, report: &mut Report) -> Result<()> {
    println!("time of a call that need not wait, in process: until it is ready, and its settlement");
    let outbound =
        Outbound::builder("latency").requests_per_minute(UNLIMITED).tokens_per_minute(UNLIMITED * 1_000);
    let outbound = outbound.concurrency(1_000).build()?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(runtime.block_on(nanos_per_call(&outbound))?);
    }
    report.at_most("added to a call that need not wait, ns", median(&rounds), ADDED_MAX_NS);
    Ok(())
}

async fn nanos_per_call(outbound: &Outbound) -> Result<f64> {
    let begun = Instant::now();
    for _ in 0..CALLS {
        let mut permit = outbound.until_ready(Call::by("model").cost(500)).await?;
        permit.settle(400);
        permit.success();
    }
    let stats = outbound.stats();
    anyhow::ensure!(stats.avoided == 0, "{} calls were denied", stats.avoided);
    anyhow::ensure!(stats.wait_percentile(100) <= Some(Duration::from_millis(1)), "calls waited");
    Ok(begun.elapsed().as_nanos() as f64 / f64::from(CALLS))
}
