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
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (file, findings) = file::policies(&args.file)?;
    findings.iter().for_each(|finding| eprintln!("warning: {finding}"));
    if !args.quiet {
        print!("{}", policy::explain(&file));
    }
    Ok(())
}
