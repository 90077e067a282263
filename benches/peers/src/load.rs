//! The load generator: callers on one thread, closed loop or at a pace.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::apis::{Api, Wire};
use crate::servers::{Limit, Server};
use crate::{grpc, http1, resp, session};

/// Callers of one load: as many calls are in flight.
pub const CALLERS: usize = 64;
/// Callers that share an HTTP/2 connection.
const CALLERS_PER_CONNECTION: usize = 8;
/// The longest a load may take: a server that does not respond is an error.
const LOAD_MAX: Duration = Duration::from_secs(300);

/// Requests, encoded beforehand, and their order.
pub struct Load {
    pub requests: Arc<Vec<Bytes>>,
    /// Indexes of the requests.
    pub order: Arc<Vec<u32>>,
    /// Requests per second, open loop. A closed loop if absent.
    pub pace: Option<f64>,
}

/// The outcome of a load.
#[derive(Default)]
pub struct Outcome {
    pub decided: usize,
    pub allowed: usize,
    pub elapsed: Duration,
    /// Sorted, in nanoseconds. From when a request was due, if there was a pace.
    latencies: Vec<u64>,
}

pub enum Caller {
    Grpc(grpc::Caller),
    Session(session::Caller, usize),
    Http(http1::Caller),
    Resp(resp::Caller, usize),
}

/// Returns the requests of an API for these keys.
pub fn encode(api: Api, limit: Limit, keys: impl Iterator<Item = String>) -> Vec<Bytes> {
    keys.map(|key| (api.encode)(limit, &key)).collect()
}

/// Connects callers of an API.
pub async fn connect(server: &Server, api: Api, callers: usize) -> Result<Vec<Caller>> {
    let address = server.address(api).context("no listener for this API")?;
    let mut all = Vec::new();
    while all.len() < callers {
        match api.wire {
            Wire::Grpc { path, allowed } => {
                let several = CALLERS_PER_CONNECTION.min(callers - all.len());
                let several = grpc::connect(address, path, allowed, several).await?;
                all.extend(several.into_iter().map(Caller::Grpc));
            }
            Wire::Session { calls } => {
                let several = CALLERS_PER_CONNECTION.min(callers - all.len());
                let several = session::connect(address, several).await?;
                all.extend(several.into_iter().map(|caller| Caller::Session(caller, calls)));
            }
            Wire::Http { allowed } => all.push(Caller::Http(http1::connect(address, allowed).await?)),
            Wire::Resp { allowed, pipeline } => {
                all.push(Caller::Resp(resp::connect(address, allowed).await?, pipeline));
            }
        }
    }
    Ok(all)
}

/// Connects callers to the servers in equal numbers, and sends the whole load.
pub async fn run(servers: &[&Server], api: Api, load: Load) -> Result<Outcome> {
    let mut callers = Vec::new();
    for server in servers {
        callers.extend(connect(server, api, CALLERS / servers.len()).await?);
    }
    Ok(drive(callers, &Arc::new(load)).await?.1)
}

/// Sends the whole load through these callers, and returns them for the next.
pub async fn drive(callers: Vec<Caller>, load: &Arc<Load>) -> Result<(Vec<Caller>, Outcome)> {
    let (next, begun) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let mut walks = JoinSet::new();
    for caller in callers {
        walks.spawn(walk(caller, load.clone(), next.clone(), begun));
    }
    let (mut callers, mut outcome) = (Vec::new(), Outcome::default());
    let all = async {
        while let Some(walk) = walks.join_next().await {
            let (caller, part) = walk??;
            callers.push(caller);
            outcome.add(part);
        }
        anyhow::Ok(())
    };
    timeout(LOAD_MAX, all).await.with_context(|| format!("no end after {LOAD_MAX:?}"))??;
    outcome.elapsed = begun.elapsed();
    outcome.latencies.sort_unstable();
    Ok((callers, outcome))
}

/// One caller takes the next requests in order until none is left.
async fn walk(
    mut caller: Caller,
    load: Arc<Load>,
    next: Arc<AtomicUsize>,
    begun: Instant,
) -> Result<(Caller, Outcome)> {
    let at_once = caller.at_once();
    let mut outcome = Outcome::default();
    loop {
        let first = next.fetch_add(at_once, Relaxed);
        if first >= load.order.len() {
            return Ok((caller, outcome));
        }
        let due = load.due(begun, first).await;
        let batch = &load.order[first..load.order.len().min(first + at_once)];
        outcome.allowed += caller.call(&load.requests, batch).await?;
        outcome.decided += batch.len();
        outcome.latencies.push(due.elapsed().as_nanos() as u64);
    }
}

impl Load {
    /// Returns the first of `parts` equal parts.
    pub fn first_part(&self, parts: usize) -> Self {
        let order = Arc::new(self.order[..self.order.len() / parts].to_vec());
        Self { requests: self.requests.clone(), order, pace: self.pace }
    }

    /// Returns the same load at a pace, in requests per second.
    pub fn at_pace(&self, pace: f64) -> Self {
        Self { requests: self.requests.clone(), order: self.order.clone(), pace: Some(pace) }
    }

    /// Waits until a request is due. The timer's ticks are 1 ms, for every server alike.
    pub async fn due(&self, begun: Instant, request: usize) -> Instant {
        let Some(pace) = self.pace else { return Instant::now() };
        let due = begun + Duration::from_secs_f64(request as f64 / pace);
        tokio::time::sleep_until(due.into()).await;
        due
    }
}

impl Caller {
    fn at_once(&self) -> usize {
        match self {
            Self::Resp(_, at_once) | Self::Session(_, at_once) => *at_once,
            _ => 1,
        }
    }

    /// Sends the requests of a batch and returns how many are allowed.
    pub async fn call(&mut self, requests: &[Bytes], batch: &[u32]) -> Result<usize> {
        let first = &requests[batch[0] as usize];
        match self {
            Self::Grpc(caller) => Ok(usize::from(caller.call(first.clone()).await?)),
            Self::Session(caller, _) => caller.call(batch.iter().map(|&n| &requests[n as usize][..])).await,
            Self::Http(caller) => Ok(usize::from(caller.call(first).await?)),
            Self::Resp(caller, _) => caller.call(batch.iter().map(|&n| &requests[n as usize][..])).await,
        }
    }
}

impl Outcome {
    fn add(&mut self, mut part: Self) {
        self.decided += part.decided;
        self.allowed += part.allowed;
        self.latencies.append(&mut part.latencies);
    }

    /// Returns a percentile of the latencies, in milliseconds.
    pub fn percentile_ms(&self, percent: usize) -> f64 {
        let at = self.latencies.len() * percent / 100;
        self.latencies.get(at).map_or(f64::NAN, |&latency| latency as f64 / 1e6)
    }
}
