//! Servers as people run them: `throttlekit serve` in a process of its own.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use throttlekit_proto::v1::rate_limiter_client::RateLimiterClient;
use tonic::transport::{Channel, Endpoint};

/// The time limit of a start, on a busy machine.
const UP_WITHIN: Duration = Duration::from_secs(60);
/// Lines of the log that are shown if a server does not start.
const LINES_SHOWN: usize = 10;

/// Returns the program: that of `THROTTLEKIT_BINARY`, or the one that CI builds.
pub(crate) fn program() -> Result<PathBuf> {
    if let Some(given) = env::var_os("THROTTLEKIT_BINARY") {
        return Ok(PathBuf::from(given).canonicalize()?);
    }
    let build = ["build", "--quiet", "--workspace", "--features", "full", "--bin", "throttlekit"];
    let built = Command::new("cargo").args(build).current_dir(crate::root()).status()?;
    ensure!(built.success(), "the program cannot be built; see above");
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    Ok(crate::root().join(target).join("debug/throttlekit").canonicalize()?)
}

/// A running server.
pub(crate) struct Serving {
    child: Child,
    grpc: String,
}

impl Serving {
    /// Starts a server with this policy file, and waits until it serves. Blocks meanwhile.
    pub(crate) fn start(program: &Path, policies: &Path, args: &[String]) -> Result<Self> {
        let mut serve = Command::new(program);
        serve.arg("serve").arg(policies).args(["--log-json", "--fresh-start"]).args(args);
        serve
            .env_remove("THROTTLEKIT_STORE")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = serve.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let log = child.stderr.take().context("its log is piped")?;
        let mut started = Self { child, grpc: String::new() };
        started.grpc = address(log)?;
        Ok(started)
    }

    /// Returns a client with a connection of its own.
    pub(crate) fn client(&self) -> Result<RateLimiterClient<Channel>> {
        Ok(RateLimiterClient::new(channel(&self.grpc)?))
    }

    /// Returns the gRPC address, `host:port`.
    pub(crate) fn grpc(&self) -> &str {
        &self.grpc
    }

    /// Sends a signal: `TERM`, `KILL`.
    pub(crate) fn signal(&self, name: &str) -> Result<()> {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status()?;
        ensure!(sent.success(), "cannot send {name}");
        Ok(())
    }

    /// Waits until it has ended. Blocks meanwhile.
    pub(crate) fn wait(&mut self) -> Result<ExitStatus> {
        Ok(self.child.wait()?)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a channel to `host:port` that connects when it is used.
pub(crate) fn channel(address: &str) -> Result<Channel> {
    Ok(Endpoint::from_shared(format!("http://{address}"))?.connect_lazy())
}

/// Writes a policy file to a new directory, which the caller removes.
pub(crate) fn policy_file(name: &str, text: &str) -> Result<PathBuf> {
    let folder = env::temp_dir().join(format!("throttlekit-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let file = folder.join("policies.yaml");
    fs::write(&file, text)?;
    Ok(file)
}

/// Returns the gRPC address, as the server logs it. All of its log is read, so that it never waits for a reader.
fn address(log: impl Read + Send + 'static) -> Result<String> {
    let (told, heard) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(log).lines().map_while(Result::ok) {
            // Fails once the server runs, and nobody listens.
            let _ = told.send(line);
        }
    });
    let mut last = Vec::new();
    while let Ok(line) = heard.recv_timeout(UP_WITHIN) {
        let fields: Value = serde_json::from_str(&line).unwrap_or_default();
        if let Some(grpc) = fields["grpc"].as_str().filter(|_| fields["message"] == "server started") {
            return Ok(grpc.to_owned());
        }
        last.push(line);
    }
    let shown = &last[last.len().saturating_sub(LINES_SHOWN)..];
    anyhow::bail!("the server does not start:\n{}", shown.join("\n"))
}
