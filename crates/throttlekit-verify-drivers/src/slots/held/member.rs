//! A client process: this program again, configured by an environment variable. It ends when its input does.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use throttlekit::clock::{BootClock, Clock};
use throttlekit::guard::Ending;
use throttlekit::internals::Mutex;
use throttlekit::store::{
    HeartbeatOutcome, KeySpace, LeaseId, Owner, SlotLease, SlotRequest, SlotStep, SlotStore,
};
use throttlekit::{Concurrency, SharedGuard};
use throttlekit_conformance::Dice;

use super::engine::{AnyStore, Engine};

const VARIABLE: &str = "THROTTLEKIT_SLOT_MEMBER";
/// Workers of one process.
const WORKERS: u64 = 2;

/// The role of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Takes slots of one key and works in them, stopped by the fence.
    Worker,
    /// The same, and works on past the fence: seeded.
    Unfenced,
    /// Holds one slot of each of this many keys until it is killed.
    Holder(u32),
    /// Holds one slot manually, sends heartbeats for it, and releases it when that is lost.
    Zombie,
}

/// The configuration of a member.
#[derive(Clone, Debug)]
pub(super) struct Post {
    pub(super) role: Role,
    pub(super) engine: Engine,
    pub(super) policy: String,
    pub(super) most: u32,
    pub(super) lives: Duration,
    pub(super) log: PathBuf,
}

/// A running member. Killed on drop.
pub(super) struct Member(Child);

/// Returns the configuration of this process, if it is a member.
pub(super) fn post() -> Option<Post> {
    let words = std::env::var(VARIABLE).ok()?;
    let mut words = words.split('\n');
    let mut next = || words.next().map(str::to_owned);
    let role = match next()?.split_once(' ')? {
        ("worker", _) => Role::Worker,
        ("unfenced", _) => Role::Unfenced,
        ("zombie", _) => Role::Zombie,
        (_, keys) => Role::Holder(keys.parse().ok()?),
    };
    let engine = Engine { name: next()?, address: next()? };
    let (policy, most) = (next()?, next()?.parse().ok()?);
    let lives = Duration::from_millis(next()?.parse().ok()?);
    Some(Post { role, engine, policy, most, lives, log: next()?.into() })
}

impl Post {
    fn words(&self) -> String {
        let role = match self.role {
            Role::Worker => "worker 0".to_owned(),
            Role::Unfenced => "unfenced 0".to_owned(),
            Role::Zombie => "zombie 0".to_owned(),
            Role::Holder(keys) => format!("holder {keys}"),
        };
        let Engine { name, address } = &self.engine;
        let (policy, most, lives) = (&self.policy, self.most, self.lives.as_millis());
        format!("{role}\n{name}\n{address}\n{policy}\n{most}\n{lives}\n{}", self.log.display())
    }

    /// Starts a process with this configuration.
    pub(super) fn start(&self) -> Result<Member> {
        let child = Command::new(std::env::current_exe()?)
            // In the build of this process.
            .args(["verify", "slots", "--small", "held"])
            .env(VARIABLE, self.words())
            // The other end of the pipe closes with this process, and the member exits with it.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Member(child))
    }

    /// Returns the lines that members have written so far.
    pub(super) fn read(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Member {
    /// Stops it (`STOP`), or continues it (`CONT`).
    pub(super) fn signal(&self, name: &str) -> Result<()> {
        let done = Command::new("sh").args(["-c", &format!("kill -{name} {}", self.0.id())]).status()?;
        ensure!(done.success(), "kill -{name} failed");
        Ok(())
    }

    /// Kills it with `kill -9` and waits until it is dead.
    pub(super) fn kill(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a member.
pub(super) fn run(post: &Post) -> Result<()> {
    thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let log = Log::open(&post.log)?;
    runtime.block_on(async {
        let store = post.engine.connect().await?;
        match post.role {
            Role::Worker | Role::Unfenced => work(post, store, log).await,
            Role::Holder(keys) => hold(post, store, keys, &log).await,
            Role::Zombie => haunt(post, store, &log).await,
        }
    })
}

/// Lines of this process in a file that others append to as well: each is one write, so `kill -9` tears none.
#[derive(Clone)]
struct Log(Arc<Mutex<File>>);

impl Log {
    fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self(Arc::new(Mutex::new(file))))
    }

    fn write(&self, line: &str) {
        let mut file = self.0.lock();
        file.write_all(format!("{line}\n").as_bytes()).expect("the log can be written");
    }
}

async fn work(post: &Post, store: AnyStore, log: Log) -> Result<()> {
    let slots = SharedGuard::builder(store, &post.policy, Concurrency::per_key(post.most))
        .lease(post.lives)
        .build()?;
    let running: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let seed = u64::from(std::process::id()) * WORKERS + worker;
            tokio::spawn(worker_of(slots.clone(), post.role, log.clone(), seed))
        })
        .collect();
    for worker in running {
        worker.await?;
    }
    Ok(())
}

/// Takes a slot, works in small steps, each stamped with a time at which the slot was observed as held, and
/// releases it.
async fn worker_of(slots: SharedGuard, role: Role, log: Log, seed: u64) {
    let mut dice = Dice::new(seed);
    for round in 0_u64.. {
        let admitted = slots.acquire("key").await;
        let Some(slot) = admitted.ok().and_then(|admission| admission.permit) else {
            tokio::time::sleep(Duration::from_millis(dice.between(2, 15))).await;
            continue;
        };
        let steps = dice.between(3, 80);
        let work = async {
            for _ in 0..steps {
                let now = BootClock.now();
                if role == Role::Unfenced || !slot.is_fenced() {
                    log.write(&format!("w {seed}.{round} {}", now.as_nanos()));
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let ended = if role == Role::Unfenced {
            work.await;
            Ok(())
        } else {
            slot.run(work).await
        };
        if ended.is_err() {
            log.write(&format!("f {seed}.{round} 0"));
        }
        if dice.once_in(2) {
            let _ = slot.close(Ending::Success).await;
        }
    }
}

async fn hold(post: &Post, store: AnyStore, keys: u32, log: &Log) -> Result<()> {
    let slots =
        SharedGuard::builder(store, &post.policy, Concurrency::per_key(1)).lease(post.lives).build()?;
    let mut held = Vec::new();
    for key in 0..keys {
        held.push(slots.acquire(&key.to_string()).await?.permit.context("nobody else holds it")?);
    }
    log.write("held");
    std::future::pending::<()>().await;
    Ok(())
}

async fn haunt(post: &Post, store: AnyStore, log: &Log) -> Result<()> {
    let key = KeySpace::slots("tk", &post.policy).key(b"key", b"key");
    let (lease, owner) = (LeaseId(u128::from(BootClock.now().as_nanos())), Owner(std::process::id().into()));
    let ask = SlotRequest { key: &key, lease, owner, most: 1, lives: post.lives };
    if matches!(store.acquire(&ask).await?.step, SlotStep::Deny(_)) {
        bail!("nobody else holds it");
    }
    log.write(&format!("lease {}", lease.0));
    let mine = SlotLease { key: &key, lease, owner };
    loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        match store.heartbeat(&[mine], post.lives).await.remove(0)? {
            HeartbeatOutcome::Held(_) => {}
            HeartbeatOutcome::Lost => break,
        }
    }
    log.write("heartbeat lost");
    let freed = store.release(&[mine]).await.remove(0)?;
    log.write(&format!("release {freed}"));
    std::future::pending::<()>().await;
    Ok(())
}
