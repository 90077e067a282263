//! `throttlekit health`.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::timeout;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::connect::ConnectArgs;

/// Time limit for a response.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// Options of `throttlekit health`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    connection: ConnectArgs,
    /// Check that the store responds too; without this flag, only the server is checked
    #[arg(long)]
    ready: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let serves = runtime.block_on(serves(&args.connection))?;
    if args.ready && !serves {
        bail!("{} responds, but its store does not: check the store", args.connection.target);
    }
    println!("{}", if serves { "serving" } else { "alive, store unavailable" });
    Ok(())
}

/// Checks whether the server reports that it is serving.
async fn serves(connection: &ConnectArgs) -> Result<bool> {
    let mut health = HealthClient::with_interceptor(connection.connect().await?, connection.auth()?);
    let answer = timeout(ANSWER_MAX, health.check(HealthCheckRequest::default())).await;
    let answer =
        answer.with_context(|| format!("{} did not respond within {ANSWER_MAX:?}", connection.target))?;
    let status = answer.map_err(|status| connection.refused(&status))?;
    Ok(status.get_ref().status == ServingStatus::Serving as i32)
}
