//! The RESP listener, with a client that writes its own bytes.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use tempfile::TempDir;
use throttlekit_server::internals::engine::Backend;
use throttlekit_server::internals::listen::Limits;
use throttlekit_server::{Server, ServerOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::client::Client;

/// Tests share two cores with whatever else runs.
const PATIENCE: Duration = Duration::from_secs(30);

const POLICIES: &str = "
version: 1
policies:
  api: {rate: {algorithm: fixed_window, limit: 10, per: 1d}}
  big: {rate: {algorithm: fixed_window, limit: 1000000, per: 1d}}
";

/// The token of `billing` is `foo`.
pub(crate) const ACCESS: &str = "
access:
  principals:
    billing:
      token_sha256: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
      allow: [{endpoints: [check], policies: [api], keys: acme/}]
";

struct Running {
    server: Server,
    at: SocketAddr,
    folder: TempDir,
}

async fn start(more: &str, limits: Limits) -> Running {
    let folder = tempfile::tempdir().unwrap();
    let policies = folder.path().join("policies.yaml");
    std::fs::write(&policies, format!("{POLICIES}{more}")).unwrap();
    let mut options = ServerOptions::new(policies, Backend::memory());
    let any = Some(([127, 0, 0, 1], 0).into());
    (options.resp, options.metrics, options.limits) = (any, any, limits);
    let server = Server::start(options).await.unwrap();
    Running { at: server.resp().unwrap(), server, folder }
}

struct Resp(TcpStream);

impl Resp {
    async fn connect(at: SocketAddr) -> Self {
        Self(TcpStream::connect(at).await.unwrap())
    }

    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Reads replies with this many line ends.
    async fn lines(&mut self, count: usize) -> String {
        let mut text = Vec::new();
        let reading = async {
            while text.iter().filter(|byte| **byte == b'\n').count() < count {
                assert!(self.0.read_buf(&mut text).await.unwrap() > 0, "closed after {text:?}");
            }
        };
        timeout(PATIENCE, reading).await.expect("a reply");
        String::from_utf8(text).unwrap().replace("\r\n", " ")
    }

    async fn call(&mut self, line: &str, lines: usize) -> String {
        self.send(command(line)).await;
        self.lines(lines).await
    }

    /// Reads until the server closes the connection.
    async fn rest(&mut self) -> String {
        let mut text = Vec::new();
        timeout(PATIENCE, self.0.read_to_end(&mut text)).await.expect("closed").unwrap();
        String::from_utf8(text).unwrap().replace("\r\n", " ")
    }
}

/// Encodes words as an array of bulk strings.
fn command(line: &str) -> String {
    let words: Vec<_> = line.split(' ').collect();
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        write!(text, "${}\r\n{word}\r\n", word.len()).unwrap();
    }
    text
}

/// Returns the five numbers of a decision, without the seconds until the reset.
fn decision(reply: &str) -> String {
    let shown: Vec<_> = reply.split(' ').take(5).collect();
    shown.join(" ")
}

#[tokio::test]
async fn the_limit_of_the_policy_holds_whatever_limits_a_command_names() {
    let running = start("", Limits::default()).await;
    let mut client = Resp::connect(running.at).await;
    for left in (0..10).rev() {
        let name = if left % 2 == 0 { "CL.THROTTLE" } else { "throttle" };
        let reply = client.call(&format!("{name} api:alice 1000 2000 60"), 6).await;
        assert_eq!(decision(&reply), format!("*5 :0 :10 :{left} :-1"));
    }
    let denied = client.call("CL.THROTTLE api:alice 1000 2000 60 1", 6).await;
    assert!(denied.starts_with("*5 :1 :10 :0 :"), "{denied}");
    let numbers: Vec<i64> =
        denied.split_whitespace().skip(4).map(|number| number[1..].parse().unwrap()).collect();
    assert!((1..=86_400).contains(&numbers[0]) && (1..=86_400).contains(&numbers[1]), "{denied}");
    // Other keys and larger costs, in the short form.
    assert_eq!(decision(&client.call("CL.THROTTLE api:bob 4", 6).await), "*5 :0 :10 :6 :-1");
    assert!(client.call("CL.THROTTLE api:bob 11", 6).await.starts_with("*5 :1 :10 :6 :86400"));
    // The same counts as over gRPC.
    let grpc = Client::connect(running.server.grpc()).await.unwrap();
    assert_eq!(grpc.check("api", "bob").await.unwrap().decision.unwrap().remaining, 5);
    running.server.stop().await;
}

#[tokio::test]
async fn a_hundred_pipelined_commands_are_answered_in_order() {
    let running = start("", Limits::default()).await;
    let mut client = Resp::connect(running.at).await;
    for round in 0..20 {
        client.send(command("CL.THROTTLE big:k 15 30 60").repeat(100)).await;
        let replies = client.lines(600).await;
        for (index, reply) in replies.split_inclusive("*5 ").skip(1).enumerate() {
            let left = 1_000_000 - 100 * round - index - 1;
            assert!(reply.starts_with(&format!(":0 :1000000 :{left} :-1 :")), "{index}: {reply}");
        }
    }
    // Small commands with large replies are sent in parts.
    client.send("X\r\n".repeat(2_000)).await;
    let replies = client.lines(2_000).await;
    assert_eq!(replies.matches("-ERR unknown command 'X'").count(), 2_000);
    running.server.stop().await;
}

