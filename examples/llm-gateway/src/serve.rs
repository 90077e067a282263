//! The two servers as commands.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use throttlekit_redis::RedisStore;
use tokio::net::TcpListener;

use crate::gate::Meter;
use crate::mock::{self, Lengths, Manner};
use crate::proxy::Gateway;
use crate::tenants::Config;

/// With what the line begins that says where a server listens.
pub const LISTENING: &str = "listening on http://";

/// With what its second part begins, where it also listens for who runs it.
pub const ADMIN: &str = ", admin on http://";

/// The mock model.
#[derive(Debug, clap::Args)]
pub struct Mock {
    #[arg(long, default_value_t = 9_001)]
    port: u16,
    /// Half of its answers are shorter than this many tokens.
    #[arg(long, default_value_t = 120.0)]
    median: f64,
    /// How heavy the tail of their lengths is.
    #[arg(long, default_value_t = 1.0)]
    sigma: f64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many tokens each chunk has.
    #[arg(long, default_value_t = 4)]
    chunk: u64,
    /// How long it takes to generate one.
    #[arg(long, default_value_t = 20)]
    delay_ms: u64,
    /// By which windows it counts what it generated.
    #[arg(long, default_value_t = 60_000)]
    window_ms: u64,
}

/// The gateway.
#[derive(Debug, clap::Args)]
pub struct Serve {
    #[arg(long, default_value_t = 8_080)]
    port: u16,
    /// Where it listens for who runs it. Default: 8081, or any where the port is 0.
    #[arg(long)]
    admin_port: Option<u16>,
    /// The file that names the model and the tenants.
    #[arg(long)]
    config: String,
    /// How tokens are metered: stream, reserve or count. Default: stream.
    #[arg(long)]
    meter: Option<Meter>,
    #[arg(long, default_value = "redis://127.0.0.1:6379")]
    redis: String,
    /// Under which name limits are kept in the store.
    #[arg(long, default_value = "llm-gateway")]
    policy: String,
    /// The name of this process among those that share the capacity. Default: its process id.
    #[arg(long)]
    region: Option<String>,
    #[arg(long, default_value_t = 250)]
    store_deadline_ms: u64,
}

/// Runs the mock model.
pub async fn mock(args: Mock) -> Result<()> {
    let Mock { median, sigma, seed, chunk, window_ms, .. } = args;
    let (lengths, delay) = (Lengths { median, sigma, seed }, Duration::from_millis(args.delay_ms));
    let listener = bind(args.port).await?;
    println!("{LISTENING}{}", listener.local_addr()?);
    serve(listener, mock::app(Manner { lengths, chunk, delay, window_ms })).await
}

/// Runs the gateway.
pub async fn gateway(args: Serve) -> Result<()> {
    let Serve { port, config: file, redis, policy, .. } = args;
    let admin_port = args.admin_port.unwrap_or(if port == 0 { 0 } else { 8_081 });
    let region = args.region.unwrap_or_else(|| std::process::id().to_string());
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
    let config = Config::parse(&text).with_context(|| file)?;
    let deadline = Duration::from_millis(args.store_deadline_ms);
    let store = RedisStore::builder(redis).deadline(deadline).connect().await?;
    let meter = args.meter.unwrap_or(Meter::Stream);
    let gateway = Arc::new(Gateway::new(&config, meter, &store, &policy, &region)?);
    let (listener, admin) = (bind(port).await?, bind(admin_port).await?);
    println!("{LISTENING}{}{ADMIN}{}", listener.local_addr()?, admin.local_addr()?);
    tokio::try_join!(serve(listener, gateway.routes()), serve(admin, gateway.admin_routes()))?;
    Ok(())
}

/// On loopback only: a gateway for others belongs behind something that speaks TLS.
async fn bind(port: u16) -> Result<TcpListener> {
    TcpListener::bind(("127.0.0.1", port)).await.with_context(|| format!("port {port}"))
}

async fn serve(listener: TcpListener, routes: Router) -> Result<()> {
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        // A chunk is passed on when it is there, not when there are more.
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, routes).await?;
    Ok(())
}
