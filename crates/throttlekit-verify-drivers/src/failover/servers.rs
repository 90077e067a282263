//! Two servers of the verification, replicas of each other in turns, killed by their own process ids.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue};
use tokio::time::sleep;

/// The time limit of a connection or a response, on a busy machine.
const ANSWER_MAX: Duration = Duration::from_secs(30);
const POLLS_MAX: usize = 2_000;
const POLL_EVERY: Duration = Duration::from_millis(5);
/// Below the range of outgoing connections, which must never get a killed server's port.
const PORT_FIRST: u16 = 22_500;
const PORT_COUNT: u16 = 9_000;

/// Nothing on disk, no delays, and an immediate copy for a replica.
const OPTIONS: &str = "--bind 127.0.0.1 --appendonly no --repl-diskless-sync no --hz 100 --save";

pub(crate) struct Server {
    pub(crate) port: u16,
    program: String,
    folder: PathBuf,
    /// Options of every start, besides the common ones.
    options: Vec<String>,
    child: Option<Child>,
}

impl Server {
    pub(crate) async fn start(program: &str) -> Result<Self> {
        Self::start_with(program, |_| Vec::new()).await
    }

    /// Starts one with options of its own, which may depend on its port.
    pub(crate) async fn start_with(program: &str, options: impl Fn(u16) -> Vec<String>) -> Result<Self> {
        let port = free_port()?;
        let folder = std::env::temp_dir().join(format!("throttlekit-failover-{}-{port}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let mut server =
            Self { port, program: program.to_owned(), folder, options: options(port), child: None };
        server.up().await?;
        Ok(server)
    }

    /// Starts it empty and as a primary.
    pub(crate) async fn up(&mut self) -> Result<()> {
        self.up_with(&[]).await
    }

    /// Starts it as a primary, with these options too.
    pub(crate) async fn up_with(&mut self, options: &[&str]) -> Result<()> {
        let log = fs::File::create(self.folder.join("log"))?;
        let mut command = Command::new(&self.program);
        command
            .args(OPTIONS.split(' '))
            .args(["", "--port", &self.port.to_string(), "--dir"])
            .arg(&self.folder)
            .args(&self.options)
            .args(options);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.child = Some(command.spawn().with_context(|| format!("cannot start {}", self.program))?);
        self.until("it answers", async |server| server.ask::<String>("PING").await.is_ok()).await
    }

    pub(crate) fn runs(&self) -> bool {
        self.child.is_some()
    }

    /// Kills it with `kill -9` and waits until it is dead.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Stops it (`STOP`), or continues it (`CONT`).
    pub(crate) fn signal(&self, name: &str) -> Result<()> {
        let pid = self.child.as_ref().context("it does not run")?.id();
        let done = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status()?;
        ensure!(done.success(), "cannot send {name} to {pid}");
        Ok(())
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) async fn connection(&self) -> Result<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER_MAX))
            .set_response_timeout(Some(ANSWER_MAX));
        let client = Client::open(format!("redis://{}", self.address()))?;
        Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
    }

    /// Sends a command directly; words are separated by spaces.
    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &str) -> Result<T> {
        ask(&mut self.connection().await?, command).await
    }

    /// Makes it the replica of another, and returns when it is in sync.
    pub(crate) async fn follow(&self, primary: &Self) -> Result<()> {
        self.follow_at(primary.port).await?;
        primary
            .until("its replica is in step", async |primary| {
                let said = primary.ask::<String>("INFO replication").await;
                said.is_ok_and(|said| said.contains("state=online"))
            })
            .await?;
        ensure!(primary.replicas_hear(5_000).await? == 1, "the replica is not in step");
        Ok(())
    }

    /// Makes it the replica of the server at this port of the same machine.
    pub(crate) async fn follow_at(&self, port: u16) -> Result<()> {
        self.ask(&format!("REPLICAOF 127.0.0.1 {port}")).await
    }

    /// Waits until another server has taken over as primary.
    pub(crate) async fn taken_over_by(&self, new: &Self) -> Result<()> {
        new.until_said("INFO replication", "role:master")
            .await
            .with_context(|| format!("nobody took over from {}", self.address()))
    }

    /// Writes, and waits until replicas acknowledge everything. That also makes them report it to the
    /// samplers.
    pub(crate) async fn replicas_hear(&self, millis: u64) -> Result<u64> {
        let mut connection = self.connection().await?;
        ask::<()>(&mut connection, "SET in-step 1").await?;
        ask(&mut connection, &format!("WAIT 1 {millis}")).await
    }

    /// Repeats a command until the response contains these words.
    pub(crate) async fn until_said(&self, question: &str, words: &str) -> Result<()> {
        self.until(words, async |server| {
            server.ask::<String>(question).await.is_ok_and(|said| said.contains(words))
        })
        .await
    }

    pub(crate) async fn until(&self, what: &str, mut holds: impl AsyncFnMut(&Self) -> bool) -> Result<()> {
        for _ in 0..POLLS_MAX {
            if holds(self).await {
                return Ok(());
            }
            sleep(POLL_EVERY).await;
        }
        anyhow::bail!("{what}: not in time; see {}", self.folder.display())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

async fn ask<T: FromRedisValue>(connection: &mut MultiplexedConnection, command: &str) -> Result<T> {
    let mut words = command.split(' ');
    let mut cmd = redis::cmd(words.next().unwrap_or_default());
    words.for_each(|word| {
        cmd.arg(word);
    });
    cmd.query_async(connection).await.with_context(|| command.to_owned())
}

/// Returns a port that is free and that no outgoing connection gets.
pub(crate) fn free_port() -> Result<u16> {
    Ok(free_ports(1)?[0])
}

/// Returns as many of them.
pub(crate) fn free_ports(count: usize) -> Result<Vec<u16>> {
    let begin = (std::process::id().wrapping_mul(7_919) % u32::from(PORT_COUNT)) as u16;
    let ports = (begin..PORT_COUNT).chain(0..begin).map(|n| PORT_FIRST + n);
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let free: Vec<_> = ports.filter(is_free).take(count).collect();
    ensure!(free.len() == count, "no loopback port is free");
    Ok(free)
}
