//! Processor time of a call that need not wait, in process.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use throttlekit::Call;
use throttlekit::outbound::Outbound;
use tokio::runtime::Runtime;

use crate::report::Report;
use crate::turns::median;

const CALLS: u32 = 100_000;
const ROUNDS: usize = 9;
const ADDED_MAX_NS: f64 = 1_000.0;
/// Limits beyond those of the calls: one in 100 ns, and one token in 1 ns.
const REQUESTS: u64 = 612_000_000;
const TOKENS: u64 = 61_200_000_000;

pub fn run(runtime: &Runtime, report: &mut Report) -> Result<()> {
    println!("processor time of a call that need not wait, in process: until it is ready, and its settlement");
    let outbound = Outbound::builder("latency").requests_per_minute(REQUESTS).tokens_per_minute(TOKENS);
    let outbound = outbound.concurrency(1_000).build()?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(runtime.block_on(nanos_per_call(&outbound))?);
    }
    report.at_most("added to a call that need not wait, ns", median(&rounds), ADDED_MAX_NS);
    Ok(())
}

async fn nanos_per_call(outbound: &Outbound) -> Result<f64> {
    let begun = processor_time()?;
    for _ in 0..CALLS {
        let mut permit = outbound.until_ready(Call::by("model").cost(500)).await?;
        permit.settle(400);
        permit.success();
    }
    let stats = outbound.stats();
    anyhow::ensure!(stats.avoided == 0, "{} calls were denied", stats.avoided);
    anyhow::ensure!(stats.wait_percentile(100) <= Some(Duration::from_millis(1)), "calls waited");
    Ok((processor_time()? - begun) as f64 / f64::from(CALLS))
}

/// Returns the processor time of this thread in nanoseconds, as the scheduler counts it.
fn processor_time() -> Result<u64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split(' ').next().context("a number")?.parse()?)
}
