//! Leasing on Redis compared with a call for every request: one caller, one key, one connection that both
//! share.

use std::env;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use throttlekit::leasing::{Batch, Leasing};
use throttlekit::{Limit, SharedLimiter};
use throttlekit_redis::RedisStore;
use tokio::runtime::{Builder, Runtime};

use crate::commandstats::CommandStats;
use crate::report::Report;
use crate::turns::{in_turns, median, ratio};

const BATCH: u64 = 100;
/// Decisions of one turn: about half a second each.
const LEASED: u32 = 1_000_000;
const STRICT: u32 = 12_000;
/// Long, because a busy machine may delay a response.
const DEADLINE: Duration = Duration::from_secs(5);

const TIMES_STRICT_MIN: f64 = 50.0;
/// A hundred would be ideal; batches leased ahead of need are smaller by the units left.
const DECISIONS_PER_CALL_MIN: f64 = 80.0;

/// More than all turns use.
fn limit() -> Limit {
    Limit::fixed_window(1_000_000_000_000, Duration::from_secs(86_400)).expect("a limit")
}

pub fn run(rounds: usize) -> Result<bool> {
    let mut bench = Bench::new()?;
    let mut report = Report::default();
    bench.compare(rounds, &mut report)?;
    bench.count(&mut report)?;
    Ok(report.end("bench-lease"))
}

struct Bench {
    runtime: Runtime,
    leased: SharedLimiter<RedisStore>,
    strict: SharedLimiter<RedisStore>,
    redis: CommandStats,
}

impl Bench {
    fn new() -> Result<Self> {
        let url = env::var("THROTTLEKIT_REDIS").context("eval \"$(cargo xtask services up)\" first")?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (leased, strict) = runtime.block_on(async {
            let store = RedisStore::builder(&url).deadline(DEADLINE).connect().await?;
            let leasing = Leasing::new().batch(Batch::Fixed(BATCH));
            let leased =
                SharedLimiter::builder(store.clone(), "lease", limit()).leased_with(leasing).build()?;
            anyhow::Ok((leased, SharedLimiter::new(store, "lease", limit())?))
        })?;
        Ok(Self { runtime, leased, strict, redis: CommandStats::of(&url)? })
    }

    fn compare(&self, rounds: usize, report: &mut Report) -> Result<()> {
        println!("decisions a second of one caller on one connection: in batches of {BATCH}, and one by one");
        let [leased, strict] = in_turns(
            rounds,
            "two tiers",
            [
                ("in batches", Box::new(|| self.decisions_per_second(&self.leased, LEASED))),
                ("one by one", Box::new(|| self.decisions_per_second(&self.strict, STRICT))),
            ],
        )?;
        report.note("redis: in batches of 100, decisions/s", median(&leased));
        report.note("redis: one by one, decisions/s", median(&strict));
        report.at_least("redis: in batches of 100 / one by one", ratio(&leased, &strict), TIMES_STRICT_MIN);
        Ok(())
    }

    /// Runs one more turn in batches, counted by the limiter and by Redis.
    fn count(&mut self, report: &mut Report) -> Result<()> {
        let before = self.leased.stats().leasing.store_calls();
        self.redis.reset()?;
        self.decisions_per_second(&self.leased, LEASED)?;
        let ours = (self.leased.stats().leasing.store_calls() - before) as f64;
        // A script that is not cached yet is sent in full.
        let by_text = self.redis.field("eval", "calls")?.unwrap_or(0.0);
        let theirs = self.redis.field("evalsha", "calls")?.context("no script was called")? + by_text;
        for (who, calls) in [("the limiter", ours), ("Redis", theirs)] {
            let name = format!("redis: decisions per call, counted by {who}");
            report.at_least(&name, f64::from(LEASED) / calls, DECISIONS_PER_CALL_MIN);
        }
        Ok(())
    }

    fn decisions_per_second(&self, limiter: &SharedLimiter<RedisStore>, count: u32) -> Result<f64> {
        self.runtime.block_on(async {
            let begun = Instant::now();
            for _ in 0..count {
                let answer = limiter.check("hot").await?;
                ensure!(answer.decision.allowed && answer.outage.is_none(), "not allowed: {answer:?}");
            }
            Ok(f64::from(count) / begun.elapsed().as_secs_f64())
        })
    }
}
