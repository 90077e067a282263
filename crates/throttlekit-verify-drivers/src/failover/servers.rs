//! Two servers of the proof's own, one the replica of the other by turns, ended by their own process ids.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue};
use tokio::time::sleep;

/// How long a server may take to connect or to answer, on a machine that is busy with something else.
const ANSWER_MAX: Duration = Duration::from_secs(30);
const POLLS_MAX: usize = 2_000;
const POLL_EVERY: Duration = Duration::from_millis(5);
/// Below what the system gives to outgoing connections, which must never be given a killed server's port.
const PORT_FIRST: u16 = 22_500;
const PORT_COUNT: u16 = 9_000;

/// Nothing on disk, nothing waited for, and a copy for a replica at once.
const OPTIONS: &str = "--bind 127.0.0.1 --appendonly no --repl-diskless-sync no --hz 100 --save";

pub(crate) struct Server {
    pub(crate) port: u16,
    program: String,
    folder: PathBuf,
    child: Option<Child>,
}

impl Server {
    pub(crate) async fn start(program: &str) -> Result<Self> {
        let port = free_port()?;
        let folder = std::env::temp_dir().join(format!("throttlekit-failover-{}-{port}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let mut server = Self { port, program: program.to_owned(), folder, child: None };
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
            .args(options);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.child = Some(command.spawn().with_context(|| format!("cannot start {}", self.program))?);
        self.until("it answers", async |server| server.ask::<String>("PING").await.is_ok()).await
    }

    pub(crate) fn runs(&self) -> bool {
        self.child.is_some()
    }

    /// `kill -9`, and seen dead.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Stops it in its tracks (`STOP`), or lets it go on (`CONT`).
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

    /// Asks it directly; words are separated by blanks.
    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &str) -> Result<T> {
        ask(&mut self.connection().await?, command).await
    }

    /// Makes it the replica of another, and returns when it has all there is.
    pub(crate) async fn follow(&self, primary: &Self) -> Result<()> {
        self.ask::<()>(&format!("REPLICAOF 127.0.0.1 {}", primary.port)).await?;
        primary
            .until("its replica is in step", async |primary| {
                let said = primary.ask::<String>("INFO replication").await;
                said.is_ok_and(|said| said.contains("state=online"))
            })
            .await?;
        ensure!(primary.replicas_hear(5_000).await? == 1, "the replica is not in step");
        Ok(())
    }

    /// Writes, and waits until replicas say that they have all there is. That also makes them say so to the samplers.
    pub(crate) async fn replicas_hear(&self, millis: u64) -> Result<u64> {
        let mut connection = self.connection().await?;
        ask::<()>(&mut connection, "SET in-step 1").await?;
        ask(&mut connection, &format!("WAIT 1 {millis}")).await
    }

    /// Asks until the answer holds these words.
    pub(crate) async fn until_said(&self, question: &str, words: &str) -> Result<()> {
        self.until(words, async |server| {
            server.ask::<String>(question).await.is_ok_and(|said| said.contains(words))
        })
        .await
    }

    async fn until(&self, what: &str, mut holds: impl AsyncFnMut(&Self) -> bool) -> Result<()> {
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

fn free_port() -> Result<u16> {
    let begin = (std::process::id().wrapping_mul(7_919) % u32::from(PORT_COUNT)) as u16;
    let ports = (begin..PORT_COUNT).chain(0..begin).map(|n| PORT_FIRST + n);
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    ports.into_iter().find(is_free).context("no loopback port is free")
}
