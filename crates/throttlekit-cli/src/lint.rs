//! `throttlekit lint`.

use std::path::PathBuf;

use throttlekit_server::policy;

use crate::file;

/// Options of `throttlekit lint`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The policy file
    file: PathBuf,
    /// Print nothing if the file is valid
    #[arg(short, long)]
    quiet: bool,
    /// Also read the secrets that `access` refers to, as a server on this machine would
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
