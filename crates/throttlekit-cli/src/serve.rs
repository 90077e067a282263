//! `throttlekit serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use throttlekit_server::{Server, ServerOptions, StoreUrl};

/// What to serve, and where.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The policy file
    policies: PathBuf,
    /// Where gRPC is served
    #[arg(long, default_value = "127.0.0.1:50051")]
    listen: SocketAddr,
    /// Where counts are kept: `memory`, `redis://…`, `redis+cluster://a,b`, `postgres://…`
    #[arg(long, env = "THROTTLEKIT_STORE", default_value = "memory", hide_env_values = true)]
    store: String,
    /// Create or upgrade what the store needs first, as `throttlekit migrate` does
    #[arg(long)]
    migrate: bool,
    /// The longest a call to the store may take, in milliseconds; the store's own default unless given
    #[arg(long)]
    store_deadline_ms: Option<u64>,
    /// The region of this instance, for budgets that regions share
    #[arg(long, env = "THROTTLEKIT_REGION", default_value = "default")]
    region: String,
    /// How often the policy file is looked at, in milliseconds
    #[arg(long, default_value_t = 1_000)]
    reload_every_ms: u64,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serve(args))
}

async fn serve(args: Args) -> anyhow::Result<()> {
    let url = StoreUrl::parse(&args.store).map_err(anyhow::Error::msg)?;
    if args.migrate {
        url.migrate().await.map_err(anyhow::Error::msg)?;
    }
    let deadline = args.store_deadline_ms.map(Duration::from_millis);
    let backend = url.connect(deadline).await.map_err(anyhow::Error::msg)?;
    let mut options = ServerOptions::new(args.policies, backend);
    options.grpc = args.listen;
    options.engine.region = args.region;
    options.reload_every = Duration::from_millis(args.reload_every_ms.max(10));
    let server = Server::start(options).await.map_err(anyhow::Error::msg)?;
    eprintln!(
        "throttlekit serves {} policies on {} (store: {})",
        server.engine().policies().len(),
        server.grpc(),
        url.kind()
    );
    stopped().await?;
    eprintln!("stopping: no new requests, those under way end");
    server.stop().await;
    Ok(())
}

/// Waits for whoever wants it to stop.
async fn stopped() -> std::io::Result<()> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        stopped = tokio::signal::ctrl_c() => stopped,
        _ = terminate.recv() => Ok(()),
    }
}
