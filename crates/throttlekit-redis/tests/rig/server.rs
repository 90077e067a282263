//! One server of the Redis family, with its own port and directory.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, RedisError, Value};

use super::{now, until};

/// Below the range of outgoing connections; a cluster's bus is 10,000 above.
const PORT_FIRST: u16 = 11_000;
const PORT_COUNT: u16 = 9_000;
const START_MAX: Duration = Duration::from_secs(10);
const TRIES: usize = 20;
/// Nothing on disk, no delays.
const FIXED: [&str; 10] = [
    "--bind",
    "127.0.0.1",
    "--save",
    "",
    "--appendonly",
    "no",
    "--enable-debug-command",
    "yes",
    "--repl-diskless-sync-delay",
    "0",
];

pub(crate) type Connection = MultiplexedConnection;

pub(crate) struct Server {
    pub(crate) port: u16,
    program: String,
    options: Vec<String>,
    env: Vec<(&'static str, String)>,
    folder: PathBuf,
    /// The configuration file, if it is a Sentinel.
    sentinel: Option<PathBuf>,
    child: Option<Child>,
}

impl Server {
    /// Starts a Redis server and waits until it responds.
    pub(crate) async fn start(options: &[&str]) -> Self {
        Self::start_program("redis-server", options, vec![]).await
    }

    pub(crate) async fn start_program(
        program: &str,
        options: &[&str],
        env: Vec<(&'static str, String)>,
    ) -> Self {
        let mut server = Self::absent(options);
        (server.program, server.env) = (program.to_owned(), env);
        for _ in 0..TRIES {
            if server.try_up().await {
                return server;
            }
            server.port = free_port();
        }
        panic!("{program} does not start: see {}", server.folder.display());
    }

    /// Creates a Redis server that is configured and not started.
    pub(crate) fn absent(options: &[&str]) -> Self {
        let port = free_port();
        let folder = std::env::temp_dir().join(format!("throttlekit-faults-{}-{port}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let options = options.iter().map(|&option| option.to_owned()).collect();
        Self {
            port,
            program: "redis-server".into(),
            options,
            env: vec![],
            folder,
            sentinel: None,
            child: None,
        }
    }

    /// Starts it and returns when it responds.
    pub(crate) async fn up(&mut self) {
        assert!(self.try_up().await, "{} does not start on port {}", self.program, self.port);
    }

    /// Starts it without waiting.
    pub(crate) fn spawn(&mut self) {
        let log = fs::File::create(self.folder.join("log")).unwrap();
        let mut command = Command::new(&self.program);
        match &self.sentinel {
            Some(file) => command.arg(file).arg("--sentinel"),
            None => command.args(FIXED).args(["--port", &self.port.to_string(), "--dir"]).arg(&self.folder),
        };
        command.args(&self.options).envs(self.env.iter().cloned());
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap_or_else(|error| {
            panic!("cannot start {}: {error}; `cargo xtask services up` installs it", self.program)
        });
        self.child = Some(child);
    }

    /// Makes it a Sentinel, configured by this file.
    pub(crate) fn be_sentinel(&mut self, file: &Path) {
        self.sentinel = Some(file.to_owned());
    }

    /// Returns `true` if it started to respond, and not another server on its port.
    async fn try_up(&mut self) -> bool {
        self.spawn();
        let begun = now();
        while now().since(begun) < START_MAX {
            if self.child.as_mut().is_none_or(|child| child.try_wait().unwrap().is_some()) {
                return false;
            }
            if self.try_ask::<String>("PING").await.is_ok() {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        false
    }

    pub(crate) fn folder(&self) -> &PathBuf {
        &self.folder
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Opens a direct connection of the test.
    pub(crate) async fn connection(&self) -> Result<Connection, RedisError> {
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        Client::open(self.url())?.get_multiplexed_async_connection_with_config(&config).await
    }

    /// Sends a command directly; words are separated by spaces.
    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &str) -> T {
        self.try_ask(command).await.unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    pub(crate) async fn try_ask<T: FromRedisValue>(&self, command: &str) -> Result<T, RedisError> {
        ask(&mut self.connection().await?, command).await
    }

    /// Kills it with `kill -9` and waits until it is dead.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Stops it (`STOP`), or continues it (`CONT`).
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.as_ref().expect("it runs").id();
        let done = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status();
        assert!(done.unwrap().success());
    }

    /// Waits until a write by hand succeeds.
    pub(crate) async fn takes_writes(&self, key: &str, limit: Duration) -> throttlekit::rate::Timestamp {
        let mut connection = None;
        until("a plain write", limit, async || {
            if connection.is_none() {
                connection = self.connection().await.ok();
            }
            let Some(open) = &mut connection else { return false };
            let written: Result<Value, _> = redis::cmd("SET").arg(key).arg(1).query_async(open).await;
            if written.as_ref().is_err_and(RedisError::is_connection_dropped) {
                connection = None;
            }
            written.is_ok()
        })
        .await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

pub(crate) async fn ask<T: FromRedisValue>(
    connection: &mut Connection,
    command: &str,
) -> Result<T, RedisError> {
    let mut words = command.split(' ');
    let mut cmd = redis::cmd(words.next().unwrap());
    words.for_each(|word| {
        cmd.arg(word);
    });
    cmd.query_async(connection).await
}

/// Returns a port that is free, as is that of its bus. Starts at a position specific to this process.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = (std::process::id().wrapping_mul(7_919) % u32::from(PORT_COUNT)) as u16;
    let is_free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    for _ in 0..PORT_COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORT_FIRST + (begin + step % PORT_COUNT) % PORT_COUNT;
        if is_free(port) && is_free(port + 10_000) {
            return port;
        }
    }
    panic!("no loopback port is free");
}
