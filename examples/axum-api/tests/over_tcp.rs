//! Over a real socket, as a client sees it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum_api::{Rates, app};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use sfv::{BareItem, List, ListEntry, Parser};
use throttlekit::http::{AdmissionLayer, client_ip};
use throttlekit::{Limit, Limiter, Rate};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tower::{Layer, service_fn};

/// One connection to a server.
struct Client(SendRequest<Empty<Bytes>>);

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Client {
    async fn of(server: SocketAddr) -> Self {
        let stream = TcpStream::connect(server).await.unwrap();
        let (client, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self(client)
    }

    async fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let request = Request::get(path).header("host", "localhost");
        let request = headers.iter().fold(request, |r, (name, value)| r.header(*name, *value));
        self.0.ready().await.unwrap();
        let response = self.0.send_request(request.body(Empty::new()).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: String::from_utf8(body).unwrap(),
        }
    }
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn problem(&self) -> Value {
        assert_eq!(self.header("content-type"), "application/problem+json");
        serde_json::from_str(&self.body).unwrap()
    }

    /// The name and one number of the only member of a structured list.
    fn member(&self, header: &str, number: &str) -> (String, i64) {
        let list: List = Parser::new(self.header(header)).parse().unwrap();
        let [ListEntry::Item(item)] = &list[..] else { panic!("{list:?}") };
        let (BareItem::String(name), BareItem::Integer(number)) = (&item.bare_item, &item.params[number])
        else {
            panic!("{item:?}")
        };
        (name.as_str().to_owned(), i64::from(*number))
    }
}

async fn axum_server(rates: Rates) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = app(rates, b"pepper").unwrap().into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async { axum::serve(listener, app).await });
    address
}

const FREE: (&str, &str) = ("x-api-key", "demo-free");
const PRO: (&str, &str) = ("x-api-key", "demo-pro");

#[tokio::test]
async fn each_plan_has_its_own_limit_and_says_so() {
    let rates = Rates { free: Rate::per_hour(2), anonymous: Rate::per_hour(1), ..Rates::default() };
    let mut client = Client::of(axum_server(rates).await).await;

    let free = client.get("/v1/hello", &[FREE]).await;
    assert_eq!((free.status, free.body.as_str()), (200, "hello, 1 of 2 left\n"));
    assert_eq!(free.member("ratelimit", "r"), ("free".into(), 1));
    assert_eq!(free.member("ratelimit-policy", "q"), ("free".into(), 2));
    assert_eq!(free.member("ratelimit-policy", "w"), ("free".into(), 3_600));
    let legacy = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
    assert_eq!(legacy.map(|name| free.header(name)), ["2", "1", "1800"]);

    let pro = client.get("/v1/hello", &[PRO]).await;
    assert_eq!(pro.member("ratelimit", "r"), ("pro".into(), 99));

    let anonymous = client.get("/v1/hello", &[]).await;
    assert_eq!(anonymous.member("ratelimit", "r"), ("anonymous".into(), 0));
    assert_eq!(client.get("/v1/hello", &[]).await.status, 429);
    assert_eq!(client.get("/healthz", &[]).await.body, "ok");
}

#[tokio::test]
async fn inventing_keys_and_addresses_gives_no_fresh_budget() {
    let rates = Rates { anonymous: Rate::per_hour(1), ..Rates::default() };
    let mut client = Client::of(axum_server(rates).await).await;
    assert_eq!(client.get("/v1/hello", &[]).await.status, 200);
    for headers in [[("x-api-key", "invented")], [("x-forwarded-for", "198.51.100.1")]] {
        assert_eq!(client.get("/v1/hello", &headers).await.status, 429, "{headers:?}");
    }
}

