//! Three servers over one store, and their replacement.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use throttlekit_proto::v1::rate_limiter_client::RateLimiterClient;
use throttlekit_proto::v1::{AdmitRequest, PeekRequest, ReleaseRequest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;

use super::Bug;
use super::accounts::{Counted, Kind};
use crate::failover::servers::free_ports;
use crate::serving::{Serving, channel, policy_file};

pub(super) const COUNT: usize = 3;
/// Slots of all permits.
pub(super) const SLOTS: u64 = 20;
const BUDGET: u64 = 1_000_000_000;
/// Units that a server leases at once.
const BATCH: u64 = 16;
/// The interval of readiness probes, as of a load balancer.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A server goes on serving for this long while it is not ready: several probes.
const DELAY_S: &str = "2";
/// Longer than any request takes. A permit that is not released in this time keeps its slot until its lease ends.
const GRACE_S: &str = "5";
const PATIENCE: Duration = Duration::from_secs(60);
/// Readiness is probed once more before the next server stops, as a rollout does.
const BETWEEN: Duration = Duration::from_millis(500);

/// The way in which a server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// By SIGTERM.
    InOrder,
    /// By SIGKILL.
    Killed,
}

/// The addresses of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) grpc: u16,
    http: u16,
}

/// The servers that are ready, as a load balancer sees them.
pub(super) type Readiness = Arc<[AtomicBool; COUNT]>;

pub(super) struct Replicas {
    program: PathBuf,
    policies: PathBuf,
    store: String,
    bug: Option<Bug>,
    places: [Place; COUNT],
    running: [Option<Serving>; COUNT],
    ready: Readiness,
    /// The probes.
    _looking: JoinSet<()>,
}

impl Replicas {
    pub(super) async fn start(program: &Path, store: &str, bug: Option<Bug>) -> Result<Self> {
        let policies = policy_file("rolling-upgrade", &policies())?;
        let ports = free_ports(2 * COUNT)?;
        let places = std::array::from_fn(|n| Place { grpc: ports[2 * n], http: ports[2 * n + 1] });
        let ready = Readiness::default();
        let mut looking = JoinSet::new();
        for (n, place) in places.iter().enumerate() {
            looking.spawn(look(ready.clone(), n, place.http));
        }
        let (program, store) = (program.to_owned(), format!("redis://{store}"));
        let running = [const { None }; COUNT];
        let mut this = Self { program, policies, store, bug, places, running, ready, _looking: looking };
        for place in 0..COUNT {
            this.run(place, this.store.clone())?;
        }
        this.until_ready().await?;
        Ok(this)
    }

    pub(super) fn places(&self) -> [Place; COUNT] {
        self.places
    }

    pub(super) fn readiness(&self) -> Readiness {
        self.ready.clone()
    }

    fn run(&mut self, place: usize, store: String) -> Result<()> {
        let Place { grpc, http } = self.places[place];
        let delay = if self.bug == Some(Bug::NoDelay) { "0" } else { DELAY_S };
        let at = |port: u16| format!("127.0.0.1:{port}");
        let args = [
            ("--listen", at(grpc)),
            ("--http", at(http)),
            ("--metrics", "off".into()),
            ("--store", store),
            ("--store-deadline-ms", "20000".into()),
            ("--lame-duck-s", delay.into()),
            ("--grace-s", GRACE_S.into()),
        ];
        let args: Vec<String> = args.into_iter().flat_map(|(option, value)| [option.into(), value]).collect();
        let (program, policies) = (self.program.clone(), self.policies.clone());
        let start = || Serving::start(&program, &policies, &args);
        self.running[place] = Some(tokio::task::block_in_place(start)?);
        Ok(())
    }

    async fn until_ready(&self) -> Result<()> {
        let all = async {
            while !self.ready.iter().all(|ready| ready.load(SeqCst)) {
                sleep(LOOK_EVERY).await;
            }
        };
        timeout(PATIENCE, all).await.context("a server does not get ready")
    }

