//! The mock model and the gateway as processes, and an HTTP client for them: for tests and for the load.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use axum::body::Bytes;
use axum::http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;

use llm_gateway::api::Api;
use llm_gateway::serve::{ADMIN, LISTENING};

/// A server that runs until this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Where it listens: `http://host:port`.
    pub url: String,
    /// Where it tells what it did, if it is a gateway.
    pub admin: String,
}

impl Process {
    /// Starts a command of a binary on a free port.
    pub fn start(binary: &Path, command: &str, flags: &[(&str, String)]) -> Result<Self> {
        let mut starts = Command::new(binary);
        starts.arg(command).args(["--port", "0"]).stdin(Stdio::null()).stdout(Stdio::piped());
        flags.iter().for_each(|(name, value)| {
            starts.arg(format!("--{name}")).arg(value);
        });
        let mut child = starts.spawn().with_context(|| format!("cannot start {}", binary.display()))?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no standard output")?).read_line(&mut line)?;
        match line.trim().strip_prefix(LISTENING) {
            Some(said) => {
                let (address, admin) = said.split_once(ADMIN).unwrap_or((said, said));
                Ok(Self { child, url: format!("http://{address}"), admin: format!("http://{admin}") })
            }
            None => {
                let _ = child.kill();
                bail!("{command} does not listen; it exited with {}", child.wait()?)
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A file that is removed when this is dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// With this text in it, in the folder for such files.
    pub fn new(name: &str, text: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("{name}-{}.json", std::process::id()));
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A plain client, which is all that our servers need.
#[derive(Clone, Debug)]
pub struct Http(Client<HttpConnector, Full<Bytes>>);

impl Default for Http {
    fn default() -> Self {
        Self(Client::builder(TokioExecutor::new()).build_http())
    }
}

impl Http {
    /// Gets a JSON document.
    pub async fn get<T: DeserializeOwned>(&self, url: &str) -> Result<T> {
        let response = self.0.request(Request::get(url).body(Full::default())?).await?;
        let body = response.into_body().collect().await?.to_bytes();
        serde_json::from_slice(&body).with_context(|| format!("{url}: {}", String::from_utf8_lossy(&body)))
    }

    /// Sends a request to an API of a gateway.
    pub async fn post(
        &self,
        gateway: &str,
        api: &Api,
        key: &str,
        body: String,
    ) -> Result<Response<Incoming>> {
        let (name, value) = api.family.authorization(key);
        let request = Request::post(format!("{gateway}{}", api.path)).header(name, value);
        Ok(self.0.request(request.body(Full::from(body))?).await?)
    }
}
