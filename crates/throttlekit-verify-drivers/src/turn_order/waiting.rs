//! A running server, seen from outside: who waits, whether the slot is free, what was charged.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use throttlekit_proto::v1::rate_limiter_client::RateLimiterClient;
use throttlekit_proto::v1::{AdmitRequest, PeekRequest, ReleaseRequest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};
use tonic::transport::Channel;

use super::callers::is_allowed;
use crate::failover::servers::free_port;
use crate::serving::Serving;

/// The time limit of every change on a busy machine. A server notices a killed client within milliseconds.
const CHANGES_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(2);

pub(super) struct Served {
    serving: Serving,
    client: RateLimiterClient<Channel>,
    metrics: u16,
}

impl Served {
    pub(super) fn start(program: &Path, policies: &Path) -> Result<Self> {
        let metrics = free_port()?;
        let at = format!("127.0.0.1:{metrics}");
        let args: [String; 6] =
            ["--listen", "127.0.0.1:0", "--http", "off", "--metrics", &at].map(Into::into);
        let serving = Serving::start(program, policies, &args)?;
        Ok(Self { client: serving.client()?, serving, metrics })
    }

    /// Returns the address for gRPC.
    pub(super) fn grpc(&self) -> &str {
        self.serving.grpc()
    }

    /// Returns the number of calls that wait for a policy, as the server reports it.
    async fn waiting(&self, policy: &str) -> Result<u64> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.metrics)).await?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await?;
        let mut page = String::new();
        stream.read_to_string(&mut page).await?;
        let name = format!("throttlekit_policy_waiting{{policy=\"{policy}\"}} ");
        let value = page.lines().find_map(|line| line.strip_prefix(&name));
        Ok(value.context("the metrics page has no calls that wait")?.trim().parse()?)
    }

    /// Waits until this many calls wait.
    pub(super) async fn until_waiting(&self, policy: &str, calls: u64) -> Result<()> {
        let ends = Instant::now() + CHANGES_WITHIN;
        loop {
            let waiting = self.waiting(policy).await?;
            if waiting == calls {
                return Ok(());
            }
            ensure!(Instant::now() < ends, "{waiting} calls wait, not {calls}");
            sleep(LOOK_EVERY).await;
        }
    }

    /// Takes the slot if it is free. Returns its lease.
    pub(super) async fn take_slot(&self, policy: &str) -> Result<Option<String>> {
        let request = AdmitRequest { policy: policy.into(), key: "k".into(), ..AdmitRequest::default() };
        let response = self.client.clone().admit(request).await?.into_inner();
        Ok(is_allowed(&response).then_some(response.lease_id))
    }

    pub(super) async fn release(&self, lease_id: String) -> Result<()> {
        self.client.clone().release(ReleaseRequest { lease_id, ..ReleaseRequest::default() }).await?;
        Ok(())
    }

    /// Returns a violation if a call waits, or the slot does not become free. Charges one unit if it does.
    pub(super) async fn nothing_is_left(&self, policy: &str) -> Result<Vec<String>> {
        if let Err(error) = self.until_waiting(policy, 0).await {
            return Ok(vec![format!("in the end {error}")]);
        }
        let ends = Instant::now() + CHANGES_WITHIN;
        while Instant::now() < ends {
            if let Some(lease) = self.take_slot(policy).await? {
                self.release(lease).await?;
                return Ok(Vec::new());
            }
            sleep(LOOK_EVERY).await;
        }
        Ok(vec!["in the end the slot is in use".into()])
    }

    /// Returns the units that were charged.
    pub(super) async fn used(&self, policy: &str) -> Result<u64> {
        let request = PeekRequest { policy: policy.into(), key: "k".into(), ..PeekRequest::default() };
        let decision = self.client.clone().peek(request).await?.into_inner().decision;
        let decision = decision.context("a decision")?;
        Ok((decision.limit - decision.remaining).unsigned_abs())
    }
}
