//! `throttlekit import-envoy`.

use std::path::PathBuf;

use throttlekit_server::policy;

use crate::file;

/// Options of `throttlekit import-envoy`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Configuration file of envoyproxy/ratelimit: one domain and its descriptors
    file: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let bytes = file::read(&args.file)?;
    let refused = |error: policy::PolicyError| {
        anyhow::anyhow!(
            "{}: {error}\nnothing was imported: fix the file and run the command again",
            args.file.display()
        )
    };
    let imported = policy::text(&bytes).and_then(policy::import_envoy).map_err(refused)?;
    imported.notes.iter().for_each(|note| eprintln!("note: {note}"));
    print!("{}", serde_saphyr::to_string(&imported.file)?);
    Ok(())
}
