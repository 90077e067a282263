//! `throttlekit import-envoy`.

use std::path::PathBuf;

use throttlekit_server::policy::{self, EnvoyImport, Imported, PolicyError};

use crate::file;

/// Options of `throttlekit import-envoy`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files of envoyproxy/ratelimit, or directories of them; `-` is standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut import = EnvoyImport::default();
    let mut errors = file::Errors::default();
    for input in file::inputs(&args.files)? {
        let text = policy::text(&input.bytes).map_err(|error| vec![error]);
        errors.keep(&input.name, text.and_then(|text| import.add(text)));
    }
    end(errors, || import.finish())
}

/// Prints the policy file, and notes to standard error, unless there are errors in the files or in the result.
pub(crate) fn end(
    mut errors: file::Errors,
    finish: impl FnOnce() -> Result<Imported, Vec<PolicyError>>,
) -> anyhow::Result<()> {
    const NEXT: &str = "nothing was imported: fix the files and run the command again";
    errors.end(NEXT)?;
    let imported = errors.keep("the imported file", finish());
    errors.end(NEXT)?;
    let Some(imported) = imported else { return Ok(()) };
    imported.notes.iter().for_each(|note| eprintln!("note: {note}"));
    print!("{}", serde_saphyr::to_string(&imported.file)?);
    Ok(())
}
