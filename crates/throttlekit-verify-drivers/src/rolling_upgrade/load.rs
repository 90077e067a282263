//! Clients of every kind, which call until they are stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use anyhow::Result;
use throttlekit_client::{Client, RemotePolicy};
use throttlekit_proto::v1::rate_limiter_client::RateLimiterClient;
use throttlekit_proto::v1::{AdmitRequest, CheckRequest, DebitRequest, HeartbeatRequest, ReleaseRequest};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tonic::Status;
use tonic::transport::Channel;

use super::Bug;
use super::accounts::{Accounts, Kind};
use super::replicas::{COUNT, Place, Readiness};

const CLIENTS_EACH: usize = 10;
/// More than there are slots.
const PERMIT_CLIENTS: usize = 30;
/// Connections that reconnecting clients share, as those of a gateway do.
const CONNECTIONS: usize = 6;
const REST: Duration = Duration::from_millis(2);
const DEADLINE: Duration = Duration::from_secs(20);
/// A debit is sent this often before it counts as failed.
const DEBIT_TRIES: usize = 100;
/// Debits of one stream.
const STREAM: u64 = 50;
/// The longest time that a permit is held: less than a server goes on serving while it is not ready.
const HOLD_MAX_MS: u64 = 1_200;
const HEARTBEAT_EVERY: Duration = Duration::from_millis(200);

pub(super) struct Load {
    tasks: JoinSet<()>,
    stop: Arc<AtomicBool>,
}

impl Load {
    pub(super) fn start(
        places: [Place; COUNT],
        ready: &Readiness,
        accounts: &Arc<Accounts>,
        bug: Option<Bug>,
    ) -> Result<Self> {
        let mut load = Self { tasks: JoinSet::new(), stop: Arc::default() };
        let of_place = |n: usize| Ok(RateLimiterClient::new(places[n % COUNT].channel()?));
        let shared = (0..CONNECTIONS).map(of_place).collect::<Result<Vec<_>>>()?;
        let client = client(places)?;
        for number in 0..CLIENTS_EACH {
            let own = || (0..COUNT).map(of_place).collect::<Result<Vec<_>>>();
            let caller = |servers| Caller {
                servers,
                ready: ready.clone(),
                accounts: accounts.clone(),
                stop: load.stop.clone(),
                number,
                bug,
            };
            let [unary, leased, debits] = [caller(own()?), caller(own()?), caller(own()?)];
            let (reconnecting, sessions) = (caller(shared.clone()), caller(Vec::new()));
            let streams = caller(Vec::new());
            load.tasks.spawn(unary.check(Kind::Unary));
            load.tasks.spawn(leased.check(Kind::Leased));
            load.tasks.spawn(debits.debit());
            load.tasks.spawn(reconnecting.reconnect());
            load.tasks.spawn(sessions.decide(client.policy(Kind::Session.policy())));
            load.tasks.spawn(streams.stream(client.policy(Kind::Streams.policy())));
        }
        for number in 0..PERMIT_CLIENTS {
            let servers = (0..COUNT).map(of_place).collect::<Result<Vec<_>>>()?;
            let (ready, accounts, stop) = (ready.clone(), accounts.clone(), load.stop.clone());
            load.tasks.spawn(Caller { servers, ready, accounts, stop, number, bug }.hold());
        }
        Ok(load)
    }

