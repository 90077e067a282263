//! The gateway as a command.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use throttlekit_redis::RedisStore;
use tokio::net::TcpListener;

use crate::metering::Meter;
use crate::proxy::Gateway;
use crate::tenants::Config;
use crate::upstream::Trust;

/// Start of the line that a server prints when it listens.
pub const LISTENING: &str = "listening on http://";
/// Start of the second part of that line, with the address for operators.
pub const ADMIN: &str = ", admin on http://";

/// Run the gateway.
#[derive(Debug, clap::Args)]
pub struct Serve {
    /// Configuration file (JSON) with the upstream and the tenants.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Port for callers, on loopback. 0 picks a free one.
    #[arg(long, default_value_t = 8_080)]
    port: u16,
    /// Port for operators, on loopback: /admin/stats, /admin/allowances, /admin/slots, /metrics. Default: 8081, or a
    /// free one if --port is 0.
    #[arg(long)]
    admin_port: Option<u16>,
    /// Redis or Valkey that all gateways of the policy share.
    #[arg(long, value_name = "URL", env = "THROTTLEKIT_REDIS", default_value = "redis://127.0.0.1:6379")]
    redis: String,
    /// Deadline for calls to the store, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 250)]
    store_deadline_ms: u64,
    /// Name of the limits on the store. Gateways with the same name count together.
    #[arg(long, default_value = "llm-gateway")]
    policy: String,
    /// Name of this process among the gateways of the policy; must be unique. Default: the process ID.
    #[arg(long)]
    region: Option<String>,
    /// CA certificates (PEM) to verify an https:// upstream with, in place of those of the operating system.
    #[arg(long, value_name = "FILE")]
    upstream_ca: Option<PathBuf>,
    /// Metering mode.
    #[arg(long, value_enum, default_value_t = Meter::Stream)]
    meter: Meter,
}

/// Runs the gateway until it fails.
pub async fn run(args: Serve) -> Result<()> {
    let Serve { config: file, port, redis, policy, meter, .. } = args;
    let admin_port = args.admin_port.unwrap_or(if port == 0 { 0 } else { 8_081 });
    let region = args.region.unwrap_or_else(|| std::process::id().to_string());
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let config = Config::parse(&text).with_context(|| format!("invalid configuration {}", file.display()))?;
    let trust = Trust::from_file(args.upstream_ca.as_deref())?;
    let deadline = Duration::from_millis(args.store_deadline_ms);
    let store = RedisStore::builder(redis).deadline(deadline).connect().await?;
    let gateway = Arc::new(Gateway::new(&config, &trust, meter, &store, &policy, &region)?);
    let (listener, admin) = (bind(port).await?, bind(admin_port).await?);
    println!("{LISTENING}{}{ADMIN}{}", listener.local_addr()?, admin.local_addr()?);
    tokio::try_join!(serve(listener, gateway.routes()), serve(admin, gateway.admin_routes()))?;
    Ok(())
}

/// Binds a port on loopback only: for other hosts the gateway belongs behind a proxy that terminates TLS.
pub async fn bind(port: u16) -> Result<TcpListener> {
    TcpListener::bind(("127.0.0.1", port)).await.with_context(|| format!("cannot bind port {port}"))
}

/// Serves routes until the listener fails.
pub async fn serve(listener: TcpListener, routes: Router) -> Result<()> {
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        // Chunks are sent when they arrive, not when there are more.
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, routes).await?;
    Ok(())
}
