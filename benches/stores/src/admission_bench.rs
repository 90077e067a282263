//! One call of a policy on Redis, which charges a rate and a token budget at once, compared with a check of
//! the rate alone: the same callers, keys and connection, in turns.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use throttlekit::{Axis, Call, Limit, Rate, SharedLimiter, SharedPolicy};
use throttlekit_redis::RedisStore;
use tokio::runtime::{Builder, Runtime};

use crate::commandstats::CommandStats;
use crate::load::{CALLERS, Dice, decisions_per_second};
use crate::report::Report;
use crate::turns::{in_turns, median, ratio};

const KEYS: u64 = 100_000;
const TURN: Duration = Duration::from_secs(2);
const DEADLINE: Duration = Duration::from_secs(5);
const ESTIMATE: u64 = 100;
/// Calls whose round trips are counted.
const COUNTED: u32 = 1_000;

const FUSED_MIN: f64 = 0.70;

/// Ten per second, ten at once: the rate of both, also that of `bench redis`.
fn rate() -> Limit {
    Limit::gcra(Rate::per_second(10).burst(10)).expect("a limit")
}

/// More than a key requests, so that all denials are by the rate.
fn budget() -> Limit {
    Limit::token_budget(1_000_000_000, Duration::from_secs(60)).expect("a limit")
}

pub fn run(rounds: usize) -> Result<bool> {
    let mut bench = Bench::new()?;
    let mut report = Report::default();
    bench.compare(rounds, &mut report)?;
    bench.count(&mut report)?;
    Ok(report.end("bench-admission"))
}

struct Bench {
    runtime: Runtime,
    store: RedisStore,
    redis: CommandStats,
}

impl Bench {
    fn new() -> Result<Self> {
        let url = env::var("THROTTLEKIT_REDIS").context("eval \"$(cargo xtask services up)\" first")?;
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let store = runtime.block_on(RedisStore::builder(&url).deadline(DEADLINE).connect())?;
        Ok(Self { runtime, store, redis: CommandStats::of(&url)? })
    }

    fn compare(&self, rounds: usize, report: &mut Report) -> Result<()> {
        println!(
            "decisions a second on {KEYS} keys, {CALLERS} callers on one connection: one charge, two, and a policy of two"
        );
        let [one, two, policy] = in_turns(
            rounds,
            "fused",
            [
                ("one charge", Box::new(|| self.one())),
                ("two charges", Box::new(|| self.two())),
                ("a policy of two charges", Box::new(|| self.policy())),
            ],
        )?;
        report.note("redis: one charge, decisions/s", median(&one));
        report.note("redis: two charges, decisions/s", median(&two));
        report.note("redis: a policy of two charges, decisions/s", median(&policy));
        report.note("redis: two charges / one", ratio(&two, &one));
        report.at_least("redis: a policy of two charges / one charge", ratio(&policy, &one), FUSED_MIN);
        Ok(())
    }

    fn one(&self) -> Result<f64> {
        let limiter = SharedLimiter::new(self.store.clone(), "bench-one", rate())?;
        self.runtime.block_on(decisions_per_second(limiter, KEYS, TURN))
    }

    fn both(&self) -> Result<SharedLimiter<RedisStore>> {
        let builder = SharedLimiter::builder(self.store.clone(), "bench-two", rate());
        Ok(builder.limit("tokens", budget()).one_slot().build()?)
    }

    /// Without a policy, to separate the script's cost from the permit's.
    fn two(&self) -> Result<f64> {
        let limiter = self.both()?;
        self.runtime.block_on(asks_per_second(move |key| {
            let limiter = limiter.clone();
            async move {
                let answer = limiter.check(throttlekit::Call::by(&key).costs(&[1, ESTIMATE])).await?;
                ensure!(answer.outage.is_none(), "the engine did not answer: {answer:?}");
                Ok(())
            }
        }))
    }

    fn fused(&self) -> Result<Arc<SharedPolicy>> {
        let both = self.both()?;
        let policy = SharedPolicy::builder(both.store().clone(), "bench");
        Ok(Arc::new(policy.with([Axis::Rate, Axis::Cost], both).build()?))
    }

    /// Every call is settled at its estimate, which needs no call to the store: one call for each decision.
    fn policy(&self) -> Result<f64> {
        self.runtime.block_on(async {
            let policy = self.fused()?;
            asks_per_second(move |key| {
                let policy = policy.clone();
                async move {
                    let admission = policy.admit(Call::by(&key).cost(ESTIMATE)).await?;
                    ensure!(admission.outage.is_none(), "the engine did not answer: {:?}", admission.outage);
                    if let Some(mut permit) = admission.permit {
                        permit.debit(ESTIMATE).await?;
                        permit.success();
                    }
                    Ok(())
                }
            })
            .await
        })
    }

    /// Counts round trips, as Redis reports them.
    fn count(&mut self, report: &mut Report) -> Result<()> {
        let policy = self.runtime.block_on(async { self.fused() })?;
        self.redis.reset()?;
        self.runtime.block_on(async {
            for number in 0..COUNTED {
                let key = format!("counted-{number}");
                let admission = policy.admit(Call::by(&key).cost(ESTIMATE)).await?;
                let mut permit = admission.permit.context("a fresh key is admitted")?;
                permit.debit(ESTIMATE).await?;
                permit.success();
            }
            anyhow::Ok(())
        })?;
        let calls = self.redis.field("evalsha", "calls")?.unwrap_or(0.0);
        let by_text = self.redis.field("eval", "calls")?.unwrap_or(0.0);
        report.at_most("redis: round trips of an admit", (calls + by_text) / f64::from(COUNTED), 1.0);
        Ok(())
    }
}

/// Returns the requests per second over a turn by all callers, on random keys.
async fn asks_per_second<F, A>(ask: F) -> Result<f64>
where
    F: Fn(String) -> A + Clone + Send + 'static,
    A: Future<Output = Result<()>> + Send + 'static,
{
    let (done, begun) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let callers: Vec<_> = (0..CALLERS)
        .map(|n| {
            let (ask, done, mut dice) = (ask.clone(), done.clone(), Dice::new(n, KEYS));
            tokio::spawn(async move {
                let mut count = 0;
                while begun.elapsed() < TURN {
                    ask(dice.key()).await?;
                    count += 1;
                }
                done.fetch_add(count, Relaxed);
                anyhow::Ok(())
            })
        })
        .collect();
    for caller in callers {
        caller.await??;
    }
    Ok(done.load(Relaxed) as f64 / begun.elapsed().as_secs_f64())
}
