//! A policy file that is reloaded when it changes. The last valid one stays in effect.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use sha2::{Digest, Sha256};
use throttlekit::clock::{BootClock, Clock, WallClock};
use throttlekit::rate::Timestamp;

use crate::access::{Access, Built, Changes, GRACE, Refusals, SecretCache, Secrets, read_secrets, sources};
use crate::audit::AUDIT;
use crate::background;
use crate::engine::{Engine, Reloaded};
use crate::files::read_regular;
use crate::policy::{self, PolicyFile};
use crate::server_error::ServerError;

/// Status of the current file, and of later ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigStatus {
    /// First digits of the SHA-256 of the current file.
    pub hash: String,
    /// Time at which it was applied.
    pub loaded_at: Timestamp,
    /// Number of files that were applied after the first.
    pub reloads: u64,
    /// Number of files that were rejected.
    pub rejected: u64,
    /// Error of the last rejected file, if none was applied since.
    pub last_error: Option<String>,
    /// Number of tokens and secrets that cannot be used now, such as for lack of their file. They are refused.
    pub access_failing: u64,
    /// Number of times that one became unusable so far.
    pub access_failures: u64,
    /// Location of the first of them, and why it cannot be used.
    pub access_error: Option<String>,
}

/// A policy file, and the engine that runs it.
pub struct Reloader {
    path: PathBuf,
    status: ArcSwap<ConfigStatus>,
    access: Arc<ArcSwap<Access>>,
    refusals: Arc<Refusals>,
    secrets: Secrets,
    seen: tokio::sync::Mutex<Seen>,
}

/// State of the last reads.
struct Seen {
    /// Digest of the last file that was checked, valid or not: the same is not checked twice.
    judged: [u8; 32],
    /// Digest of the last file that was read. A file is checked once two reads of it are identical, so that a
    /// half-written one is not loaded.
    read: [u8; 32],
    /// Error of a file that cannot be read: reported once, not at each check.
    unreadable: Option<String>,
    /// The secrets that the current access list was built from.
    held: Arc<SecretCache>,
    /// Tokens and secrets that cannot be used, each reported once.
    failing: Vec<String>,
}

impl Seen {
    /// Checks whether a file was read once and not checked yet, or the grace of a secret runs.
    fn is_waiting(&self) -> bool {
        self.read != self.judged || self.held.is_waiting()
    }
}

/// A loaded file.
pub struct Loaded {
    /// The file.
    pub file: PolicyFile,
    /// Its warnings.
    pub warnings: Vec<String>,
    digest: [u8; 32],
}

impl Loaded {
    /// Loads a policy file. The error says what is wrong with it.
    pub fn read(path: &Path) -> Result<Self, ServerError> {
        let bytes = read(path).map_err(|error| ServerError::file(path, error))?;
        Self::of(&bytes)
    }

    fn of(bytes: &[u8]) -> Result<Self, ServerError> {
        let text = policy::text(bytes).map_err(|error| ServerError::PolicyFile(vec![error]))?;
        let (file, findings) = policy::load(text).map_err(ServerError::PolicyFile)?;
        let warnings = findings.iter().map(ToString::to_string).collect();
        Ok(Self { file, warnings, digest: Sha256::digest(bytes).into() })
    }
}

impl Reloader {
    /// Creates the reloader of a file that is about to be applied. The secrets apply if it names no principals.
    ///
    /// # Errors
    ///
    /// If any secret cannot be read: a server does not start with an incomplete access list.
    pub fn new(path: PathBuf, loaded: &Loaded, secrets: Secrets) -> Result<Arc<Self>, ServerError> {
        let reading = Reading { before: Arc::default(), secrets, refusals: Arc::default() };
        let held = reading.held(&loaded.file);
        let access = reading.build(&loaded.file, &held)?.whole()?;
        let status = ConfigStatus {
            hash: short(&loaded.digest),
            loaded_at: WallClock.now(),
            ..ConfigStatus::default()
        };
        let (judged, read) = (loaded.digest, loaded.digest);
        let seen = Seen { judged, read, unreadable: None, held: held.into(), failing: Vec::new() };
        Ok(Arc::new(Self {
            path,
            status: ArcSwap::from_pointee(status),
            access: Arc::new(ArcSwap::from_pointee(access)),
            refusals: reading.refusals,
            secrets: reading.secrets,
            seen: tokio::sync::Mutex::new(seen),
        }))
    }

    /// Returns the access list of the current file.
    pub fn access(&self) -> Arc<ArcSwap<Access>> {
        self.access.clone()
    }

