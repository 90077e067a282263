//! `throttlekit migrate`.

use throttlekit_server::StoreUrl;

use crate::store_args::{StoreArgs, store_fails};

/// Options of `throttlekit migrate`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (url, options) = args.store.load()?;
    anyhow::ensure!(url != StoreUrl::Memory, "a store in memory has no schema: pass --store postgres://…");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(url.migrate(&options)).map_err(|error| store_fails(&url, &error))?;
    println!("the store is ready");
    Ok(())
}
