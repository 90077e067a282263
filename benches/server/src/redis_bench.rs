//! Check on Redis, strict, compared with the store alone in one process.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use throttlekit::{Rate, SharedLimiter};
use throttlekit_client::Client;
use throttlekit_redis::RedisStore;
use tokio::task::JoinSet;

use crate::calls::{self, IN_FLIGHT, Shape, TURN, decisions_per_second};
use crate::in_process::InProcess;
use crate::load;
use crate::process::Served;
use crate::report::Report;
use crate::turns::{in_turns, median, ratio};

const KEYS: u64 = 100_000;
const AT_ONCE: usize = 100;
const CHECK: Shape = Shape { policy: "paced", keys: KEYS, at_once: 1 };
const MANY: Shape = Shape { policy: "paced", keys: KEYS, at_once: AT_ONCE };
/// The same number of decisions in flight as with Check.
const MANY_IN_FLIGHT: u64 = 10;
const OF_STORE_MIN: f64 = 0.85;
const SESSION_MIN: f64 = 0.80;

pub fn url() -> Result<String> {
    env::var("THROTTLEKIT_REDIS").context("eval \"$(cargo xtask services up)\" first")
}

pub fn run(rounds: usize, report: &mut Report) -> Result<()> {
    println!(
        "decisions a second on Redis, {KEYS} keys: through the server, and the store by itself with {} callers",
        load::CALLERS
    );
    let url = url()?;
    let (ours, echo) = (Served::start(&["serve", &url])?, Served::start(&["echo"])?);
    let engine = InProcess::start(&url)?;
    let [checks, sessions, many, echoes, decided, store] = in_turns(
        rounds,
        "redis",
        [
            ("Check", Box::new(|| decisions_per_second(&ours.uri, CHECK, IN_FLIGHT))),
            ("Session", Box::new(|| by_sessions(&ours.uri))),
            ("CheckMany of 100", Box::new(|| decisions_per_second(&ours.uri, MANY, MANY_IN_FLIGHT))),
            ("echo", Box::new(|| decisions_per_second(&echo.uri, CHECK, IN_FLIGHT))),
            ("the engine", Box::new(|| engine.decisions_per_second(CHECK.policy, KEYS))),
            ("the store", Box::new(|| by_itself(&url))),
        ],
    )?;
    report.note("redis: Check, decisions/s", median(&checks));
    report.note("redis: Session, decisions/s", median(&sessions));
    report.note("redis: CheckMany of 100, decisions/s", median(&many));
    report.note("redis: echo, calls/s", median(&echoes));
    report.note("redis: the engine without a wire, decisions/s", median(&decided));
    report.note("redis: the store by itself, decisions/s", median(&store));
    report.note("redis: Check / echo", ratio(&checks, &echoes));
    report.note("redis: the engine without a wire / the store by itself", ratio(&decided, &store));
    report.note("redis: CheckMany of 100 / the store by itself", ratio(&many, &store));
    report.at_least("redis: Check / the store by itself", ratio(&checks, &store), OF_STORE_MIN);
    report.at_least("redis: Session / the store by itself", ratio(&sessions, &store), SESSION_MIN);
    Ok(())
}

/// Decides by the Rust client, whose callers share a session.
fn by_sessions(uri: &str) -> Result<f64> {
    calls::runtime()?.block_on(async {
        let client = Client::builder(uri.to_owned()).deadline(Duration::from_secs(5)).build()?;
        let (policy, done) = (client.policy(CHECK.policy), Arc::new(AtomicU64::new(0)));
        let end = Instant::now() + TURN;
        let mut callers = JoinSet::new();
        for n in 0..load::CALLERS {
            let (policy, done) = (policy.clone(), done.clone());
            callers.spawn(async move {
                let mut dice = load::Dice::new(n, KEYS);
                while Instant::now() < end {
                    let answer = policy.check(&dice.key()).await?;
                    ensure!(answer.outage.is_none(), "the server did not answer: {answer:?}");
                    done.fetch_add(1, Relaxed);
                }
                anyhow::Ok(())
            });
        }
        while let Some(caller) = callers.join_next().await {
            caller??;
        }
        Ok(done.load(Relaxed) as f64 / TURN.as_secs_f64())
    })
}

fn by_itself(url: &str) -> Result<f64> {
    calls::runtime()?.block_on(async {
        let store = RedisStore::builder(url).deadline(Duration::from_secs(5)).connect().await?;
        let rate = Rate::per_second(10).burst(10);
        load::decisions_per_second(SharedLimiter::new(store, "bench", rate)?, KEYS, TURN).await
    })
}
