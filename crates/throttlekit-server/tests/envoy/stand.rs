//! Envoy, a service behind it and the server beside it, on ports of their own.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::extract::Request;
use axum::response::IntoResponse;
use axum::{Json, Router};
use serde_json::{Value, json};
use throttlekit::clock::{Clock, WallClock};
use throttlekit_server::internals::engine::{Backend, PolicyCall};
use throttlekit_server::{Server, ServerOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// Maximum time of any step.
const WAIT_MAX: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub(crate) struct Stand {
    envoy: Child,
    listener: SocketAddr,
    folder: PathBuf,
    policies: PathBuf,
    served: Arc<AtomicU64>,
    /// Counts outlive a server, as they would on a store.
    backend: Backend,
    server: Option<Running>,
    server_at: SocketAddr,
}

/// A server on a runtime of its own, so that it can be killed with all its connections.
struct Running {
    runtime: Runtime,
    server: Server,
}

pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: String,
}

impl Stand {
    /// Everything up, with the files in `ops/envoy`.
    pub(crate) async fn start(name: &str, denies_when_it_fails: bool) -> Self {
        let denies = format!("failure_mode_deny: {denies_when_it_fails}");
        Self::of("envoy.yaml", name, ("failure_mode_deny: false", &denies)).await
    }

    /// The same with another file, and another text in it.
    pub(crate) async fn of(file: &str, name: &str, change: (&str, &str)) -> Self {
        let text = fs::read_to_string(ops(file)).unwrap();
        assert!(text.contains(change.0), "the file has lost `{}`", change.0);
        let policies = fs::read_to_string(ops("policies.yaml")).unwrap();
        Self::with(name, &text.replace(change.0, change.1), &policies).await
    }

    /// The same with the text of a configuration and of a policy file.
    pub(crate) async fn with(name: &str, envoy_yaml: &str, policies_yaml: &str) -> Self {
        not_across_the_hour().await;
        let folder = std::env::temp_dir().join(format!("throttlekit-envoy-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let served = Arc::new(AtomicU64::new(0));
        let service = serve(served.clone()).await;
        let (listener, server_at) = (free_port().await, free_port().await);
        let places = [
            ("port_value: 10000".to_owned(), format!("port_value: {}", listener.port())),
            ("port_value: 9000".to_owned(), format!("port_value: {}", service.port())),
            ("port_value: 8081".to_owned(), format!("port_value: {}", server_at.port())),
            ("/dev/stdout".to_owned(), folder.join("access.log").display().to_string()),
            // A busy machine is no outage.
            ("timeout: 0.3s".to_owned(), "timeout: 10s".to_owned()),
        ];
        let mut text = envoy_yaml.to_owned();
        for (from, to) in places {
            assert!(text.contains(&from), "the file has lost `{from}`");
            text = text.replace(&from, &to);
        }
        fs::write(folder.join("envoy.yaml"), text).unwrap();
        let policies = folder.join("policies.yaml");
        fs::write(&policies, policies_yaml).unwrap();
        let mut stand = Self {
            envoy: envoy(&folder),
            listener,
            folder,
            policies,
            served,
            backend: Backend::memory(),
            server: None,
            server_at,
        };
        stand.start_server().await;
        stand.until("Envoy listens", async |stand| TcpStream::connect(stand.listener).await.is_ok()).await;
        stand
    }

    pub(crate) async fn start_server(&mut self) {
        let runtime = Runtime::new().unwrap();
        let options = ServerOptions {
            grpc: self.server_at,
            ..ServerOptions::new(self.policies.clone(), self.backend.clone())
        };
        let server = runtime.spawn(Server::start(options)).await.unwrap().unwrap();
        self.server = Some(Running { runtime, server });
    }

    /// Ends the server and its connections, without a word to anyone.
    pub(crate) fn kill_server(&mut self) {
        self.server.take().unwrap().runtime.shutdown_background();
    }

    /// Returns the number of requests that have reached the service.
    pub(crate) fn served(&self) -> u64 {
        self.served.load(Relaxed)
    }

    pub(crate) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        fetch(self.listener, &written(path, headers)).await
    }

    /// The same with a header of any bytes.
    pub(crate) async fn get_with(&self, headers: &[(&str, &str)], name: &str, value: &[u8]) -> Reply {
        let mut request = written("/", headers);
        request.truncate(request.len() - 2);
        request.extend([name.as_bytes(), b": ", value, b"\r\n\r\n"].concat());
        fetch(self.listener, &request).await
    }

    /// The status of a request with these headers as they are. Nothing if Envoy closes the connection instead.
    pub(crate) async fn status_of(&self, headers: &[u8]) -> Option<u16> {
        let head = b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n";
        let fetching = async {
            let mut stream = TcpStream::connect(self.listener).await.ok()?;
            // It may answer before it has read everything.
            let _ = stream.write_all(&[head, headers, b"\r\n"].concat()).await;
            // To its end it would take a second where Envoy refuses: it waits for us to read why.
            let mut answer = *b"HTTP/1.1 000";
            stream.read_exact(&mut answer).await.ok()?;
            std::str::from_utf8(&answer[9..]).ok()?.parse().ok()
        };
        tokio::time::timeout(WAIT_MAX, fetching).await.expect("Envoy answers in time")
    }

    pub(crate) async fn get_at_once(&self, times: usize, path: &str, headers: &[(&str, &str)]) -> Vec<Reply> {
        let (listener, request) = (self.listener, written(path, headers));
        let asks = (0..times).map(|_| {
            let request = request.clone();
            tokio::spawn(async move { fetch(listener, &request).await })
        });
        let mut replies = Vec::new();
        for ask in asks.collect::<Vec<_>>() {
            replies.push(ask.await.unwrap());
        }
        replies
    }

    /// The first line of the access log that is the one looked for. Envoy writes it late.
    pub(crate) async fn logged(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let log = self.folder.join("access.log");
        let find = || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let mut lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
            lines.find(|line| wanted(line))
        };
        self.until("the line is in the log", async |_| find().is_some()).await;
        find().unwrap()
    }

