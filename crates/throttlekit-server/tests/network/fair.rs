//! No caller takes from others what they need of the server: bodies that do not come, batches, and streams of health.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use h2::SendStream;
use http::Request;
use hyper::body::Bytes;
use prost::Message;
use throttlekit_proto::v1::{CheckManyRequest, CheckManyResponse, CheckRequest, CheckResponse};
use throttlekit_server::internals::engine::Backend;
use throttlekit_server::{Server, ServerOptions, StoreOptions, StoreUrl};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;

use crate::attack;
use crate::client::{Client, Failure};
use crate::own_redis::OwnRedis;
use crate::target::POLICIES;

const CHECK: &str = "/throttlekit.v1.RateLimiter/Check";
const WATCH: &str = "/grpc.health.v1.Health/Watch";
const HEALTH: &str = "/grpc.health.v1.Health/Check";
const CHECK_MANY: &str = "/throttlekit.v1.RateLimiter/CheckMany";
/// Longer than a busy machine takes for two batches of 1,000 keys, and shorter than for 200 of them.
const STORE_DEADLINE: Duration = Duration::from_millis(500);

/// A server as it is shipped, over this process's memory.
pub(crate) async fn serve(change: impl FnOnce(&mut ServerOptions)) -> (Server, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path: PathBuf = directory.path().join("policies.yaml");
    std::fs::write(&path, POLICIES).unwrap();
    let mut options = ServerOptions::new(path, Backend::memory());
    options.http = Some("127.0.0.1:0".parse().unwrap());
    options.metrics = Some("127.0.0.1:0".parse().unwrap());
    change(&mut options);
    (Server::start(options).await.unwrap(), directory)
}

/// A connection on which requests are begun and not ended.
struct Withholder {
    send: h2::client::SendRequest<Bytes>,
    held: Vec<(SendStream<Bytes>, h2::client::ResponseFuture)>,
}

impl Withholder {
    async fn connect(address: SocketAddr) -> Self {
        let tcp = TcpStream::connect(address).await.unwrap();
        let (send, connection) = h2::client::handshake(tcp).await.unwrap();
        tokio::spawn(connection);
        Self { send, held: Vec::new() }
    }

    /// Begins requests until so many are under way.
    async fn hold(&mut self, requests: usize, path: &str) {
        let kind = if path == CHECK { "application/grpc" } else { "application/json" };
        while self.held.len() < requests {
            let request = Request::post(format!("http://server{path}"));
            let request = request.header("content-type", kind).body(()).unwrap();
            let mut ready = self.send.clone().ready().await.unwrap();
            let (response, body) = ready.send_request(request, false).unwrap();
            self.held.push((body, response));
        }
    }
}

/// As many requests without bodies as seventeen connections may have. Returns when the server has seen all of them.
async fn withhold(server: &Server, listener: &str, path: &str) -> Vec<Withholder> {
    let address = if listener == "http" { server.http().unwrap() } else { server.grpc() };
    let mut all = Vec::new();
    for _ in 0..17 {
        let mut one = Withholder::connect(address).await;
        one.hold(100, path).await;
        all.push(one);
    }
    let seen = format!("throttlekit_requests_total{{listener=\"{listener}\"}}");
    let arrived = async {
        while metric(server, &seen).await < 17.0 * 100.0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(10), arrived).await.expect("the requests arrive");
    all
}

/// The value of a metric without labels, or the sum over all labels.
pub(crate) async fn metric(server: &Server, name: &str) -> f64 {
    let page = attack::get(server.metrics().unwrap(), "/metrics").await.unwrap();
    attack::metric(&page, name)
}

#[tokio::test]
async fn requests_whose_bodies_do_not_come_shut_nobody_out() {
    let (server, _file) = serve(|_| ()).await;
    let mut all = withhold(&server, "grpc", CHECK).await;
    let client = Client::connect(server.grpc()).await.unwrap();
    for turn in 0..200 {
        let answer = timeout(Duration::from_secs(5), client.check("api", "honest")).await.expect("in time");
        assert!(answer.is_ok(), "check {turn} of an honest client: {:?}", answer.err());
    }
    // Those that were let wait are told when their time is over, and nothing is kept of them.
    let deadline = Instant::now() + Duration::from_secs(10);
    let (_, first) = all.remove(0).held.remove(0);
    let answer = timeout(Duration::from_secs(10), first).await.expect("it is ended").unwrap();
    assert_eq!(answer.headers()["grpc-status"], (Code::DeadlineExceeded as i32).to_string().as_str());
    drop(all);
    while metric(&server, "throttlekit_requests_late_total").await < 1.0 {
        assert!(Instant::now() < deadline);
        sleep(Duration::from_millis(50)).await;
    }
    server.stop().await;
}

