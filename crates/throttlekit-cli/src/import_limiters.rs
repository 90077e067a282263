//! `throttlekit import`.

use std::path::PathBuf;

use throttlekit_server::policy::{self, LimitersImport};

use crate::{file, import_envoy};

/// Options of `throttlekit import`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files of the TypeScript server, YAML or JSON, or directories of them; `-` is standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut import = LimitersImport::default();
    let mut errors = file::Errors::default();
    for input in file::inputs(&args.files)? {
        let text = policy::text(&input.bytes).map_err(|error| vec![error]);
        errors.keep(&input.name, text.and_then(|text| import.add(text)));
    }
    import_envoy::end(errors, || import.finish())
}
