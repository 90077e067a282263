//! Rounds of each attack, for measuring: what is done is counted while it is done, and so is what should not have been
//! possible.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::join_all;
use throttlekit_proto::v1::{
    AdmitRequest, AdmitResponse, CheckManyRequest, CheckManyResponse, DebitRequest, DebitResponse,
    GetSnapshotRequest, GetSnapshotResponse, HeartbeatRequest, HeartbeatResponse, ReleaseRequest,
    ReleaseResponse,
};
use tokio::time::{Instant, sleep, timeout_at};
use tonic::Code;

use crate::attack::{self, Listener};
use crate::bombs;
use crate::client::{CHECK, Client, Failure, framed};

/// Streams of one connection, as many as the server allows.
const STREAMS: u32 = 100;

/// The listeners of a server.
#[derive(Clone, Debug)]
pub(crate) struct Listeners {
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) metrics: SocketAddr,
    /// The file that it watches.
    pub(crate) policies: PathBuf,
    /// Of the principal that attacks.
    pub(crate) token: Option<String>,
}

impl Listeners {
    fn grpc(&self) -> Listener {
        Listener { address: self.grpc, token: self.token.clone() }
    }

    fn http(&self) -> Listener {
        Listener { address: self.http, token: self.token.clone() }
    }

    async fn client(&self) -> Result<Client, Failure> {
        Client::connect_as(&self.grpc()).await
    }
}

/// Result of an attacker.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Streams, bytes, guesses: each attack counts its own.
    done: AtomicU64,
    /// Number of attempts that the server should have stopped.
    wrong: AtomicU64,
}

impl Tally {
    pub(crate) fn did(&self, much: u64) {
        self.done.fetch_add(much, Relaxed);
    }

    pub(crate) fn expect(&self, is_right: bool) {
        self.wrong.fetch_add(u64::from(!is_right), Relaxed);
    }

    pub(crate) fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }

    pub(crate) fn wrong(&self) -> u64 {
        self.wrong.load(Relaxed)
    }
}

/// One round of an attack.
type Round = fn(Listeners, Arc<Tally>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// An attack, and what it counts.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) counts: &'static str,
    round: Round,
}

macro_rules! attacks {
    ($(($name:ident, $counts:literal)),* $(,)?) => {
        &[$(Attack {
            name: stringify!($name),
            counts: $counts,
            round: |listeners, tally| Box::pin(async move { $name(&listeners, &tally).await }),
        }),*]
    };
}

/// Invented keys come last, as they go on until there were as many as were promised.
pub(crate) const ATTACKS: &[Attack] = attacks![
    (rapid_reset, "streams"),
    (made_reset, "streams"),
    (continuation_flood, "bytes"),
    (header_bomb, "bombs"),
    (slow, "connections"),
    (zero_window, "streams"),
    (slow_watchers, "denials"),
    (withheld_bodies, "streams"),
    (health_watchers, "streams"),
    (batches, "keys"),
    (huge_messages, "messages"),
    (deep_messages, "messages"),
    (guessed_leases, "guesses"),
    (guessed_tokens, "guesses"),
    (reconnects, "connections"),
    (ping_flood, "pings"),
    (page_readers, "pages"),
    (check_flood, "checks"),
    (yaml_bombs, "files"),
    (random_keys, "keys"),
];

impl Attack {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        ATTACKS.iter().find(|attack| attack.name == name)
    }

    /// Goes on for so long.
    pub(crate) async fn run(&self, listeners: &Listeners, time: Duration) -> Arc<Tally> {
        let (tally, end) = (Arc::<Tally>::default(), Instant::now() + time);
        while timeout_at(end, (self.round)(listeners.clone(), tally.clone())).await.is_ok() {
            sleep(Duration::from_millis(2)).await;
        }
        tally
    }
}

async fn rapid_reset(listeners: &Listeners, tally: &Tally) {
    if let Ok(ended) = attack::rapid_reset(listeners.grpc(), 100_000).await {
        tally.did(u64::from(ended.unwrap_or(100_000)));
        tally.expect(ended.is_some());
    }
}

async fn made_reset(listeners: &Listeners, tally: &Tally) {
    if let Ok(ended) = attack::made_reset(listeners.grpc(), 100_000).await {
        tally.did(u64::from(ended.unwrap_or(100_000)));
        tally.expect(ended.is_some());
    }
}

