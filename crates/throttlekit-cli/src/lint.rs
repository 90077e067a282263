//! `throttlekit lint`.

use std::path::PathBuf;

use throttlekit_server::policy;

use crate::file;

/// What to check.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The policy file
    file: PathBuf,
    /// Say nothing if it is good
    #[arg(short, long)]
    quiet: bool,
    /// Read the secrets that `access` refers to, too, as the server would here
    #[arg(long)]
    secrets: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (file, findings) = file::policies(&args.file)?;
    for finding in findings {
        let place = finding.place.map(|place| format!("\n at {place}")).unwrap_or_default();
        eprintln!("{finding}{place}");
    }
    if args.secrets {
        file::secrets(&args.file)?;
    }
    if !args.quiet {
        print!("{}", policy::explain(&file));
    }
    Ok(())
}