    /// Stops a server, starts another at its address, and waits until it is ready.
    pub(super) async fn replace(&mut self, place: usize, stop: Stop) -> Result<()> {
        self.stop(place, stop)?;
        let foreign = self.bug == Some(Bug::AnotherStore) && place == 0;
        let store = if foreign { format!("{}/1", self.store) } else { self.store.clone() };
        self.run(place, store)?;
        self.until_ready().await?;
        sleep(BETWEEN).await;
        Ok(())
    }

    fn stop(&mut self, place: usize, stop: Stop) -> Result<()> {
        let mut serving = self.running[place].take().context("it runs")?;
        serving.signal(if stop == Stop::Killed { "KILL" } else { "TERM" })?;
        let ended = tokio::task::block_in_place(|| serving.wait())?;
        ensure!(ended.success() || stop == Stop::Killed, "a server that was stopped ended with {ended}");
        Ok(())
    }

    /// Stops all servers, so that they return what they leased, and asks a new one what was counted.
    pub(super) async fn settle(mut self) -> Result<Counted> {
        for place in 0..COUNT {
            self.stop(place, Stop::InOrder)?;
        }
        self.run(0, self.store.clone())?;
        let client = RateLimiterClient::new(self.places[0].channel()?);
        let mut counted = Counted { slots: SLOTS, ..Counted::default() };
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Permits) {
            counted.units.insert(kind, used(&client, kind).await?);
        }
        counted.slots_free = free_slots(client).await?;
        Ok(counted)
    }
}

impl Place {
    /// Returns a channel that connects when it is used.
    pub(super) fn channel(self) -> Result<Channel> {
        channel(&format!("127.0.0.1:{}", self.grpc))
    }

    pub(super) fn url(self) -> String {
        format!("http://127.0.0.1:{}", self.grpc)
    }
}

fn policies() -> String {
    let window = format!("algorithm: fixed_window, limit: {BUDGET}, per: 365d");
    format!(
        "version: 1\npolicies:\n  strict: {{rate: {{{window}}}}}\n  \
         leased: {{rate: {{{window}, lease: {{mode: leased, batch: {BATCH}}}}}}}\n  \
         tokens: {{cost: {{budget: {BUDGET}, per: 365d}}}}\n  \
         permits: {{concurrency: {{limit: {SLOTS}, scope: key, lease_for: 10m}}}}\n"
    )
}

/// Probes the readiness of a server until nobody is interested.
async fn look(ready: Readiness, place: usize, http: u16) {
    loop {
        ready[place].store(is_ready(http).await.unwrap_or(false), SeqCst);
        sleep(LOOK_EVERY).await;
    }
}

async fn is_ready(http: u16) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", http)).await?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    Ok(response.starts_with("HTTP/1.1 200"))
}

/// Returns the units that the store has counted for clients of a kind.
async fn used(client: &RateLimiterClient<Channel>, kind: Kind) -> Result<u64> {
    let request =
        PeekRequest { policy: kind.policy().into(), key: kind.name().into(), ..PeekRequest::default() };
    let peeked = client.clone().peek(request).await?.into_inner();
    let decision = peeked.decision.context("a decision")?;
    Ok((decision.limit - decision.remaining).unsigned_abs())
}

/// Returns the number of slots that can be taken at once.
async fn free_slots(mut client: RateLimiterClient<Channel>) -> Result<u64> {
    let mut held = Vec::new();
    for _ in 0..=SLOTS {
        let (policy, key) = (Kind::Permits.policy().into(), Kind::Permits.name().into());
        let admitted =
            client.admit(AdmitRequest { policy, key, ..AdmitRequest::default() }).await?.into_inner();
        if admitted.decision.is_some_and(|decision| decision.allowed) {
            held.push(admitted.lease_id);
        }
    }
    let free = held.len() as u64;
    for lease_id in held {
        client.release(ReleaseRequest { lease_id, ..ReleaseRequest::default() }).await?;
    }
    Ok(free)
}