async fn continuation_flood(listeners: &Listeners, tally: &Tally) {
    const MOST: usize = 1 << 24;
    if let Ok(ended) = attack::continuation_flood(listeners.grpc(), MOST).await {
        tally.did(ended.unwrap_or(MOST) as u64);
        tally.expect(ended.is_some());
    }
}

async fn header_bomb(listeners: &Listeners, tally: &Tally) {
    if attack::header_bomb(listeners.grpc(), 20).await.is_ok() {
        tally.did(20);
    }
}

/// Three hundred who begin and do not go on: the preface, headers of HTTP/1, or nothing at all. They would be longer
/// than a turn.
async fn slow(listeners: &Listeners, tally: &Tally) {
    let (pause, time) = (Duration::from_millis(50), Duration::from_secs(1));
    let one = |number: usize| async move {
        let (listener, at_once, slowly): (_, &[u8], &[u8]) = match number % 3 {
            0 => (listeners.grpc, &[], attack::SLOW_PREFACE),
            1 => (listeners.http, attack::HEAD_BEGUN, attack::HEAD_GOES_ON),
            _ => (listeners.metrics, &[], &[]),
        };
        tally.did(1);
        let _ = attack::drip(listener, at_once, slowly, pause, time).await;
    };
    join_all((0..300).map(one)).await;
}

async fn zero_window(listeners: &Listeners, tally: &Tally) {
    const STREAMS: u32 = 200;
    if let Ok(mut wire) = attack::zero_window(listeners.grpc(), STREAMS).await {
        tally.did(STREAMS.into());
        wire.ended_within(Duration::from_millis(300)).await;
    }
}

/// Twenty connections with as many requests as they may have, of which none comes to its end.
async fn withheld_bodies(listeners: &Listeners, tally: &Tally) {
    let each = join_all((0..20).map(|_| attack::withheld_bodies(listeners.grpc(), STREAMS))).await;
    tally.did(u64::from(STREAMS) * each.iter().flatten().count() as u64);
    sleep(Duration::from_millis(500)).await;
}

/// Fifty connections with as many streams of health as they may have, open for as long as they are let.
async fn health_watchers(listeners: &Listeners, tally: &Tally) {
    let each = join_all((0..50).map(|_| attack::health_watches(listeners.grpc(), STREAMS))).await;
    tally.did(u64::from(STREAMS) * each.iter().flatten().count() as u64);
    sleep(Duration::from_secs(1)).await;
}

async fn ping_flood(listeners: &Listeners, tally: &Tally) {
    const PINGS: u32 = 100_000;
    if let Ok(ended) = attack::ping_flood(listeners.grpc(), PINGS).await {
        tally.did(ended.unwrap_or(PINGS).into());
    }
}

/// A hundred connections at a time, each for one request.
async fn reconnects(listeners: &Listeners, tally: &Tally) {
    let one = |_| async {
        let Ok(client) = listeners.client().await else { return };
        let _ = client.check("api", "attacked").await;
        tally.did(1);
    };
    join_all((0..100).map(one)).await;
}

/// Pages that are long, fifty at a time.
async fn page_readers(listeners: &Listeners, tally: &Tally) {
    let one = |number: usize| async move {
        let (address, path) =
            [(listeners.metrics, "/metrics"), (listeners.http, "/openapi.json")][number % 2];
        tally.did(u64::from(attack::get(address, path).await.is_ok()));
    };
    join_all((0..50).map(one)).await;
}

/// Checks, as many as eight connections carry.
async fn check_flood(listeners: &Listeners, tally: &Tally) {
    let one = |client: Client| async move {
        for _ in 0..20 {
            let _ = client.check("api", "attacked").await;
            tally.did(1);
        }
    };
    let clients = join_all((0..8).map(|_| listeners.client())).await;
    let each = clients.into_iter().flatten().flat_map(|client| std::iter::repeat_n(client, STREAMS as usize));
    join_all(each.map(one)).await;
}

/// Tokens that nobody was given, a hundred at a time.
async fn guessed_tokens(listeners: &Listeners, tally: &Tally) {
    let random = RandomState::new();
    let token = Some(format!("{:016x}", random.hash_one(tally.done())));
    let listener = Listener { token, ..listeners.grpc() };
    let Ok(client) = Client::connect_as(&listener).await else { return };
    let client = &client;
    let one = |_| async move {
        let refused = client.check("api", "attacked").await;
        tally.did(1);
        tally.expect(refused.is_err());
    };
    join_all((0..100).map(one)).await;
}