    /// Returns the number of refused callers so far, by reason.
    pub fn refused(&self) -> Vec<(&'static str, u64)> {
        self.refusals.counts()
    }

    /// Returns the status.
    pub fn status(&self) -> Arc<ConfigStatus> {
        self.status.load_full()
    }

    /// Reads the file, and applies it if it changed and is valid. Returns `None` if it did not change. Reads tokens and
    /// secrets again too, whatever the result for the file.
    pub async fn look(&self, engine: &Engine) -> Option<Result<Reloaded, ServerError>> {
        let mut seen = self.seen.lock().await;
        let result = self.look_at_file(&mut seen, engine).await;
        if !matches!(result, Some(Ok(_))) {
            self.read_secrets_again(&mut seen, engine).await;
        }
        result
    }

    async fn look_at_file(&self, seen: &mut Seen, engine: &Engine) -> Option<Result<Reloaded, ServerError>> {
        let path = self.path.clone();
        let bytes = match tokio::task::spawn_blocking(move || read(&path)).await.ok()? {
            Ok(bytes) => bytes,
            // It is being replaced; the next check finds it.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
            Err(error) => {
                let error = ServerError::file(&self.path, error);
                let before = seen.unreadable.replace(error.to_string());
                let is_new = before != seen.unreadable;
                return is_new.then(|| Err(self.reject(None, error)));
            }
        };
        let digest: [u8; 32] = Sha256::digest(&bytes).into();
        if seen.unreadable.take().is_some() && short(&digest) == self.status().hash {
            // Readable again, and identical to the current one.
            self.set_status(|status| status.last_error = None);
        }
        if std::mem::replace(&mut seen.read, digest) != digest || seen.judged == digest {
            return None;
        }
        seen.judged = digest;
        let result = self.put_in_force(bytes, seen, engine).await;
        Some(match result {
            Ok(reloaded) => {
                let (hash, before) = (short(&digest), self.status().hash.clone());
                let Reloaded { added, changed, removed, .. } = &reloaded;
                let (added, changed, removed) = (added.len(), changed.len(), removed.len());
                tracing::info!(target: AUDIT, hash, before, added, changed, removed, "policy file loaded");
                self.set_status(|status| {
                    (status.hash, status.loaded_at) = (hash, WallClock.now());
                    (status.reloads, status.last_error) = (status.reloads + 1, None);
                });
                Ok(reloaded)
            }
            Err(error) => Err(self.reject(Some(&digest), error)),
        })
    }

    /// Applies a file. The access list is checked before anything changes, and takes effect no later than the policies:
    /// a new policy is never reachable under the old list, in which a pattern may match it. If the policies are
    /// rejected, the old list is restored.
    async fn put_in_force(
        &self,
        bytes: Vec<u8>,
        seen: &mut Seen,
        engine: &Engine,
    ) -> Result<Reloaded, ServerError> {
        // Off the threads that serve: a file may take long to check, especially a malicious one, and its token files
        // may be on a disk that hangs.
        let reading = self.reading(seen);
        let judging = background::run(move || {
            let loaded = Loaded::of(&bytes)?;
            let held = reading.held(&loaded.file);
            let built = reading.build(&loaded.file, &held)?;
            Ok::<_, ServerError>((loaded, held, built))
        });
        let not_checked = || ServerError::Reload("the policy file was not checked: see the log".into());
        let (loaded, held, built) = judging.await.ok_or_else(not_checked)??;
        let Loaded { file, warnings, .. } = loaded;
        if file.access.is_none() && engine.file().access.is_some() {
            return Err(ServerError::Reload(ACCESS_REMOVED.into()));
        }
        let before = self.access.swap(built.access.into());
        let mut reloaded = match engine.reload(file).await {
            Ok(reloaded) => reloaded,
            Err(error) => {
                self.access.store(before);
                return Err(error);
            }
        };
        seen.held = held.into();
        self.note_access(&before, built.failing, seen);
        reloaded.warnings.extend(warnings);
        Ok(reloaded)
    }

    /// Reloads tokens and secrets, which change in files of their own. Each is checked separately: one that cannot be
    /// read is refused after a grace, and the others are updated meanwhile. The list is rebuilt only if something
    /// changed.
    async fn read_secrets_again(&self, seen: &mut Seen, engine: &Engine) {
        let (file, reading) = (engine.file(), self.reading(seen));
        let looking = tokio::task::spawn_blocking(move || {
            let held = reading.held(&file);
            let changed = !held.is_same(&reading.before);
            let built = changed.then(|| reading.build(&file, &held));
            (held, built)
        });
        let Ok((held, built)) = looking.await else { return };
        seen.held = held.into();
        match built {
            None => {}
            Some(Ok(built)) => {
                let before = self.access.swap(built.access.into());
                self.note_access(&before, built.failing, seen);
            }
            // The current file was validated, so its secrets are not the cause.
            Some(Err(error)) => tracing::error!(%error, "access list not rebuilt"),
        }
    }

