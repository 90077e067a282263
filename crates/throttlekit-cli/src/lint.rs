//! `throttlekit lint`.

use std::path::PathBuf;

use throttlekit_server::policy;

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
    let bytes = std::fs::read(&args.file)?;
    let loaded = policy::text(&bytes).map_err(|error| vec![error]).and_then(policy::load);
    match loaded {
        Ok((file, findings)) => {
            findings.iter().for_each(|finding| eprintln!("warning: {finding}"));
            if !args.quiet {
                print!("{}", policy::explain(&file));
            }
            Ok(())
        }
        Err(errors) => {
            errors.iter().for_each(|error| eprintln!("{error}"));
            anyhow::bail!("{} is refused: {} to mend", args.file.display(), errors.len())
        }
    }
}