/// A hundred batches of a thousand keys at a time, over one connection.
async fn batches(listeners: &Listeners, tally: &Tally) {
    let Ok(client) = listeners.client().await else { return };
    let keys = (0..1_000).map(|key| key.to_string()).collect();
    let ask = CheckManyRequest { policy: "api".into(), keys, ..CheckManyRequest::default() };
    let (client, ask) = (&client, &ask);
    let one = |_| async move {
        // Whoever sends too many is told to come back.
        let _ = client.call::<CheckManyResponse>(CHECK_MANY, &[], ask).await;
        tally.did(1_000);
    };
    join_all((0..100).map(one)).await;
}

/// Three hundred streams of denials that nobody reads, and denials as fast as they go.
async fn slow_watchers(listeners: &Listeners, tally: &Tally) {
    let watching = join_all((0..6).map(|_| attack::unread_watches(listeners.grpc(), 50))).await;
    let Ok(client) = listeners.client().await else { return };
    if !are_watching(&client).await {
        return tally.expect(false);
    }
    let (end, key) = (Instant::now() + Duration::from_secs(1), "denied".to_owned());
    let ask = CheckManyRequest {
        policy: "tight".into(),
        keys: vec![key; 100],
        cost: 2,
        ..CheckManyRequest::default()
    };
    while Instant::now() < end {
        let answer: Result<CheckManyResponse, _> = client.call(CHECK_MANY, &[], &ask).await;
        let Ok(answer) = answer else { break };
        tally.did(answer.decisions.iter().filter(|one| !one.allowed).count() as u64);
    }
    drop(watching);
}

/// Checks whether the server reports open streams of denials.
async fn are_watching(client: &Client) -> bool {
    for _ in 0..50 {
        let path = "/throttlekit.v1.Monitor/GetSnapshot";
        let seen: Result<GetSnapshotResponse, _> = client.call(path, &[], &GetSnapshotRequest {}).await;
        let raw = seen.ok().and_then(|seen| seen.snapshot).map(|snapshot| snapshot.raw_json);
        let seen = raw.and_then(|raw| serde_json::from_str::<serde_json::Value>(&raw).ok());
        if seen.is_some_and(|seen| seen["watchers"].as_u64() >= Some(16)) {
            return true;
        }
        sleep(Duration::from_millis(10)).await;
    }
    false
}

async fn huge_messages(listeners: &Listeners, tally: &Tally) {
    let Ok(client) = listeners.client().await else { return };
    let body = framed(&vec![0; 5 << 20]);
    for _ in 0..4 {
        let answer = client.raw(CHECK, &[], body.clone()).await;
        tally.did(1);
        tally.expect(!matches!(answer, Ok(_) | Err(Failure::Status(Code::Ok))));
    }
}

/// Groups within groups, what is no protobuf at all, and lists within lists of JSON.
async fn deep_messages(listeners: &Listeners, tally: &Tally) {
    let Ok(client) = listeners.client().await else { return };
    let groups = framed(&[0x7B; 60_000]);
    let random = RandomState::new();
    let garbage: Vec<u8> = (0..7_500_u32).flat_map(|n| random.hash_one(n).to_be_bytes()).collect();
    let proto = [groups, framed(&garbage)];
    let json = format!("{{\"policy\":\"api\",\"key\":{}", "[".repeat(60_000));
    let client = &client;
    let over_grpc = proto.iter().cycle().take(24).map(|body| async move {
        let refused = client.raw(CHECK, &[], body.clone()).await;
        tally.did(1);
        tally.expect(!matches!(refused, Ok(_) | Err(Failure::Status(Code::Ok))));
    });
    let over_http = (0..8).map(|_| async {
        let Ok((status, _)) = attack::post(listeners.http(), "/v1/check", json.as_bytes()).await else {
            return;
        };
        tally.did(1);
        tally.expect((400..500).contains(&status));
    });
    tokio::join!(join_all(over_grpc), join_all(over_http));
}

