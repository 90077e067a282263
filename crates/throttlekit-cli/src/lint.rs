//! `throttlekit lint`.

use std::path::PathBuf;

use throttlekit_server::internals::access;
use throttlekit_server::policy;

use crate::file;

/// Options of `throttlekit lint`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Policy files, or directories of them; `-` is standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Print nothing if the files are valid
    #[arg(short, long)]
    quiet: bool,
    /// Also read the secrets that `access` refers to, as a server on this machine would
    #[arg(long)]
    secrets: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut errors = file::Errors::default();
    let inputs = file::inputs(&args.files)?;
    for input in &inputs {
        let text = policy::text(&input.bytes).map_err(|error| vec![error]);
        let Some(text) = errors.keep(&input.name, text) else { continue };
        let Some((file, findings)) = errors.keep(&input.name, policy::load(text)) else { continue };
        for finding in findings {
            let place = finding.place.map(|place| format!("\n at {place}")).unwrap_or_default();
            eprintln!("{finding}{place}");
        }
        if args.secrets {
            errors.keep(&input.name, access::judge_secrets(text));
        }
        if !args.quiet {
            if inputs.len() > 1 {
                println!("# {}\n", input.name);
            }
            print!("{}", policy::explain(&file));
        }
    }
    errors.end("docs/reference/policy-file.md describes the format")
}