    /// Stops the clients when their calls have ended.
    pub(super) async fn finish(mut self) {
        self.stop.store(true, SeqCst);
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Returns the Rust client of all servers.
fn client(places: [Place; COUNT]) -> Result<Client> {
    let [first, others @ ..] = places;
    let client = Client::builder(first.url()).deadline(DEADLINE);
    Ok(others.into_iter().fold(client, |client, place| client.endpoint(place.url())).build()?)
}

/// One client.
struct Caller {
    servers: Vec<RateLimiterClient<Channel>>,
    ready: Readiness,
    accounts: Arc<Accounts>,
    stop: Arc<AtomicBool>,
    number: usize,
    bug: Option<Bug>,
}

impl Caller {
    /// Returns the next turn, after a rest; nothing once the client is stopped.
    async fn next(&self, turn: &mut usize) -> Option<usize> {
        sleep(REST).await;
        *turn += 1;
        (!self.stop.load(SeqCst)).then_some(self.number + *turn)
    }

    /// Returns a server that is ready, if it is this one's turn.
    fn ready(&self, turn: usize) -> Option<RateLimiterClient<Channel>> {
        let place = turn % COUNT;
        self.ready[place].load(SeqCst).then(|| self.servers[place].clone())
    }

    /// Calls servers that are ready, each call once.
    async fn check(self, kind: Kind) {
        let mut turn = 0;
        while let Some(turn) = self.next(&mut turn).await {
            if let Some(server) = self.ready(turn) {
                self.accounts.add(kind, check(server, kind).await.map_err(|status| said(&status)));
            }
        }
    }

    /// Calls any server, and another if that one did not process the call.
    async fn reconnect(self) {
        let (mut turn, kind) = (0, Kind::Reconnecting);
        while let Some(turn) = self.next(&mut turn).await {
            let mut server = turn;
            let result = loop {
                match check(self.servers[server % self.servers.len()].clone(), kind).await {
                    Err(status) if was_not_processed(&status) => sleep(2 * REST).await,
                    decided => break decided,
                }
                server += 1;
            };
            self.accounts.add(kind, result.map_err(|status| said(&status)));
        }
    }

    /// Decides over the session streams of the Rust client.
    async fn decide(self, policy: RemotePolicy) {
        let mut turn = 0;
        while self.next(&mut turn).await.is_some() {
            let result = match policy.check(Kind::Session.name()).await {
                Ok(answer) => match &answer.outage {
                    Some(outage) => Err(outage.to_string()),
                    None => Ok(u64::from(answer.allowed)),
                },
                Err(error) => Err(error.to_string()),
            };
            self.accounts.add(Kind::Session, result);
        }
    }

    /// Debits the tokens of streams by the Rust client.
    async fn stream(self, policy: RemotePolicy) {
        let (mut turn, kind) = (0, Kind::Streams);
        while let Ok(mut stream) = policy.stream(kind.name()) {
            for _ in 0..STREAM {
                let Some(turn) = self.next(&mut turn).await else { return };
                let tokens = 1 + turn as u64 % 7;
                let result = match stream.debit(tokens).await {
                    Ok(decision) if decision.allowed => Ok(tokens),
                    // The budget is larger than all debits.
                    Ok(_) => Err("denied, as no server decided".into()),
                    Err(error) => Err(error.to_string()),
                };
                self.accounts.add(kind, result);
            }
        }
    }

    /// Debits the tokens of streams at any server. A debit has a number, so it may be sent again.
    async fn debit(self) {
        let (mut turn, mut number, mut streams) = (0, 0, 0_u64);
        while let Some(turn) = self.next(&mut turn).await {
            number = number % STREAM + 1;
            streams += u64::from(number == 1);
            let stream = (u128::from(streams) << 64 | self.number as u128).to_be_bytes().to_vec();
            let (policy, key) = (Kind::Debits.policy().into(), Kind::Debits.name().into());
            let tokens = 1 + turn as i64 % 7;
            let request =
                DebitRequest { policy, key, tokens, stream: stream.into(), number, ..Default::default() };
            let mut result = Err(String::new());
            for attempt in 0..DEBIT_TRIES {
                let mut server = self.servers[(turn + attempt) % COUNT].clone();
                result = server.debit(request.clone()).await.map_err(|status| said(&status));
                if result.is_ok() {
                    break;
                }
                sleep(10 * REST).await;
            }
            if self.bug == Some(Bug::SentTwice) && turn % 100 == 0 && result.is_ok() {
                number += 1;
                // Fails if nothing listens there; then there is another turn.
                let _ = self.servers[turn % COUNT].clone().debit(DebitRequest { number, ..request }).await;
            }
            self.accounts.add(Kind::Debits, result.map(|_| tokens.unsigned_abs()));
        }
    }

    /// Holds permits, renews them, and releases them at the server that granted them.
    async fn hold(self) {
        let (mut turn, kind) = (0, Kind::Permits);
        while let Some(turn) = self.next(&mut turn).await {
            let Some(mut server) = self.ready(turn) else { continue };
            let request =
                AdmitRequest { policy: kind.policy().into(), key: kind.name().into(), ..Default::default() };
            let admitted = match server.admit(request).await {
                Ok(admitted) => admitted.into_inner(),
                Err(status) => {
                    self.accounts.add(kind, Err(said(&status)));
                    continue;
                }
            };
            if !admitted.decision.is_some_and(|decision| decision.allowed) {
                self.accounts.add(kind, Ok(0));
                sleep(10 * REST).await;
                continue;
            }
            self.accounts.hold();
            let held = self.work(&mut server, &admitted.lease_id, turn).await;
            self.accounts.release();
            let is_kept = self.bug == Some(Bug::HeldTooLong) && turn % 50 == 0;
            let lease_id = if is_kept { String::new() } else { admitted.lease_id };
            let released = server.release(ReleaseRequest { lease_id, ..Default::default() }).await;
            let released = released.map_err(|status| format!("release: {}", said(&status)));
            self.accounts.add(kind, held.and(released.map(|_| 1)));
        }
    }

    /// Works for a while, with heartbeats.
    async fn work(
        &self,
        server: &mut RateLimiterClient<Channel>,
        lease: &str,
        turn: usize,
    ) -> Result<(), String> {
        let work = Duration::from_millis((turn as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % HOLD_MAX_MS);
        for _ in 0..work.as_millis() / HEARTBEAT_EVERY.as_millis() {
            sleep(HEARTBEAT_EVERY).await;
            let request = HeartbeatRequest { lease_ids: vec![lease.into()] };
            let beat =
                server.heartbeat(request).await.map_err(|status| format!("heartbeat: {}", said(&status)))?;
            if beat.into_inner().live_ids.is_empty() {
                return Err("heartbeat: the permit is not held any more".into());
            }
        }
        Ok(())
    }
}

async fn check(mut server: RateLimiterClient<Channel>, kind: Kind) -> Result<u64, Status> {
    let (policy, key) = (kind.policy().into(), kind.name().into());
    let decided = server.check(CheckRequest { policy, key, cost: 1, ..Default::default() }).await?;
    Ok(u64::from(decided.into_inner().decision.is_some_and(|decision| decision.allowed)))
}

/// Returns `true` if no server has processed the call: there was no connection, it closed before the call was sent, or
/// the server had reported which calls it still processes (RFC 9113, 6.8).
fn was_not_processed(status: &Status) -> bool {
    let text = format!("{status:?}");
    let unsent =
        ["tcp connect error", "Connection refused", "Canceled, \"connection closed\"", "NO_ERROR, Remote"];
    unsent.iter().any(|unsent| text.contains(unsent))
}

fn said(status: &Status) -> String {
    format!("{status:?}")
}
