//! A primary, its replica, and three real Sentinels that watch them.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use redis::{AsyncConnectionConfig, Client, FromRedisValue};

use super::engine::Fault;
use crate::failover::servers::{Server, free_port};

const PROGRAM: &str = "redis-server";
const SENTINEL: &str = "redis-sentinel";
const SENTINELS: usize = 3;
const QUORUM: usize = 2;
const DOWN_AFTER_MS: u64 = 500;
const FAILOVER_TIMEOUT_MS: u64 = 3_000;
/// The time limit of a connection or a response: a Sentinel may get no processor time for a while.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// The most times that a Sentinel is asked.
const ATTEMPTS_MAX: usize = 3;

pub(super) struct Sentinels {
    servers: [Server; 2],
    primary: usize,
    sentinels: Vec<Sentinel>,
}

impl Sentinels {
    /// With `fences` a primary whose replica is gone stops accepting writes, as `fence` requires.
    pub(super) async fn start(fences: bool) -> Result<Self> {
        let options =
            |_| if fences { words("--min-replicas-to-write 1 --min-replicas-max-lag 1") } else { Vec::new() };
        let servers =
            [Server::start_with(PROGRAM, options).await?, Server::start_with(PROGRAM, options).await?];
        servers[1].follow_at(servers[0].port).await?;
        let sentinels = (0..SENTINELS).map(|_| Sentinel::start(servers[0].port));
        let this = Self { sentinels: sentinels.collect::<Result<_>>()?, servers, primary: 0 };
        this.primary().until("its replica is in step", async |primary| is_linked(primary).await).await?;
        let address = this.sentinels[0].port;
        let seen = async |_: &Server| {
            let said: String = ask_at(address, "INFO sentinel").await.unwrap_or_default();
            said.contains("status=ok,") && said.contains("slaves=1,sentinels=3")
        };
        this.primary().until("the Sentinels have found each other", seen).await?;
        Ok(this)
    }

    pub(super) fn url(&self) -> String {
        let hosts: Vec<_> =
            self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
        format!("redis+sentinel://{}/mymaster", hosts.join(","))
    }

    fn primary(&self) -> &Server {
        &self.servers[self.primary]
    }

    fn replica(&self) -> &Server {
        &self.servers[1 - self.primary]
    }

    /// Waits until every Sentinel reports the primary, and its replica is in sync. On a busy machine the Sentinels may
    /// replace a primary that was only to be restarted, even while this waits for the old one.
    pub(super) async fn prepare(&mut self) -> Result<()> {
        match self.prepare_once().await {
            Ok(()) => Ok(()),
            Err(_) => self.prepare_once().await,
        }
    }

    async fn prepare_once(&mut self) -> Result<()> {
        self.locate().await?;
        let primary = self.primary();
        self.replica().follow_at(primary.port).await?;
        primary.until("its replica is in step", async |primary| is_linked(primary).await).await?;
        for sentinel in &self.sentinels {
            let port = sentinel.port;
            let knows = async |primary: &Server| {
                let said: String = ask_at(port, "INFO sentinel").await.unwrap_or_default();
                said.contains(&format!("status=ok,address={},slaves=1", primary.address()))
            };
            primary.until("the Sentinels see the primary", knows).await?;
        }
        Ok(())
    }

    /// Finds out which server is the primary, from the Sentinel that knows the latest failover.
    async fn locate(&mut self) -> Result<()> {
        let (_, sentinel) = self.latest().await?;
        let told: [String; 2] = ask_at(sentinel.port, "SENTINEL GET-MASTER-ADDR-BY-NAME mymaster").await?;
        let is_it = |server: &Server| server.address() == told.join(":");
        self.primary = self.servers.iter().position(is_it).unwrap_or(self.primary);
        Ok(())
    }

    /// Returns the highest number that a Sentinel has given to a failover.
    pub(super) async fn epoch(&self) -> Result<u64> {
        Ok(self.latest().await?.0)
    }