    fn reading(&self, seen: &Seen) -> Reading {
        Reading { before: seen.held.clone(), secrets: self.secrets.clone(), refusals: self.refusals.clone() }
    }

    /// Reports the difference from the previous list, and what the current one lacks.
    fn note_access(&self, before: &Access, failing: Vec<String>, seen: &mut Seen) {
        let changes = self.access.load().changes_since(before);
        if !changes.is_empty() {
            let Changes { added, removed, issued, revoked } = changes;
            tracing::info!(target: AUDIT, ?added, ?removed, ?issued, ?revoked, "callers changed");
        }
        let known: HashSet<_> = seen.failing.iter().collect();
        let new: Vec<_> = failing.iter().filter(|one| !known.contains(one)).collect();
        for error in new.iter().take(WARNINGS_MAX) {
            tracing::warn!(%error, "token or secret unusable");
        }
        let count = new.len() as u64;
        self.set_status(|status| {
            status.access_failing = failing.len() as u64;
            status.access_failures += count;
            status.access_error = failing.first().cloned();
        });
        seen.failing = failing;
    }

    fn set_status(&self, change: impl FnOnce(&mut ConfigStatus)) {
        let mut status = (*self.status()).clone();
        change(&mut status);
        self.status.store(Arc::new(status));
    }

    fn reject(&self, digest: Option<&[u8; 32]>, error: ServerError) -> ServerError {
        let hash = digest.map(short).unwrap_or_default();
        tracing::info!(target: AUDIT, hash, in_force = self.status().hash, "policy file rejected");
        self.set_status(|status| {
            (status.rejected, status.last_error) = (status.rejected + 1, Some(error.to_string()));
        });
        error
    }

    /// Checks the file at this interval, for as long as the reloader is referenced, and logs the result.
    pub fn watch(self: &Arc<Self>, engine: Engine, every: Duration) {
        let reloader = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut every = tokio::time::interval(every);
            every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            let mut is_waiting = false;
            loop {
                tokio::select! {
                    _ = every.tick() => {}
                    // However far the next check is, neither the second read of a new file nor a secret whose grace
                    // ends waits for it.
                    () = tokio::time::sleep(GRACE), if is_waiting => {}
                }
                let Some(reloader) = reloader.upgrade() else { return };
                reloader.look_and_log(&engine).await;
                is_waiting = reloader.seen.lock().await.is_waiting();
            }
        });
    }

    /// Checks the file once, and logs the result. Returns whether something changed, valid or not.
    pub async fn look_and_log(&self, engine: &Engine) -> bool {
        match self.look(engine).await {
            None => return false,
            Some(Ok(reloaded)) => {
                let Reloaded { added, changed, removed, warnings } = reloaded;
                tracing::info!(?added, ?changed, ?removed, "policies reloaded");
                warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
            }
            Some(Err(error)) => {
                tracing::error!(%error, "policy file rejected, previous file stays loaded");
            }
        }
        true
    }
}

/// Error of a file that would allow everyone everything.
const ACCESS_REMOVED: &str =
    "`access` was removed, which would allow every caller everything: restart the server if that is intended";

/// Maximum number of log lines at once about tokens that cannot be used; all are counted.
const WARNINGS_MAX: usize = 20;

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    read_regular(path, policy::BYTES_MAX as u64)
}

/// Inputs for reading secrets and building an access list, off the threads that serve.
struct Reading {
    before: Arc<SecretCache>,
    secrets: Secrets,
    refusals: Arc<Refusals>,
}

impl Reading {
    /// Reads every secret that is kept outside the file.
    fn held(&self, file: &PolicyFile) -> SecretCache {
        let reading = match &file.access {
            Some(access) => read_secrets(sources(access)),
            None => read_secrets(self.secrets.sources()),
        };
        self.before.next(reading, BootClock.now())
    }

    fn build(&self, file: &PolicyFile, held: &SecretCache) -> Result<Built, ServerError> {
        Access::build(file.access.as_ref(), &self.secrets, held, &self.refusals)
    }
}

fn short(digest: &[u8; 32]) -> String {
    digest[..6].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