/// Names of leases that were never given, while some are held. They must stay held.
async fn guessed_leases(listeners: &Listeners, tally: &Tally) {
    let Ok(client) = listeners.client().await else { return };
    let (held, since) = (held(&client, 10).await, Instant::now());
    let random = RandomState::new();
    let guess = |n: u64| format!("{:016x}{:016x}", random.hash_one(n), random.hash_one((n, n)));
    for round in 0..20 {
        let one = |n: u64| guess_once(&client, tally, guess(round * 32 + n), n.is_multiple_of(2));
        let many = (0..500).map(|n| guess((1 << 32) + (round << 16) + n)).collect();
        let heartbeats = heartbeat(&client, many);
        let (live, _) = tokio::join!(heartbeats, join_all((0..32).map(one)));
        tally.did(500);
        tally.expect(live.is_none_or(|live| live == 0));
    }
    let mine = heartbeat(&client, held.clone()).await;
    // Later they may have lapsed by themselves.
    if since.elapsed() < Duration::from_secs(1) {
        tally.expect(mine.is_none_or(|live| live == held.len()));
    }
    for lease_id in held {
        let path = "/throttlekit.v1.RateLimiter/Release";
        let release = ReleaseRequest { lease_id, ..ReleaseRequest::default() };
        let _ = client.call::<ReleaseResponse>(path, &[], &release).await;
    }
}

async fn guess_once(client: &Client, tally: &Tally, lease_id: String, debits: bool) {
    tally.did(1);
    if debits {
        let debit = DebitRequest { lease_id, tokens: 1, ..DebitRequest::default() };
        let path = "/throttlekit.v1.RateLimiter/Debit";
        tally.expect(client.call::<DebitResponse>(path, &[], &debit).await.is_err());
    } else {
        // Answered alike whether there was one; what is held is looked at afterwards.
        let path = "/throttlekit.v1.RateLimiter/Release";
        let release = ReleaseRequest { lease_id, ..ReleaseRequest::default() };
        let _ = client.call::<ReleaseResponse>(path, &[], &release).await;
    }
}

async fn held(client: &Client, many: u32) -> Vec<String> {
    let ask = AdmitRequest { policy: "jobs".into(), key: "holder".into(), ..AdmitRequest::default() };
    let path = "/throttlekit.v1.RateLimiter/Admit";
    let each = join_all((0..many).map(|_| client.call::<AdmitResponse>(path, &[], &ask))).await;
    each.into_iter().flatten().map(|one| one.lease_id).filter(|id| !id.is_empty()).collect()
}

/// Renews leases, and returns the number that are live.
async fn heartbeat(client: &Client, lease_ids: Vec<String>) -> Option<usize> {
    let path = "/throttlekit.v1.RateLimiter/Heartbeat";
    let heartbeat = client.call::<HeartbeatResponse>(path, &[], &HeartbeatRequest { lease_ids }).await;
    heartbeat.ok().map(|heartbeat| heartbeat.live_ids.len())
}

/// A file that is made to hurt, where the server looks for its policies, and as soon as it was judged the next.
async fn yaml_bombs(listeners: &Listeners, tally: &Tally) {
    for bomb in bombs::all() {
        let Some(before) = judged(listeners).await else { return };
        if std::fs::write(&listeners.policies, bomb).is_err() {
            return;
        }
        loop {
            sleep(Duration::from_millis(20)).await;
            let Some(now) = judged(listeners).await else { return };
            tally.expect(now.0 == before.0);
            if now != before {
                break;
            }
        }
        tally.did(1);
    }
}

/// Files taken up and refused.
async fn judged(listeners: &Listeners) -> Option<(u64, u64)> {
    let page = attack::get(listeners.metrics, "/metrics").await.ok()?;
    let read = |name: &str| page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    Some((read("throttlekit_config_reloads_total")?, read("throttlekit_config_rejected_total")?))
}

const CHECK_MANY: &str = "/throttlekit.v1.RateLimiter/CheckMany";

/// Asks of a hundred keys each that nobody asked for before.
async fn random_keys(listeners: &Listeners, tally: &Tally) {
    let (Ok(client), random) = (listeners.client().await, RandomState::new()) else { return };
    for ask in 0..50_u32 {
        let keys: Vec<_> = (0..100_u32).map(|n| format!("{:016x}", random.hash_one((ask, n)))).collect();
        let ask = CheckManyRequest { policy: "api".into(), keys, ..CheckManyRequest::default() };
        // Whoever sends too many is told to come back.
        if client.call::<CheckManyResponse>(CHECK_MANY, &[], &ask).await.is_ok() {
            tally.did(100);
        }
    }
}
