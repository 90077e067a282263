//! Starts, queries, identifies and stops one server.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::command::{self, Words};

const READY_WAIT_MAX: Duration = Duration::from_secs(20);
const REAP_WAIT_MAX: Duration = Duration::from_secs(2);
/// The time limit of a stop before the server is killed.
const STOP_WAIT_MAX: Duration = Duration::from_secs(5);
/// The prefixes of the version in the output of a probe. Valkey prints Redis's too, so its own comes first.
const VERSION_TAGS: [&str; 4] = ["valkey_version:", "redis_version:", "PostgreSQL ", "PgBouncer "];

/// A server that daemonizes and writes its process id to a file.
///
/// The id is read again each time, so a test may kill a server and start it again.
#[derive(Serialize, Deserialize)]
pub(super) struct Server {
    pub(super) name: String,
    pub(super) port: u16,
    /// Its directory; the command line names it, which identifies the process.
    pub(super) folder: PathBuf,
    pub(super) pid_file: PathBuf,
    pub(super) log: PathBuf,
    pub(super) start: Words,
    /// A command that prints the version if the server responds.
    pub(super) probe: Words,
    /// The signal that makes it stop at once.
    pub(super) stop_signal: String,
}

impl Server {
    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Starts it unless it runs, and waits until it responds.
    pub(super) fn start(&self) -> Result<()> {
        if self.pid().is_none() {
            self.forget()?;
            command::run(&self.start, &self.folder)?;
        }
        let answered = command::wait_until(READY_WAIT_MAX, || self.answers());
        answered.with_context(|| format!("{} does not answer\n{}", self.name, command::tail(&self.log)))
    }

    /// Removes the process id of a killed server: some will not start beside it. It may belong to a process
    /// that was not reaped yet, so this waits a little for that, and continues without.
    fn forget(&self) -> Result<()> {
        let Some(pid) = self.written_pid() else { return Ok(()) };
        let _ = command::wait_until(REAP_WAIT_MAX, || !Path::new(&format!("/proc/{pid}")).exists());
        Ok(fs::remove_file(&self.pid_file)?)
    }

    pub(super) fn answers(&self) -> bool {
        self.version().is_some()
    }

    /// Returns its version, if it is the process we started and it responds.
    fn version(&self) -> Option<String> {
        self.pid()?;
        let answer = command::output(&self.probe).ok()?;
        let tagged = |tag| answer.lines().find_map(|line| line.strip_prefix(tag));
        let version = VERSION_TAGS.into_iter().find_map(tagged)?;
        version.split_whitespace().next().map(str::to_owned)
    }

    /// Returns the process id, if that process is still the one we started.
    fn pid(&self) -> Option<u32> {
        let pid = self.written_pid()?;
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let mark = format!("{}/", self.folder.display());
        String::from_utf8_lossy(&line).contains(&mark).then_some(pid)
    }

    fn written_pid(&self) -> Option<u32> {
        let file = fs::read_to_string(&self.pid_file).ok()?;
        file.lines().next()?.trim().parse().ok()
    }

    /// Signals it to stop.
    pub(super) fn signal(&self) {
        if let Some(pid) = self.pid() {
            command::signal(pid, &self.stop_signal);
        }
    }

    /// Waits until it has stopped; kills it if that takes too long.
    pub(super) fn end(&self) -> Result<()> {
        let gone = || self.pid().is_none();
        if command::wait_until(STOP_WAIT_MAX, gone).is_err() {
            self.pid().into_iter().for_each(|pid| command::signal(pid, "KILL"));
        }
        let stopped = command::wait_until(STOP_WAIT_MAX, gone);
        stopped.with_context(|| format!("{} does not stop", self.name))
    }

    /// Returns name, address, process, state and version for readers, and `true` if it responds.
    pub(super) fn report(&self) -> (String, bool) {
        let (pid, version) = (self.pid(), self.version());
        let state = match (pid, &version) {
            (_, Some(_)) => "alive",
            (Some(_), None) => "silent",
            (None, None) => "dead",
        };
        let pid = pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        let shown = version.as_deref().unwrap_or("-");
        let line = format!("{:<20}{:<18}{pid:>8}  {state:<8}{shown}", self.name, self.address());
        (line, version.is_some())
    }
}

/// Starts servers that do not wait for each other.
pub(super) fn start_all(servers: &[Server]) -> Result<()> {
    thread::scope(|scope| {
        let started: Vec<_> = servers.iter().map(|server| scope.spawn(|| server.start())).collect();
        started.into_iter().try_for_each(|server| server.join().expect("a start does not panic"))
    })
}

/// Returns the addresses as one list.
pub(super) fn list(servers: &[Server], scheme: &str) -> String {
    let one = |server: &Server| format!("{scheme}{}", server.address());
    servers.iter().map(one).collect::<Vec<_>>().join(",")
}

/// Waits until the output of a command is right.
pub(super) fn wait_for_answer(question: &[String], is_right: impl Fn(&str) -> bool) -> Result<()> {
    let answered = || command::output(question).is_ok_and(|answer| is_right(&answer));
    let seen = command::wait_until(READY_WAIT_MAX, answered);
    seen.with_context(|| format!("no right answer to `{}`", question.join(" ")))
}
