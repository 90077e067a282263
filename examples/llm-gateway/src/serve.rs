//! The two servers as commands.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use throttlekit_redis::RedisStore;
use tokio::net::TcpListener;

use crate::args::Args;
use crate::gate::Meter;
use crate::mock::{self, Lengths, Manner};
use crate::proxy::Gateway;
use crate::tenants::Config;

/// With what the line begins that says where a server listens.
pub const LISTENING: &str = "listening on http://";

/// With what its second part begins, where it also listens for who runs it.
pub const ADMIN: &str = ", admin on http://";

/// Runs the mock model.
pub async fn mock(mut args: Args) -> Result<()> {
    let port = args.or("port", 9_001)?;
    let lengths = Lengths {
        median: args.or("median", 120.0)?,
        sigma: args.or("sigma", 1.0)?,
        seed: args.or("seed", 1)?,
    };
    let manner = Manner {
        lengths,
        chunk: args.or("chunk", 4)?,
        delay: Duration::from_millis(args.or("delay-ms", 20)?),
        window_ms: args.or("window-ms", 60_000)?,
    };
    args.done()?;
    let listener = bind(port).await?;
    println!("{LISTENING}{}", listener.local_addr()?);
    serve(listener, mock::app(manner)).await
}

/// Runs the gateway.
pub async fn gateway(mut args: Args) -> Result<()> {
    let port = args.or("port", 8_080)?;
    let admin_port = args.or("admin-port", if port == 0 { 0 } else { 8_081 })?;
    let file: String = args.need("config")?;
    let meter = args.or("meter", Meter::Stream)?;
    let redis: String = args.or("redis", "redis://127.0.0.1:6379".to_owned())?;
    let policy: String = args.or("policy", "llm-gateway".to_owned())?;
    let region: String = args.or("region", format!("{}", std::process::id()))?;
    let deadline = Duration::from_millis(args.or("store-deadline-ms", 250)?);
    args.done()?;
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
    let config = Config::parse(&text).with_context(|| file)?;
    let store = RedisStore::builder(redis).deadline(deadline).connect().await?;
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
