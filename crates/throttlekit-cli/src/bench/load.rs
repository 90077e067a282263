//! The load: connections, each with workers that send the next request after a response, or on a schedule.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use throttlekit_proto::v1::rate_limiter_client::RateLimiterClient;
use throttlekit_proto::v1::{AdmitRequest, CheckManyRequest, CheckRequest, ReleaseRequest};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tonic::Status;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;

use super::histogram::Histogram;
use super::{Args, Rpc};
use crate::connect::AuthInterceptor;

/// Time limit for a response.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Pause of a worker after a failed request.
const ERROR_WAIT: Duration = Duration::from_millis(10);
/// Maximum number of characters shown of an error message.
const MESSAGE_CHARS_MAX: usize = 300;
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

type Client = RateLimiterClient<InterceptedService<Channel, AuthInterceptor>>;

/// Results of a load test.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) allowed: u64,
    pub(super) denied: u64,
    /// Errors by their code.
    pub(super) errors: BTreeMap<String, Failed>,
    pub(super) times: Histogram,
    pub(super) elapsed: Duration,
}

impl Tally {
    /// Returns the number of requests that got a response.
    pub(super) fn answers(&self) -> u64 {
        self.times.n()
    }

    fn add(&mut self, other: Self) {
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.times.add(&other.times);
        for (code, failed) in other.errors {
            let known = self.errors.entry(code).or_default();
            known.count += failed.count;
            if known.says.is_empty() {
                known.says = failed.says;
            }
        }
    }

    fn fail(&mut self, status: &Status) {
        let failed = self.errors.entry(format!("{:?}", status.code())).or_default();
        failed.count += 1;
        if failed.says.is_empty() {
            failed.says = status.message().chars().take(MESSAGE_CHARS_MAX).collect();
        }
    }
}

/// Errors of one code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) count: u64,
    /// Message of the first error.
    pub(super) says: String,
}

/// Schedule of one worker: worker `n` of `of` takes every `of`-th slot of a schedule of `rate` requests per second.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    rate: Option<u64>,
    n: u64,
    of: u64,
}

impl Schedule {
    /// Returns the time after the start at which request `number` of this worker is due. `None`: right after the last
    /// response.
    fn due(self, number: u64) -> Option<Duration> {
        let place = u128::from(number * self.of + self.n);
        self.rate.map(|rate| Duration::from_nanos((place * 1_000_000_000 / u128::from(rate)) as u64))
    }
}

/// State shared by all workers.
struct Shared {
    args: Args,
    start: Instant,
    answered: AtomicU64,
    stop: AtomicBool,
}

pub(super) async fn load(args: &Args, progress: &ProgressBar) -> Result<Tally> {
    let mut clients = Vec::new();
    for _ in 0..args.connections {
        clients.push(RateLimiterClient::with_interceptor(
            args.connection.connect().await?,
            args.connection.auth()?,
        ));
    }
    let shared = Arc::new(Shared {
        args: args.clone(),
        start: Instant::now(),
        answered: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    });
    let of = u64::from(args.connections) * u64::from(args.in_flight);
    let mut workers = JoinSet::new();
    for n in 0..of {
        let client = clients[n as usize % clients.len()].clone();
        workers.spawn(work(shared.clone(), client, Schedule { rate: args.rate, n, of }));
    }
    let showing = show(&shared, progress);
    tokio::pin!(showing);
    let mut tally = Tally::default();
    let mut told = false;
    loop {
        tokio::select! {
            () = &mut showing, if !told => told = true,
            _ = tokio::signal::ctrl_c(), if !told => {
                shared.stop.store(true, Relaxed);
                told = true;
            }
            done = workers.join_next() => match done {
                Some(part) => tally.add(part?),
                None => break,
            }
        }
    }
    tally.elapsed = shared.start.elapsed();
    Ok(tally)
}