#[tokio::test]
async fn tokens_are_those_of_the_access_list() {
    let running = start(ACCESS, Limits::default()).await;
    let mut client = Resp::connect(running.at).await;
    let check = "CL.THROTTLE api:acme/1";
    assert!(client.call(check, 1).await.starts_with("-NOAUTH missing token"));
    assert_eq!(client.call("PING", 1).await, "+PONG ");
    for wrong in ["AUTH bar", "AUTH billing bar", "AUTH sales foo", "HELLO 2 AUTH default bar"] {
        assert!(client.call(wrong, 1).await.starts_with("-WRONGPASS unknown token"), "{wrong}");
    }
    assert!(client.call(check, 1).await.starts_with("-NOAUTH"), "a failure changes nothing");
    for right in ["AUTH foo", "AUTH billing foo", "AUTH default foo"] {
        let mut client = Resp::connect(running.at).await;
        // In one write: the command after it has the rights of the token.
        client.send(command(right) + &command(check)).await;
        assert!(client.lines(7).await.starts_with("+OK *5 :0 :10 "), "{right}");
        assert!(client.call("AUTH bar", 1).await.starts_with("-WRONGPASS"));
        assert!(client.call(check, 6).await.starts_with("*5 :0"), "a failure changes nothing");
    }
    assert_eq!(client.call("AUTH foo", 1).await, "+OK ");
    let forbidden = "-NOPERM `billing` may not use Check for this key of policy";
    for line in ["CL.THROTTLE api:other/1", "CL.THROTTLE big:acme/1"] {
        assert!(client.call(line, 1).await.starts_with(forbidden), "{line}");
    }
    running.server.stop().await;
}

#[tokio::test]
async fn a_revoked_token_is_refused_on_connections_that_are_open() {
    let running = start(ACCESS, Limits::default()).await;
    let mut client = Resp::connect(running.at).await;
    client.send(command("AUTH foo") + &command("CL.THROTTLE api:acme/1")).await;
    assert!(client.lines(7).await.starts_with("+OK *5 :0"));
    let digest = ACCESS.replace("2c26b46b", "00000000");
    std::fs::write(running.folder.path().join("policies.yaml"), format!("{POLICIES}{digest}")).unwrap();
    running.server.look_now().await;
    assert!(client.call("CL.THROTTLE api:acme/1", 1).await.starts_with("-WRONGPASS unknown token"));
    running.server.stop().await;
}

#[tokio::test]
async fn clients_of_redis_find_what_they_need_to_connect() {
    let running = start("", Limits::default()).await;
    let mut client = Resp::connect(running.at).await;
    let table = [
        ("PING", 1, "+PONG "),
        ("ping hello", 2, "$5 hello "),
        ("CLIENT SETINFO LIB-NAME redis-py", 1, "+OK "),
        ("client setname me", 1, "+OK "),
        ("COMMAND DOCS", 1, "*0 "),
        ("AUTH anything", 1, "+OK "),
        ("HELLO 3", 1, "-NOPROTO unsupported protocol version"),
        ("HELLO 2 AUTH default x SETNAME me", 26, "*14 $6 server $11 throttlekit $7 version"),
        ("HELLO", 26, "*14 $6 server $11 throttlekit"),
        ("CLIENT LIST", 1, "-ERR wrong arguments of 'CLIENT'"),
        ("GET key", 1, "-ERR unknown command 'GET': expected CL.THROTTLE"),
        ("CL.THROTTLE nope:k", 1, "-ERR no policy `nope` is loaded: write the key as policy:key"),
        ("CL.THROTTLE alice 1 2 3", 1, "-ERR invalid key: expected policy:key"),
        ("CL.THROTTLE api:k a 2 3", 1, "-ERR invalid max_burst"),
    ];
    for (line, lines, reply) in table {
        let got = client.call(line, lines).await;
        assert!(got.starts_with(reply), "{line}: {got}");
    }
    client.send("\r\nPING\r\n").await;
    assert_eq!(client.lines(1).await, "+PONG ", "a line is a command, and an empty one is none");
    client.send(command("QUIT") + &command("PING")).await;
    assert_eq!(client.rest().await, "+OK ");
    running.server.stop().await;
}

