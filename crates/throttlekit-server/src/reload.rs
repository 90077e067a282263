//! A policy file that is read again when it changes. The last good one stays in force.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use sha2::{Digest, Sha256};
use throttlekit::{Clock, Timestamp, WallClock};

use crate::access::{Access, Secrets};
use crate::engine::{Engine, Reloaded};
use crate::policy::{self, PolicyFile};

/// How the file in force came to be, and what became of later ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigStatus {
    /// The first digits of the SHA-256 of the file in force.
    pub hash: String,
    /// When it was put in force.
    pub loaded_at: Timestamp,
    /// How many files were put in force after the first.
    pub reloads: u64,
    /// How many were refused.
    pub rejected: u64,
    /// Why the last one was refused, if none was put in force since.
    pub last_error: Option<String>,
}

/// A policy file, and the engine that runs it.
pub struct Reloader {
    path: PathBuf,
    status: ArcSwap<ConfigStatus>,
    access: Arc<ArcSwap<Access>>,
    secrets: Secrets,
    seen: tokio::sync::Mutex<Seen>,
}

/// What was looked at.
struct Seen {
    /// The last one that was judged, good or not: the same is not judged twice.
    judged: [u8; 32],
    /// The last one that was read. A file is judged when it was read twice alike, so that none is taken half written.
    read: [u8; 32],
}

/// A file as it was read.
pub struct Loaded {
    /// What it says.
    pub file: PolicyFile,
    /// What is odd about it.
    pub warnings: Vec<String>,
    digest: [u8; 32],
}

impl Loaded {
    /// Reads a policy file, or says what is wrong with it.
    pub fn read(path: &Path) -> Result<Self, String> {
        let bytes = read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Self::of(&bytes)
    }

    fn of(bytes: &[u8]) -> Result<Self, String> {
        let text = policy::text(bytes).map_err(|error| error.to_string())?;
        let (file, findings) = policy::load(text)
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
        let warnings = findings.iter().map(ToString::to_string).collect();
        Ok(Self { file, warnings, digest: Sha256::digest(bytes).into() })
    }
}

impl Reloader {
    /// Looks after the file that is about to be put in force. The secrets hold where it names no principals.
    pub fn new(path: PathBuf, loaded: &Loaded, secrets: Secrets) -> Result<Arc<Self>, String> {
        let access = Arc::new(ArcSwap::from_pointee(access(&loaded.file, &secrets)?));
        let status = ConfigStatus {
            hash: short(&loaded.digest),
            loaded_at: WallClock.now(),
            ..ConfigStatus::default()
        };
        let (status, seen) = (
            ArcSwap::from_pointee(status),
            tokio::sync::Mutex::new(Seen { judged: loaded.digest, read: loaded.digest }),
        );
        Ok(Arc::new(Self { path, status, access, secrets, seen }))
    }

    /// Who may ask what, as the file in force says.
    pub fn access(&self) -> Arc<ArcSwap<Access>> {
        self.access.clone()
    }

    /// How it stands.
    pub fn status(&self) -> Arc<ConfigStatus> {
        self.status.load_full()
    }

    /// Reads the file, and puts it in force if it changed and is good. Nothing, if it did not change.
    pub async fn look(&self, engine: &Engine) -> Option<Result<Reloaded, String>> {
        let mut seen = self.seen.lock().await;
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || read(&path)).await.ok()?;
        let bytes = match read {
            Ok(bytes) => bytes,
            // Half way through being replaced; the next look finds it.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
            Err(error) => return Some(Err(self.reject(error.to_string()))),
        };
        let digest: [u8; 32] = Sha256::digest(&bytes).into();
        if std::mem::replace(&mut seen.read, digest) != digest {
            return None;
        }
        if seen.judged == digest {
            self.read_tokens_again(engine).await;
            return None;
        }
        seen.judged = digest;
        let result = self.put_in_force(bytes, engine).await;
        Some(match result {
            Ok(reloaded) => {
                let before = self.status();
                self.status.store(Arc::new(ConfigStatus {
                    hash: short(&digest),
                    loaded_at: WallClock.now(),
                    reloads: before.reloads + 1,
                    rejected: before.rejected,
                    last_error: None,
                }));
                Ok(reloaded)
            }
            Err(error) => Err(self.reject(error)),
        })
    }

    /// Who may ask is judged before anything changes, and changes last.
    async fn put_in_force(&self, bytes: Vec<u8>, engine: &Engine) -> Result<Reloaded, String> {
        // Off the threads that serve: a file may take long to judge, above all one that is made to, and the files of
        // tokens that it names may lie on a disk that hangs.
        let secrets = self.secrets.clone();
        let judging = tokio::task::spawn_blocking(move || {
            let loaded = Loaded::of(&bytes)?;
            let access = access(&loaded.file, &secrets)?;
            Ok::<_, String>((loaded, access))
        });
        let (Loaded { file, warnings, .. }, access) = judging.await.map_err(|error| error.to_string())??;
        if file.access.is_none() && engine.file().access.is_some() {
            return Err("`access` is gone, which would open the doors to everyone: restart the server if that is meant".into());
        }
        let mut reloaded = engine.reload(file).await?;
        self.access.store(Arc::new(access));
        reloaded.warnings.extend(warnings);
        Ok(reloaded)
    }

    /// Tokens may change in files of their own. Those in force stay if one cannot be read.
    async fn read_tokens_again(&self, engine: &Engine) {
        let file = engine.file();
        if file.access.is_none() {
            return;
        }
        let reading = tokio::task::spawn_blocking(move || file.access.as_ref().map(Access::of));
        if let Ok(Some(Ok(access))) = reading.await {
            self.access.store(Arc::new(access));
        }
    }

    fn reject(&self, error: String) -> String {
        let before = self.status();
        let rejected = before.rejected + 1;
        self.status.store(Arc::new(ConfigStatus {
            rejected,
            last_error: Some(error.clone()),
            ..(*before).clone()
        }));
        error
    }

    /// Looks every so often, for as long as anyone holds it, and says what it found.
    pub fn watch(self: &Arc<Self>, engine: Engine, every: Duration) {
        let reloader = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut every = tokio::time::interval(every);
            every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                every.tick().await;
                let Some(reloader) = reloader.upgrade() else { return };
                reloader.look_and_log(&engine).await;
            }
        });
    }

    /// Looks once, and logs what it found. Returns whether there was something new, good or not.
    pub async fn look_and_log(&self, engine: &Engine) -> bool {
        match self.look(engine).await {
            None => return false,
            Some(Ok(reloaded)) => {
                let Reloaded { added, changed, removed, warnings } = reloaded;
                tracing::info!(?added, ?changed, ?removed, "policies reloaded");
                warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
            }
            Some(Err(error)) => {
                tracing::error!("the policy file was refused, the last good one stays: {error}");
            }
        }
        true
    }
}

/// Reads a file, but no more of it than is judged.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(policy::BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn access(file: &PolicyFile, secrets: &Secrets) -> Result<Access, String> {
    file.access.as_ref().map_or_else(|| Ok(Access::open(secrets.clone())), Access::of)
}

fn short(digest: &[u8; 32]) -> String {
    digest[..6].iter().map(|byte| format!("{byte:02x}")).collect()
}