async fn show(shared: &Shared, progress: &ProgressBar) {
    let wait = shared.args.duration.0;
    loop {
        let elapsed = shared.start.elapsed();
        if elapsed >= wait {
            return;
        }
        let each_second = shared.answered.load(Relaxed) as f64 / elapsed.as_secs_f64().max(0.001);
        progress.set_position(elapsed.as_millis() as u64);
        progress.set_message(format!("{each_second:.0} responses/s"));
        sleep(PROGRESS_EVERY.min(wait - elapsed)).await;
    }
}

/// Sends requests until the time is over.
async fn work(shared: Arc<Shared>, mut client: Client, schedule: Schedule) -> Tally {
    let mut tally = Tally::default();
    let mut dice = schedule.n.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for number in 0.. {
        let due = schedule.due(number);
        let next = due.unwrap_or_else(|| shared.start.elapsed());
        if next >= shared.args.duration.0 || shared.stop.load(Relaxed) {
            break;
        }
        if let Some(due) = due {
            sleep_until(shared.start + due).await;
        }
        let sent = shared.start.elapsed();
        let answer = tokio::time::timeout(ANSWER_MAX, ask(&shared.args, &mut client, &mut dice)).await;
        // Measured from when it was due: a request that was delayed by a slow response waited all the same.
        let took = shared.start.elapsed() - due.unwrap_or(sent);
        match answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no response in time"))) {
            Ok(Answer { allowed, denied, lease }) => {
                tally.times.record(took);
                tally.allowed += allowed;
                tally.denied += denied;
                shared.answered.fetch_add(1, Relaxed);
                release(&mut client, lease).await;
            }
            Err(status) => {
                tally.fail(&status);
                // Avoids a busy loop while the server is unavailable.
                sleep(ERROR_WAIT).await;
            }
        }
    }
    tally
}

/// Number of keys that a response allowed, and the lease to release.
struct Answer {
    allowed: u64,
    denied: u64,
    lease: String,
}

async fn ask(args: &Args, client: &mut Client, dice: &mut u64) -> Result<Answer, Status> {
    let (policy, cost) = (args.policy.clone(), args.cost);
    let one =
        |allowed: bool, lease: String| Answer { allowed: allowed.into(), denied: (!allowed).into(), lease };
    match args.rpc {
        Rpc::Check => {
            let request = CheckRequest { policy, key: key(args, dice), cost, ..Default::default() };
            let decision = client.check(request).await?.into_inner().decision.unwrap_or_default();
            Ok(one(decision.allowed, String::new()))
        }
        Rpc::CheckMany => {
            let keys = (0..args.batch).map(|_| key(args, dice)).collect();
            let request = CheckManyRequest { policy, keys, cost, ..CheckManyRequest::default() };
            let decisions = client.check_many(request).await?.into_inner().decisions;
            let allowed = decisions.iter().filter(|decision| decision.allowed).count() as u64;
            Ok(Answer { allowed, denied: decisions.len() as u64 - allowed, lease: String::new() })
        }
        Rpc::Admit => {
            let request = AdmitRequest { policy, key: key(args, dice), cost, ..Default::default() };
            let answer = client.admit(request).await?.into_inner();
            Ok(one(answer.decision.unwrap_or_default().allowed, answer.lease_id))
        }
    }
}

/// Releases the lease of an `admit`. A lease that is not released expires.
async fn release(client: &mut Client, lease_id: String) {
    if !lease_id.is_empty() {
        let _ = client.release(ReleaseRequest { lease_id, ..Default::default() }).await;
    }
}

/// Picks a key at random, each equally likely: xorshift, which is uniform enough for this.
fn key(args: &Args, dice: &mut u64) -> String {
    *dice ^= *dice << 13;
    *dice ^= *dice >> 7;
    *dice ^= *dice << 17;
    format!("bench-{}", *dice % args.keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_together_keep_the_rate_and_none_is_due_twice() {
        let due = |n| (0..5).filter_map(move |number| Schedule { rate: Some(1_000), n, of: 3 }.due(number));
        let mut all: Vec<_> = (0..3).flat_map(due).collect();
        all.sort_unstable();
        assert_eq!(all, (0..15).map(Duration::from_millis).collect::<Vec<_>>());
        assert_eq!(Schedule { rate: None, n: 0, of: 3 }.due(7), None);
    }
}