#[tokio::test]
async fn a_client_that_breaks_the_protocol_is_told_and_closed() {
    let running = start("", Limits::default()).await;
    let oversized = command(&format!("CL.THROTTLE api:{}", "x".repeat(9_000)));
    let endless = "x".repeat(8 << 10);
    let table = [
        (oversized.as_str(), "command too long: at most 8192 bytes"),
        (&endless, "command too long"),
        ("*1000000\r\n", "too many arguments"),
        ("*1\r\n$-1\r\n", "invalid length"),
        ("*1\r\n*1\r\n", "expected '$', got '*'"),
    ];
    for (bytes, why) in table {
        let mut client = Resp::connect(running.at).await;
        client.send(command("PING") + bytes).await;
        let rest = client.rest().await;
        assert!(rest.starts_with("+PONG -ERR Protocol error: ") && rest.contains(why), "{rest}");
    }
    let mut browser = Resp::connect(running.at).await;
    browser.send("POST / HTTP/1.1\r\nHost: a\r\n\r\nCL.THROTTLE api:k\r\n").await;
    assert_eq!(browser.rest().await, "-ERR this is not HTTP: use the HTTP listener ");
    // A key that the engine rejects is no violation.
    let mut client = Resp::connect(running.at).await;
    let long = format!("CL.THROTTLE api:{}", "x".repeat(1_025));
    assert!(client.call(&long, 1).await.starts_with("-ERR a key is longer than 1024 bytes"));
    assert_eq!(client.call("PING", 1).await, "+PONG ");
    drop(browser);
    shows(&running.server, "connections_closed_total{listener=\"resp\",reason=\"goaway\"} 6").await;
    running.server.stop().await;
}

#[tokio::test]
async fn commands_are_the_same_wherever_their_bytes_are_split() {
    let running = start("", Limits::default()).await;
    let mut client = Resp::connect(running.at).await;
    client.0.set_nodelay(true).unwrap();
    for part in command("CL.THROTTLE api:alice 15 30 60").as_bytes().chunks(7) {
        client.send(part).await;
        sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(decision(&client.lines(6).await), "*5 :0 :10 :9 :-1");
    running.server.stop().await;
}

#[tokio::test]
async fn slow_silent_idle_and_stalled_clients_are_closed() {
    let short = Duration::from_millis(300);
    let limits = Limits {
        handshake_max: short,
        header_read_max: short,
        stall_max: short,
        idle_max: short * 4,
        ..Limits::default()
    };
    let running = start("", limits).await;
    let mut silent = Resp::connect(running.at).await;
    assert_eq!(silent.rest().await, "");
    let mut slow = Resp::connect(running.at).await;
    slow.send("*2\r\n$11\r\nCL.THR").await;
    assert_eq!(slow.rest().await, "");
    let mut idle = Resp::connect(running.at).await;
    assert_eq!(idle.call("PING", 1).await, "+PONG ");
    assert_eq!(idle.rest().await, "");
    let mut stalled = Resp::connect(running.at).await;
    let flood = command(&format!("PING {}", "x".repeat(4_000))).repeat(10);
    let flooding = async { while stalled.0.write_all(flood.as_bytes()).await.is_ok() {} };
    timeout(PATIENCE, flooding).await.expect("closed, though it reads nothing");
    for reason in ["handshake_timeout", "slow_headers", "idle", "stalled"] {
        let line = format!("connections_closed_total{{listener=\"resp\",reason=\"{reason}\"}} 1");
        shows(&running.server, &line).await;
    }
    running.server.stop().await;
}

#[tokio::test]
async fn a_stop_answers_what_has_arrived_and_closes() {
    let running = start("", Limits::default()).await;
    let (mut idle, mut busy) = (Resp::connect(running.at).await, Resp::connect(running.at).await);
    assert_eq!(idle.call("PING", 1).await, "+PONG ");
    busy.send(command("CL.THROTTLE big:k").repeat(100)).await;
    sleep(Duration::from_millis(100)).await;
    timeout(PATIENCE, running.server.stop()).await.expect("the idle do not hold it up");
    assert_eq!(idle.rest().await, "");
    let replies = busy.rest().await;
    assert_eq!(replies.matches("*5 :0 :1000000").count(), 100, "{replies}");
    assert!(TcpStream::connect(running.at).await.is_err());
}

#[tokio::test]
async fn commands_decisions_and_denials_are_counted() {
    let running = start(ACCESS, Limits::default()).await;
    let mut client = Resp::connect(running.at).await;
    client.send(command("AUTH foo") + &command("CL.THROTTLE api:acme/1 5").repeat(3)).await;
    client.lines(19).await;
    client.call("AUTH bar", 1).await;
    let page = metrics(&running.server).await;
    for line in [
        "throttlekit_requests_total{listener=\"resp\"} 5",
        "throttlekit_connections_open{listener=\"resp\"} 1",
        "throttlekit_principal_requests_total{principal=\"billing\"} 3",
        "throttlekit_principal_decisions_total{principal=\"billing\"} 3",
        "throttlekit_principal_denied_total{principal=\"billing\"} 1",
        "throttlekit_callers_refused_total{reason=\"wrong_token\"} 1",
        "throttlekit_deciding 0",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    running.server.stop().await;
}

/// Waits until the metrics have this line: a connection is counted a moment after its client sees the end.
pub(crate) async fn shows(server: &Server, line: &str) {
    let looks = async {
        while !metrics(server).await.contains(line) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, looks).await.unwrap_or_else(|_| panic!("no `{line}`"));
}

async fn metrics(server: &Server) -> String {
    let mut tcp = TcpStream::connect(server.metrics().unwrap()).await.unwrap();
    tcp.write_all(b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut page = String::new();
    tcp.read_to_string(&mut page).await.unwrap();
    page
}
