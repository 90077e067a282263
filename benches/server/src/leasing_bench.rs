//! Units leased in batches and spent by the client, compared with one call for each request.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use throttlekit::leasing::{Batch, Leasing};
use throttlekit::{Limit, SharedLimiter};
use throttlekit_client::{Client, RemotePolicy, RemoteStore};

use crate::calls;
use crate::process::Served;
use crate::report::Report;
use crate::turns::{in_turns, median, ratio};

const BATCH: u64 = 1_000;
/// Decisions of one turn: half a second each, about.
const SPENT: u32 = 2_000_000;
const ASKED: u32 = 4_000;
const TIMES_MIN: f64 = 300.0;

pub fn run(rounds: usize, report: &mut Report) -> Result<()> {
    println!("one caller of one hot key: spent from batches of {BATCH}, and one call for each ask");
    let served = Served::start(&["serve", "memory"])?;
    let runtime = calls::runtime()?;
    let (leased, remote) = {
        let _on = runtime.enter();
        let client = Client::builder(served.uri.clone()).deadline(Duration::from_secs(5)).build()?;
        let limit = Limit::fixed_window(1_000_000_000_000, Duration::from_secs(86_400))?;
        let leasing = Leasing::new().batch(Batch::Fixed(BATCH));
        let leased = SharedLimiter::builder(client.store(), "lent", limit).leased_with(leasing).build()?;
        (leased, client.policy("lent"))
    };
    let [spent, asked] = in_turns(
        rounds,
        "fleet",
        [
            ("from batches", Box::new(|| runtime.block_on(spend(&leased)))),
            ("one by one", Box::new(|| runtime.block_on(ask(&remote)))),
        ],
    )?;
    report.note("fleet: in batches of 1000, decisions/s", median(&spent));
    report.note("fleet: one call each, decisions/s", median(&asked));
    let stats = leased.stats().leasing;
    let decided = f64::from(SPENT) * spent.len() as f64;
    report.note("fleet: decisions per call", decided / stats.store_calls().max(1) as f64);
    report.at_least("fleet: in batches of 1000 / one call each", ratio(&spent, &asked), TIMES_MIN);
    Ok(())
}

async fn spend(leased: &SharedLimiter<RemoteStore>) -> Result<f64> {
    let begun = Instant::now();
    for _ in 0..SPENT {
        let answer = leased.check("hot").await?;
        ensure!(answer.allowed && answer.outage.is_none(), "not allowed: {answer:?}");
    }
    Ok(f64::from(SPENT) / begun.elapsed().as_secs_f64())
}

async fn ask(remote: &RemotePolicy) -> Result<f64> {
    let begun = Instant::now();
    for _ in 0..ASKED {
        let answer = remote.check("hot").await?;
        ensure!(answer.allowed && answer.outage.is_none(), "not allowed: {answer:?}");
    }
    Ok(f64::from(ASKED) / begun.elapsed().as_secs_f64())
}