/// The listener of proxies and balancers, which eject a server that is not ready.
#[tokio::test]
async fn withheld_bodies_on_the_http_listener_deny_neither_forward_auth_nor_readiness() {
    let (server, _file) = serve(|_| ()).await;
    let http = server.http().unwrap();
    let _all = withhold(&server, "http", "/v1/check").await;
    for path in ["/v1/forward-auth/api?key=honest", "/readyz"].repeat(5) {
        let page = timeout(Duration::from_secs(5), attack::get(http, path)).await.expect("in time").unwrap();
        assert!(page.starts_with("HTTP/1.1 200 "), "{path}: {page}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_comes_in_pieces_is_read_whole() {
    let (server, _file) = serve(|_| ()).await;
    let mut one = Withholder::connect(server.grpc()).await;
    one.hold(1, CHECK).await;
    let ask = CheckRequest { policy: "api".into(), key: "k".repeat(100), ..Default::default() };
    let mut frame = vec![0; 5];
    ask.encode(&mut frame).unwrap();
    let length = u32::try_from(frame.len() - 5).unwrap();
    frame[1..5].copy_from_slice(&length.to_be_bytes());
    let (mut body, response) = one.held.remove(0);
    let pieces: Vec<_> = frame.chunks(20).collect();
    for (index, piece) in pieces.iter().enumerate() {
        body.send_data(Bytes::copy_from_slice(piece), index + 1 == pieces.len()).unwrap();
        sleep(Duration::from_millis(5)).await;
    }
    let mut answer = response.await.unwrap().into_body();
    assert!(answer.data().await.unwrap().unwrap().len() > 5);
    server.stop().await;
}

/// Health needs no token, also where everything else does.
#[tokio::test]
async fn health_is_told_on_change_and_its_watchers_are_bounded() {
    let access = format!("access: {{principals: {{one: {{token_sha256: {}}}}}}}\n", "ab".repeat(32));
    let (server, _file) =
        serve(|options| std::fs::write(&options.policies, format!("{POLICIES}{access}")).unwrap()).await;
    // The empty message.
    let message = Bytes::from_static(&[0; 5]);
    let mut streams = Vec::new();
    let mut refused = 0;
    for _ in 0..20 {
        let one = Withholder::connect(server.grpc()).await;
        for _ in 0..100 {
            let request = Request::post(format!("http://server{WATCH}"));
            let request = request.header("content-type", "application/grpc").body(()).unwrap();
            let mut ready = one.send.clone().ready().await.unwrap();
            let (response, mut body) = ready.send_request(request, false).unwrap();
            body.send_data(message.clone(), true).unwrap();
            let response = response.await.unwrap();
            match response.headers().get("grpc-status") {
                Some(status) => {
                    assert_eq!(status, (Code::ResourceExhausted as i32).to_string().as_str());
                    refused += 1;
                }
                None => {
                    let mut told = response.into_body();
                    assert!(told.data().await.unwrap().is_ok(), "how things are");
                    streams.push((told, one.send.clone()));
                }
            }
        }
    }
    assert!(streams.len() < 1_024 && refused > 1_024, "{} open, {refused} refused", streams.len());
    // Another connection still finds room, and asking is never refused.
    let client = Client::connect(server.grpc()).await.unwrap();
    assert!(client.raw(HEALTH, &[], message.clone()).await.is_ok());
    assert_eq!(client.check("api", "k").await.unwrap_err().code(), Code::Unauthenticated);
    let (first, _connection) = &mut streams[0];
    assert!(
        timeout(Duration::from_millis(1_500), first.data()).await.is_err(),
        "told though nothing changed"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_batch_counts_as_many_as_it_asks_for() {
    let (server, _file) = serve(|options| options.limits.requests_max = 8).await;
    let client = Client::connect(server.grpc()).await.unwrap();
    let keys = (0..1_000).map(|key| key.to_string()).collect();
    let many = CheckManyRequest { policy: "api".into(), keys, ..CheckManyRequest::default() };
    let answer: Result<CheckManyResponse, Failure> = client.call(CHECK_MANY, &[], &many).await;
    assert_eq!(answer.unwrap().decisions.len(), 1_000);
    client.check("api", "one").await.unwrap();
    let label = "throttlekit_principal_decisions_total";
    assert_eq!(metric(&server, label).await, 1_001.0);
    assert_eq!(metric(&server, "throttlekit_principal_requests_total").await, 2.0);
    assert_eq!(
        (metric(&server, "throttlekit_deciding").await, metric(&server, "throttlekit_waiting").await),
        (0.0, 0.0)
    );
    server.stop().await;
}

#[tokio::test]
async fn a_store_that_is_away_is_the_cause_and_no_axis_is() {
    let nowhere =
        StoreUrl::parse("redis://127.0.0.1:1").unwrap().connect(&StoreOptions::default()).await.unwrap();
    let (server, _file) = serve(|options| options.engine.backend = nowhere).await;
    let client = Client::connect(server.grpc()).await.unwrap();
    for path in [CHECK, "/throttlekit.v1.RateLimiter/Peek"] {
        let ask = CheckRequest { policy: "api".into(), key: "k".into(), ..Default::default() };
        let answer: Result<CheckResponse, Failure> = client.call(path, &[], &ask).await;
        assert_eq!(answer.unwrap_err().code(), Code::Unavailable, "{path}");
    }
    let (http, ask) = (server.http().unwrap(), br#"{"policy":"api","key":"k"}"#);
    for path in ["/v1/check", "/v1/check?status=429"] {
        let (status, problem) = attack::post(http, path, ask).await.unwrap();
        assert_eq!(status, 503, "{problem}");
        assert!(problem.contains(r#""cause":"store_outage""#) && !problem.contains("rate"), "{problem}");
    }
    let forward_auth = attack::get(http, "/v1/forward-auth/api?key=k").await.unwrap();
    assert!(forward_auth.starts_with("HTTP/1.1 503 "), "{forward_auth}");
    let many = br#"{"policy":"api","keys":["a","b"]}"#;
    assert_eq!(attack::post(http, "/v1/check_many", many).await.unwrap().0, 503);
    server.stop().await;
}

/// A healthy store, and one connection with 200 batches of 1,000 keys under way: more than the store answers in time.
#[tokio::test]
async fn one_connection_with_many_batches_does_not_open_the_circuit_breaker() {
    let redis = OwnRedis::start().await;
    let mut within = StoreOptions::default();
    within.deadline = Some(STORE_DEADLINE);
    let store = StoreUrl::parse(&redis.url()).unwrap().connect(&within).await.unwrap();
    let (server, _file) = serve(|options| {
        options.engine.backend = store.clone();
        let open = POLICIES.replace("policies:", "defaults: {on_outage: open}\npolicies:");
        std::fs::write(&options.policies, open).unwrap();
    })
    .await;
    let attacker = Client::connect(server.grpc()).await.unwrap();
    let keys = (0..1_000).map(|key| format!("x{key}")).collect();
    let many = CheckManyRequest { policy: "api".into(), keys, ..CheckManyRequest::default() };
    let mut batches = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let (attacker, many) = (attacker.clone(), many.clone());
        batches.spawn(async move {
            loop {
                let _ = attacker.call::<CheckManyResponse>(CHECK_MANY, &[], &many).await;
            }
        });
    }
    let honest = Client::connect(server.grpc()).await.unwrap();
    let until = Instant::now() + 3 * STORE_DEADLINE;
    while Instant::now() < until {
        let decision = honest.check("api", "honest").await.unwrap().decision.unwrap();
        assert!(decision.allowed && decision.guarantee != "open", "{decision:?}");
    }
    let line = store.line_stats().unwrap();
    assert!(line.calls > 20 && line.opened == 0, "{line:?}");
    drop(batches);
    server.stop().await;
}

/// A hundred batches of a thousand keys at full cost, with the memory that a server has by default.
#[tokio::test]
async fn invented_keys_deny_no_honest_newcomer() {
    let small = format!("{POLICIES}  small: {{rate: {{algorithm: fixed_window, limit: 100, per: 1h}}}}\n");
    let (server, _file) = serve(|options| std::fs::write(&options.policies, small).unwrap()).await;
    let client = Client::connect(server.grpc()).await.unwrap();
    let check = async |prefix: &str, cost: i64| {
        let keys = (0..1_000).map(|key| format!("{prefix}{key}")).collect();
        let many = CheckManyRequest { policy: "small".into(), keys, cost, ..CheckManyRequest::default() };
        client.call::<CheckManyResponse>(CHECK_MANY, &[], &many).await.unwrap().decisions
    };
    for batch in 0..100 {
        assert!(check(&format!("invented {batch} "), 100).await.iter().all(|decision| decision.allowed));
    }
    for decision in check("honest ", 1).await {
        let told = (decision.allowed, decision.remaining, &*decision.guarantee);
        assert_eq!(told, (true, 99, "exact"), "{decision:?}");
    }
    server.stop().await;
}
