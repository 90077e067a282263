//! `throttlekit migrate`.

use throttlekit_server::{ServerError, StoreUrl};

/// Options of `throttlekit migrate`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// URL of the store: `postgres://…`, with a role that may create a schema
    #[arg(long, env = "THROTTLEKIT_STORE", hide_env_values = true, value_name = "URL")]
    store: String,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let url = StoreUrl::parse(&args.store).map_err(anyhow::Error::msg)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(url.migrate()).map_err(|error| store_fails(&url, &error))?;
    println!("the store is ready");
    Ok(())
}

/// Creates the error for a store that failed. Leaves out the store's URL, since it may hold a password.
pub(crate) fn store_fails(url: &StoreUrl, error: &ServerError) -> anyhow::Error {
    anyhow::anyhow!("--store ({}): {error}", url.kind())
}