    /// Returns the number of the last failover, and a Sentinel that knows it.
    async fn latest(&self) -> Result<(u64, &Sentinel)> {
        let mut latest = (0, &self.sentinels[0]);
        for sentinel in &self.sentinels {
            let told: HashMap<String, String> = ask_at(sentinel.port, "SENTINEL MASTER mymaster").await?;
            let epoch = told["config-epoch"].parse()?;
            if epoch > latest.0 {
                latest = (epoch, sentinel);
            }
        }
        Ok(latest)
    }

    pub(super) async fn cut_off(&mut self) -> Result<()> {
        self.locate().await?;
        self.replica().signal("STOP")?;
        self.primary().ask::<u64>("CLIENT KILL TYPE replica").await?;
        Ok(())
    }

    pub(super) async fn strike(&mut self, fault: Fault) -> Result<()> {
        self.locate().await?;
        let old = self.primary;
        match fault {
            Fault::Restart => {
                self.servers[old].kill();
                return self.servers[old].up().await;
            }
            Fault::Kill => self.servers[old].kill(),
            Fault::Stall => {
                self.servers[old].kill();
                self.replica().signal("CONT")?;
            }
            Fault::Switch => self.switch().await?,
        }
        self.primary().taken_over_by(self.replica()).await?;
        self.primary = 1 - old;
        if fault == Fault::Switch {
            // Disconnected callers look up the new primary.
            self.servers[old].ask::<u64>("CLIENT KILL TYPE normal").await?;
            return Ok(());
        }
        let follow = format!("--replicaof 127.0.0.1 {}", self.primary().port);
        let follow: Vec<&str> = follow.split(' ').collect();
        self.servers[old].up_with(&follow).await
    }

    /// Requests a failover of a primary that lives. A Sentinel refuses while it is busy with the previous one.
    async fn switch(&self) -> Result<()> {
        let port = self.sentinels[0].port;
        let begun = async |_: &Server| ask_once::<String>(port, "SENTINEL FAILOVER mymaster").await.is_ok();
        self.primary().until("a Sentinel begins the failover", begun).await
    }
}

/// Returns `true` if a replica is in sync.
async fn is_linked(primary: &Server) -> bool {
    primary.ask::<String>("INFO replication").await.is_ok_and(|said| said.contains("state=online"))
}

/// Asks a Sentinel, again if it does not answer in time.
async fn ask_at<T: FromRedisValue>(port: u16, command: &str) -> Result<T> {
    for _ in 1..ATTEMPTS_MAX {
        if let Ok(answer) = ask_once(port, command).await {
            return Ok(answer);
        }
    }
    ask_once(port, command).await.with_context(|| format!("{command} to the Sentinel on port {port}"))
}

async fn ask_once<T: FromRedisValue>(port: u16, command: &str) -> Result<T> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(ANSWER_MAX))
        .set_response_timeout(Some(ANSWER_MAX));
    let client = Client::open(format!("redis://127.0.0.1:{port}"))?;
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    let mut words = command.split(' ');
    let mut cmd = redis::cmd(words.next().unwrap_or_default());
    words.for_each(|word| {
        cmd.arg(word);
    });
    Ok(cmd.query_async(&mut connection).await?)
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// One Sentinel. Killed on drop.
struct Sentinel {
    port: u16,
    folder: PathBuf,
    child: Child,
}

impl Sentinel {
    fn start(primary: u16) -> Result<Self> {
        let port = free_port()?;
        let folder = std::env::temp_dir().join(format!("throttlekit-sentinel-{}-{port}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let file = folder.join("sentinel.conf");
        let text = format!(
            "bind 127.0.0.1\nport {port}\ndir {folder:?}\nsentinel monitor mymaster 127.0.0.1 {primary} {QUORUM}\n\
             sentinel down-after-milliseconds mymaster {DOWN_AFTER_MS}\n\
             sentinel failover-timeout mymaster {FAILOVER_TIMEOUT_MS}\n"
        );
        fs::write(&file, text)?;
        let log = File::create(folder.join("log"))?;
        let mut command = Command::new(SENTINEL);
        command.arg(file).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {SENTINEL}"))?;
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Ok(Self { port, folder, child })
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