    /// Waits until so many tokens have been counted, or the budget has run out.
    pub(crate) async fn until_debited(&self, policy: &str, key: &str, tokens: u64) {
        let engine = self.server.as_ref().unwrap().server.engine();
        let left = async || {
            let ask = PolicyCall { policy, key: key.as_bytes(), others: &[], cost: 1 };
            engine.peek(ask).await.unwrap().decision
        };
        self.until("the tokens are counted", async |_| {
            let decision = left().await;
            decision.limit.saturating_sub(tokens) == decision.remaining
        })
        .await;
    }

    /// Waits until Envoy has found the server again: it tells what is left to somebody else then.
    pub(crate) async fn until_asked(&self) {
        self.until("Envoy asks again", async |stand| {
            stand.get("/", &[("x-user", "scout")]).await.headers.contains("x-ratelimit-remaining")
        })
        .await;
    }

    async fn until(&self, what: &str, holds: impl AsyncFn(&Self) -> bool) {
        let waits = async {
            while !holds(self).await {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        if tokio::time::timeout(WAIT_MAX, waits).await.is_err() {
            let said = fs::read_to_string(self.folder.join("envoy.log")).unwrap_or_default();
            panic!("waited in vain until {what}\n{said}");
        }
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        let _ = self.envoy.kill();
        let _ = self.envoy.wait();
        if self.server.is_some() {
            self.kill_server();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> String {
        let value = |line: &str| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        };
        let mut values = self.headers.lines().filter_map(value);
        let found = values.next().unwrap_or_else(|| panic!("no {name} in\n{}", self.headers));
        assert_eq!(values.next(), None, "{name} stands there twice");
        found
    }
}

fn envoy(folder: &Path) -> Child {
    let binary = std::env::var("THROTTLEKIT_ENVOY").expect(
        "THROTTLEKIT_ENVOY is not set: this test needs a real Envoy\n  eval \"$(cargo xtask services up --only envoy)\"",
    );
    let log = File::create(folder.join("envoy.log")).unwrap();
    let mut command = Command::new(&binary);
    command.args(["--disable-hot-restart", "--concurrency", "2", "--log-level", "warning"]);
    command.args(["--file-flush-interval-msec", "20"]);
    command.arg("-c").arg(folder.join("envoy.yaml"));
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    command.spawn().unwrap_or_else(|error| panic!("{binary}: {error}"))
}

/// A service that counts requests, and reports the tokens of its responses: in a header, or as the usage of a model.
async fn serve(served: Arc<AtomicU64>) -> SocketAddr {
    let answer = move |request: Request| {
        served.fetch_add(1, Relaxed);
        let header = |name: &str| request.headers().get(name).cloned();
        let (tokens, usage) = (header("x-answer-tokens"), header("x-answer-usage"));
        async move {
            let usage: Option<u64> = usage.and_then(|tokens| tokens.to_str().ok()?.parse().ok());
            match usage {
                Some(tokens) => Json(json!({"usage": {"total_tokens": tokens}})).into_response(),
                None => (tokens.map(|tokens| [("x-tokens", tokens)]), "hello").into_response(),
            }
        }
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    at
}

async fn free_port() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap()
}

pub(crate) fn ops(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops/envoy").join(name)
}

fn written(path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{lines}\r\n").into_bytes()
}

async fn fetch(at: SocketAddr, request: &[u8]) -> Reply {
    let fetching = async {
        let mut stream = TcpStream::connect(at).await?;
        stream.write_all(request).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok::<_, std::io::Error>(text)
    };
    let text = tokio::time::timeout(WAIT_MAX, fetching).await.expect("Envoy answers in time").unwrap();
    let (head, _) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no HTTP: {text}"));
    let (first, headers) = head.split_once("\r\n").unwrap_or((head, ""));
    let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
    Reply { status: status.unwrap_or_else(|| panic!("no status: {first}")), headers: headers.to_owned() }
}

/// The windows of the policies are hours, and what is counted before one ends is gone after it.
async fn not_across_the_hour() {
    let (hour, room) = (3_600, 60);
    let into = WallClock.now().as_millis_ceil() / 1_000 % hour;
    if into > hour - room {
        tokio::time::sleep(Duration::from_secs(hour - into + 1)).await;
    }
}
