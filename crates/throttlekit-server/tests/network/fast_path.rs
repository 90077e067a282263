//! Checks over HTTP/1.1 that the fast path answers, and connections that it hands to the HTTP library.

use std::net::SocketAddr;
use std::time::Duration;

use tempfile::TempDir;
use throttlekit_server::internals::engine::Backend;
use throttlekit_server::internals::listen::Limits;
use throttlekit_server::{Server, ServerOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use crate::fair::metric;
use crate::resp::{ACCESS, shows};
use crate::session::{is_idle, serve_hung};

/// Tests share two cores with whatever else runs.
const PATIENCE: Duration = Duration::from_secs(30);

const POLICIES: &str = "
version: 1
policies:
  api: {rate: {algorithm: fixed_window, limit: 3, per: 1d}}
";

async fn start(more: &str, limits: Limits) -> (Server, SocketAddr, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let policies = folder.path().join("policies.yaml");
    std::fs::write(&policies, format!("{POLICIES}{more}")).unwrap();
    let mut options = ServerOptions::new(policies, Backend::memory());
    let any = Some(([127, 0, 0, 1], 0).into());
    (options.http, options.metrics, options.limits) = (any, any, limits);
    let server = Server::start(options).await.unwrap();
    let at = server.http().unwrap();
    (server, at, folder)
}

fn check(key: &str, headers: &str) -> String {
    let body = format!(r#"{{"policy":"api","key":"{key}"}}"#);
    let length = body.len();
    format!(
        "POST /v1/check?status=429 HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n{headers}\
         content-length: {length}\r\n\r\n{body}"
    )
}

async fn connect(at: SocketAddr) -> TcpStream {
    let tcp = TcpStream::connect(at).await.unwrap();
    tcp.set_nodelay(true).unwrap();
    tcp
}

/// Reads responses with this many bodies, each of which ends in a brace.
async fn responses(tcp: &mut TcpStream, count: usize) -> String {
    let mut text = Vec::new();
    let reading = async {
        while text.windows(2).filter(|pair| pair == b"}}").count() < count {
            assert!(tcp.read_buf(&mut text).await.unwrap() > 0, "closed after {text:?}");
        }
    };
    timeout(PATIENCE, reading).await.expect("a response");
    String::from_utf8(text).unwrap()
}

/// Reads until the server closes the connection.
async fn rest(tcp: &mut TcpStream) -> String {
    let mut text = Vec::new();
    timeout(PATIENCE, tcp.read_to_end(&mut text)).await.expect("closed").unwrap();
    String::from_utf8(text).unwrap()
}

/// Reads the status of one response.
async fn first_status(tcp: &mut TcpStream) -> String {
    let mut head = [0; 12];
    timeout(PATIENCE, tcp.read_exact(&mut head)).await.expect("a response").unwrap();
    String::from_utf8_lossy(&head[9..]).into_owned()
}

/// Returns the number of requests that the fast path has answered.
async fn answered_fast(server: &Server) -> f64 {
    metric(server, "throttlekit_requests_fast_path_total{listener=\"http\"}").await
}

fn statuses(responses: &str) -> Vec<&str> {
    responses.match_indices("HTTP/1.1 ").map(|(at, _)| &responses[at + 9..at + 12]).collect()
}

#[tokio::test]
async fn pipelined_checks_are_answered_in_order_and_the_limit_holds() {
    let (server, at, _folder) = start("", Limits::default()).await;
    let mut tcp = connect(at).await;
    tcp.write_all(check("alice", "").repeat(4).as_bytes()).await.unwrap();
    let answers = responses(&mut tcp, 4).await;
    assert_eq!(statuses(&answers), ["200", "200", "200", "429"]);
    let remaining: Vec<_> =
        answers.match_indices("\"remaining\":").map(|(at, it)| &answers[at + it.len()..][..1]).collect();
    assert_eq!(remaining, ["2", "1", "0", "0"]);
    assert_eq!(answers.matches("retry-after: ").count(), 1);
    assert_eq!(answered_fast(&server).await, 4.0);
    server.stop().await;
}

#[tokio::test]
async fn a_connection_goes_on_with_the_library_after_a_request_that_is_not_plain() {
    let (server, at, _folder) = start("", Limits::default()).await;
    let mut tcp = connect(at).await;
    let chunked = "POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n\
                   transfer-encoding: chunked\r\n\r\n1e\r\n{\"policy\":\"api\",\"key\":\"alice\"}\r\n0\r\n\r\n";
    tcp.write_all(format!("{}{chunked}{}", check("alice", ""), check("alice", "")).as_bytes()).await.unwrap();
    let answers = responses(&mut tcp, 3).await;
    assert_eq!(statuses(&answers), ["200", "200", "200"]);
    tcp.write_all(check("alice", "connection: close\r\n").as_bytes()).await.unwrap();
    assert_eq!(statuses(&rest(&mut tcp).await), ["429"]);
    assert_eq!(answered_fast(&server).await, 1.0);
    server.stop().await;
}

/// A proxy that has begun HTTP/1.1 on a connection does not expect another protocol on it.
#[tokio::test]
async fn http2_does_not_begin_within_a_connection() {
    let (server, at, _folder) = start("", Limits::default()).await;
    let mut tcp = connect(at).await;
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0";
    tcp.write_all(format!("{}{preface}", check("alice", "")).as_bytes()).await.unwrap();
    let text = rest(&mut tcp).await;
    assert_eq!(statuses(&text)[0], "200");
    assert!(!text.contains('\0'), "a frame of HTTP/2: {text:?}");
    server.stop().await;
}

#[tokio::test]
async fn checks_are_the_same_wherever_their_bytes_are_split() {
    let (server, at, _folder) = start("", Limits::default()).await;
    let whole = check("alice", "");
    let body = whole.find("\r\n\r\n").unwrap() + 4;
    for (number, split) in [3, 20, body - 1, body, body + 5].into_iter().enumerate() {
        let (mut tcp, whole) = (connect(at).await, check(&format!("alice{number}"), ""));
        for part in [&whole[..split], &whole[split..]] {
            tcp.write_all(part.as_bytes()).await.unwrap();
            sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(statuses(&responses(&mut tcp, 1).await), ["200"], "split at {split}");
    }
    // A body that comes later than its head is left to the library, and so is a head in many parts.
    assert_eq!(answered_fast(&server).await, 3.0);
    let mut tcp = connect(at).await;
    for byte in check("bob", "").as_bytes() {
        tcp.write_all(&[*byte]).await.unwrap();
        sleep(Duration::from_micros(200)).await;
    }
    assert_eq!(statuses(&responses(&mut tcp, 1).await), ["200"]);
    assert_eq!(answered_fast(&server).await, 3.0);
    server.stop().await;
}

#[tokio::test]
async fn tokens_decide_what_a_caller_may_check() {
    let (server, at, _folder) = start(ACCESS, Limits::default()).await;
    let table = [
        ("acme/1", "authorization: Bearer foo\r\n", "200"),
        ("acme/1", "Authorization: bearer foo\r\n", "200"),
        ("other", "authorization: Bearer foo\r\n", "403"),
        ("acme/1", "authorization: Bearer bar\r\n", "401"),
        ("acme/1", "authorization: foo\r\n", "401"),
        ("acme/1", "", "401"),
    ];
    for (key, headers, status) in table {
        let mut tcp = connect(at).await;
        tcp.write_all(check(key, headers).as_bytes()).await.unwrap();
        assert_eq!(first_status(&mut tcp).await, status, "{key} {headers}");
    }
    // Each request of a connection is identified by its own token.
    let mut tcp = connect(at).await;
    tcp.write_all(check("acme/2", "authorization: Bearer foo\r\n").as_bytes()).await.unwrap();
    assert_eq!(statuses(&responses(&mut tcp, 1).await), ["200"]);
    tcp.write_all(check("acme/2", "authorization: Bearer bar\r\n").as_bytes()).await.unwrap();
    assert_eq!(first_status(&mut tcp).await, "401");
    server.stop().await;
}

#[tokio::test]
async fn slow_idle_and_stalled_clients_are_closed() {
    let short = Duration::from_millis(300);
    let limits = Limits {
        handshake_max: short * 20,
        header_read_max: short,
        stall_max: short,
        idle_max: short * 4,
        ..Limits::default()
    };
    let (server, at, _folder) = start("", limits).await;
    let mut slow = connect(at).await;
    slow.write_all(&check("alice", "").as_bytes()[..60]).await.unwrap();
    assert_eq!(rest(&mut slow).await, "");
    let mut idle = connect(at).await;
    idle.write_all(check("alice", "").as_bytes()).await.unwrap();
    assert_eq!(statuses(&rest(&mut idle).await), ["200"]);
    // A client with little space for what it does not read.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let (mut stalled, flood) = (socket.connect(at).await.unwrap(), check("alice", "").repeat(20));
    let flooding = async { while stalled.write_all(flood.as_bytes()).await.is_ok() {} };
    timeout(PATIENCE, flooding).await.expect("closed, though it reads nothing");
    for reason in ["slow_headers", "idle", "stalled"] {
        shows(&server, &format!("connections_closed_total{{listener=\"http\",reason=\"{reason}\"}} 1")).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_leaves_while_its_check_waits_leaves_no_turn_behind() {
    let (server, _file, redis) = serve_hung(|options| {
        (options.limits.requests_max, options.limits.request_max) = (2, PATIENCE * 2);
    })
    .await;
    let at = server.http().unwrap();
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut tcp = connect(at).await;
        tcp.write_all(check("alice", "").as_bytes()).await.unwrap();
        clients.push(tcp);
    }
    let busy = async {
        while metric(&server, "throttlekit_deciding").await < 2.0
            || metric(&server, "throttlekit_waiting").await < 2.0
        {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, busy).await.expect("two are decided, and two wait");
    assert_eq!(answered_fast(&server).await, 4.0);
    drop(clients);
    is_idle(&server).await;
    drop(redis);
    server.stop().await;
}

#[tokio::test]
async fn a_stop_waits_for_the_check_in_flight_and_closes_after_it() {
    let (server, _file, redis) =
        serve_hung(|options| options.limits.request_max = Duration::from_secs(1)).await;
    let mut tcp = connect(server.http().unwrap()).await;
    tcp.write_all(check("alice", "").as_bytes()).await.unwrap();
    let deciding = async {
        while metric(&server, "throttlekit_deciding").await < 1.0 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, deciding).await.expect("it is decided");
    let (_, text) = tokio::join!(server.stop(), rest(&mut tcp));
    assert_eq!(statuses(&text), ["504"], "{text}");
    assert!(text.contains("\r\nconnection: close\r\n"), "{text}");
    drop(redis);
}

#[tokio::test]
async fn a_stop_closes_idle_connections() {
    let (server, at, _folder) = start("", Limits::default()).await;
    let mut idle = connect(at).await;
    idle.write_all(check("alice", "").as_bytes()).await.unwrap();
    responses(&mut idle, 1).await;
    timeout(PATIENCE, server.stop()).await.expect("the idle do not hold it up");
    assert_eq!(rest(&mut idle).await, "");
}
