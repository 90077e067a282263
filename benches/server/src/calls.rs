//! Calls over the wire: as fast as there are responses, or at a pace.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use throttlekit_proto::v1::rate_limiter_client::RateLimiterClient;
use throttlekit_proto::v1::{CheckManyRequest, CheckRequest, Decision};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};

use crate::load::Dice;

/// The number of connections, and the total number of calls in flight.
pub const CONNECTIONS: usize = 4;
pub const IN_FLIGHT: u64 = 256;
pub const TURN: Duration = Duration::from_secs(2);
/// Longer than the windows of the policies on Redis.
const EXACT_WITHIN: Duration = Duration::from_secs(30);

/// The content of one call.
#[derive(Clone, Copy)]
pub struct Shape {
    pub policy: &'static str,
    /// The number of keys.
    pub keys: u64,
    /// The number of keys in one call: 1 is Check, more are CheckMany.
    pub at_once: usize,
}

pub fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

async fn clients(uri: &str) -> Result<Vec<RateLimiterClient<Channel>>> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let channel = Endpoint::from_shared(uri.to_owned())?.tcp_nodelay(true).connect().await?;
        clients.push(RateLimiterClient::new(channel));
    }
    Ok(clients)
}

async fn call(client: &mut RateLimiterClient<Channel>, shape: Shape, dice: &mut Dice) -> Result<()> {
    let policy = shape.policy.to_owned();
    if shape.at_once == 1 {
        let request = CheckRequest { policy, key: dice.key(), cost: 1, keys: Vec::new() };
        let answer = client.check(request).await?.into_inner();
        is_exact(answer.decision.as_slice())?;
    } else {
        let keys = (0..shape.at_once).map(|_| dice.key()).collect();
        let answer = client
            .check_many(CheckManyRequest { policy, keys, cost: 1, ..CheckManyRequest::default() })
            .await?
            .into_inner();
        is_exact(&answer.decisions)?;
    }
    Ok(())
}

/// Checks that the store decided, and not its fallback.
fn is_exact(decisions: &[Decision]) -> Result<()> {
    ensure!(!decisions.is_empty(), "a response without a decision");
    let other = decisions.iter().find(|decision| decision.guarantee != "exact");
    ensure!(other.is_none(), "a decision that is not exact: {other:?}");
    Ok(())
}

/// Waits until decisions are exact: the memory of the store is as old as the windows of the policy.
pub fn until_exact(uri: &str, shape: Shape) -> Result<()> {
    runtime()?.block_on(async {
        let (mut clients, mut dice) = (clients(uri).await?, Dice::new(0, shape.keys));
        let begun = Instant::now();
        loop {
            match call(&mut clients[0], shape, &mut dice).await {
                Err(why) if begun.elapsed() > EXACT_WITHIN => return Err(why),
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                Ok(()) => return Ok(()),
            }
        }
    })
}

/// Returns the decisions per second over a turn, from `in_flight` callers.
pub fn decisions_per_second(uri: &str, shape: Shape, in_flight: u64) -> Result<f64> {
    runtime()?.block_on(async {
        let (clients, done) = (clients(uri).await?, Arc::new(AtomicU64::new(0)));
        let begun = Instant::now();
        let mut callers = JoinSet::new();
        for n in 0..in_flight {
            let (mut client, done) = (clients[n as usize % CONNECTIONS].clone(), done.clone());
            callers.spawn(async move {
                let mut dice = Dice::new(n, shape.keys);
                while begun.elapsed() < TURN {
                    call(&mut client, shape, &mut dice).await?;
                    done.fetch_add(shape.at_once as u64, Relaxed);
                }
                anyhow::Ok(())
            });
        }
        while let Some(caller) = callers.join_next().await {
            caller??;
        }
        Ok(done.load(Relaxed) as f64 / begun.elapsed().as_secs_f64())
    })
}

/// Returns the 99th percentile in microseconds, of calls that are sent at this rate regardless of earlier
/// responses. Counted from the due time of each.
pub fn p99_at(uri: &str, shape: Shape, per_second: f64) -> Result<f64> {
    const TICK: Duration = Duration::from_millis(1);
    runtime()?.block_on(async {
        let clients = clients(uri).await?;
        let begun = Instant::now();
        let (mut calls, mut sent) = (JoinSet::new(), 0_u64);
        while begun.elapsed() < TURN {
            let due = (begun.elapsed().as_secs_f64() * per_second) as u64;
            while sent < due {
                let mut client = clients[sent as usize % CONNECTIONS].clone();
                let (seed, at) = (sent, begun + Duration::from_secs_f64(sent as f64 / per_second));
                calls.spawn(async move {
                    call(&mut client, shape, &mut Dice::new(seed, shape.keys)).await?;
                    anyhow::Ok(at.elapsed().as_secs_f64() * 1e6)
                });
                sent += 1;
            }
            tokio::time::sleep(TICK).await;
        }
        let mut took = Vec::with_capacity(calls.len());
        while let Some(call) = calls.join_next().await {
            took.push(call??);
        }
        took.sort_by(f64::total_cmp);
        took.get(took.len() * 99 / 100).copied().context("no call was made")
    })
}