/// The told wait is true: denied half-way, admitted at its end, and only once.
#[tokio::test]
async fn whoever_waits_as_told_is_admitted() {
    let rates = Rates { free: Rate::every(Duration::from_millis(1_500)), ..Rates::default() };
    let mut client = Client::of(axum_server(rates).await).await;
    assert_eq!(client.get("/v1/hello", &[FREE]).await.status, 200);

    let denied = client.get("/v1/hello", &[FREE]).await;
    assert_eq!((denied.status, denied.header("retry-after")), (429, "2"));
    assert_eq!(denied.member("ratelimit", "t"), ("free".into(), 2));
    let problem = denied.problem();
    assert_eq!(problem["status"], 429);
    assert_eq!(problem["violated-policies"], serde_json::json!(["free"]));
    let wait_ms = problem["retry_after_ms"].as_u64().unwrap();
    assert!((1..=1_500).contains(&wait_ms), "{wait_ms}");

    let half = Duration::from_millis(wait_ms.div_ceil(2));
    tokio::time::sleep(half).await;
    assert_eq!(client.get("/v1/hello", &[FREE]).await.status, 429);
    tokio::time::sleep(half).await;
    assert_eq!(client.get("/v1/hello", &[FREE]).await.status, 200);
    assert_eq!(client.get("/v1/hello", &[FREE]).await.status, 429);
}

#[tokio::test]
async fn a_request_above_the_limit_is_told_that_waiting_does_not_help() {
    let mut client = Client::of(axum_server(Rates::default()).await).await;
    let never = client.get("/v1/report", &[]).await; // costs 20 of at most 5
    assert_eq!((never.status, never.header("retry-after")), (429, ""));
    assert!(never.problem()["detail"].as_str().unwrap().contains("Waiting does not help"));
}

#[tokio::test]
async fn a_grpc_request_is_denied_in_grpc() {
    let rates = Rates { free: Rate::every(Duration::from_secs(60)), ..Rates::default() };
    let mut client = Client::of(axum_server(rates).await).await;
    let grpc = [FREE, ("content-type", "application/grpc+proto")];
    client.get("/v1/hello", &grpc).await;
    let denied = client.get("/v1/hello", &grpc).await;
    assert_eq!((denied.status, denied.body.as_str()), (200, ""));
    assert_eq!((denied.header("grpc-status"), denied.header("content-type")), ("8", "application/grpc"));
    let pushback: u64 = denied.header("grpc-retry-pushback-ms").parse().unwrap();
    assert!((59_000..=60_000).contains(&pushback), "{pushback}");
    assert_eq!(denied.member("ratelimit", "r"), ("free".into(), 0));
}

async fn say_hello(_: Request<Incoming>) -> Result<Response<String>, Infallible> {
    Ok(Response::new("hello".into()))
}

/// A server that has no framework and no extensions: the peer is known where the connection is accepted.
async fn hyper_server(limit: Limit) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let limiter = Arc::new(Limiter::new(limit).unwrap());
    tokio::spawn(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            let key = client_ip().peer_from(move |_| Some(peer.ip()));
            let layer = AdmissionLayer::builder(limiter.clone(), key).name("plain").delay(tokio::time::sleep);
            let layer = layer.build().unwrap();
            let service = layer.layer(service_fn(say_hello));
            let http = hyper::server::conn::http1::Builder::new();
            tokio::spawn(http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)));
        }
    });
    address
}

#[tokio::test]
async fn a_plain_hyper_service_shares_the_limit_between_connections() {
    let server = hyper_server(Limit::gcra(Rate::per_hour(1)).unwrap()).await;
    let first = Client::of(server).await.get("/", &[]).await;
    assert_eq!((first.status, first.body.as_str()), (200, "hello"));
    let second = Client::of(server).await.get("/", &[]).await;
    assert_eq!((second.status, second.problem()["violated-policies"][0].as_str()), (429, Some("plain")));
}

#[tokio::test]
async fn a_shaper_spaces_requests_and_denies_beyond_its_queue() {
    const TURN: Duration = Duration::from_millis(400);
    let shaper = Limit::leaky_bucket(Rate::every(TURN), Duration::from_millis(500)).unwrap();
    let server = hyper_server(shaper).await;
    let (mut a, mut b, mut c) =
        (Client::of(server).await, Client::of(server).await, Client::of(server).await);
    let start = Instant::now();
    let (a, b, c) = tokio::join!(a.get("/", &[]), b.get("/", &[]), c.get("/", &[]));
    let mut statuses = [a.status, b.status, c.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 429]); // at once, after one turn, and one that would wait two turns
    assert!(start.elapsed() >= TURN);
}
